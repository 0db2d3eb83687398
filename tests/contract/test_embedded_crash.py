"""Crashes of the embedded index: whatever the step, a document shows whole or not at all (design decision 10)."""

import asyncio
import sqlite3
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lancedb.table import AsyncTable

from contracts.hits import Relation
from contracts.ports import Embeddable
from index.embedded import statistics
from index.embedded.index import EmbeddedIndex
from index.embedded.store import Store
from tests.contract.corpus import ACCOUNT, MODEL, SOURCE, Reference, ask, document, node, terms, uris, vectors


class Crash(Exception):
    """Stands for the process ending here."""


def version(word: str) -> list[Embeddable]:
    """Two documents; from one version to the next one node stays, one goes and one comes."""
    made = [
        node(
            path,
            f"{word} text",
            overview=f"overview {word}",
            content=f"content {word}",
            relations=(Relation(f"strata://shared/{word}", "see"),),
        )
        for path in ("stays", f"only-{word}")
    ]
    return [document("d", *made, fingerprint=word), document("e", node("e", f"{word} 检索"), fingerprint=word)]


def before(target: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Crash instead of calling ``target.name``."""

    def crash(*_: object, **__: object) -> None:
        raise Crash

    return lambda patch: patch.setattr(target, name, crash)


def after(target: Any, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Crash once ``target.name`` has done its work."""
    real = getattr(target, name)

    async def crash_async(*args: object, **named: object) -> None:
        await real(*args, **named)
        raise Crash

    def crash(*args: object, **named: object) -> None:
        real(*args, **named)
        raise Crash

    return lambda patch: patch.setattr(target, name, crash_async if asyncio.iscoroutinefunction(real) else crash)


PUT_STEPS = {
    "before staging": before(Store, "stage"),
    "while staging": before(Store, "_note"),
    "after staging": after(Store, "stage"),
    "before the rows show": before(AsyncTable, "_do_merge"),
    "after the rows show": after(AsyncTable, "_do_merge"),
    "before finishing": before(Store, "finish"),
    "while finishing": after(statistics, "apply"),
    "after finishing": after(Store, "finish"),
}
DROP_STEPS = {
    "before staging": before(Store, "stage"),
    "after staging": after(Store, "stage"),
    "before the rows go": before(AsyncTable, "delete"),
    "after the rows go": after(AsyncTable, "delete"),
    "before finishing": before(Store, "finish"),
    "while finishing": after(statistics, "apply"),
    "after finishing": after(Store, "finish"),
}


async def shown(index: EmbeddedIndex) -> str:
    """Which version an index shows, after checking that it shows all of it and nothing else."""
    (found,) = await index.recall([ask("text 检索", vectors(1)[0])])
    for word in ("old", "new"):
        expected = {node.uri: node for item in version(word) for node in item.document.nodes}
        if uris(found.hits) == expected.keys() and all(word in hit.abstract for hit in found.hits):
            assert await index.read(ACCOUNT, list(expected), "L1") == {
                u: n.overview for u, n in expected.items() if n.overview
            }
            assert await index.read(ACCOUNT, list(expected), "L2") == {
                u: n.content for u, n in expected.items() if n.content
            }
            edges = await index.edges(ACCOUNT, "strata://shared/stays", 5)
            assert edges == [Relation(f"strata://shared/{word}", "see")]
            return word
    assert not found.hits
    return "nothing"


def check_database(folder: Path, reference: Reference) -> None:
    """Statistics equal those computed afresh, and no text of another revision is left."""
    database = sqlite3.connect(folder / "strata.db")
    groups = {
        (account, kind, field): (
            documents,
            tokens,
            dict(database.execute("SELECT term, frequency FROM terms WHERE group_id = ?", (id_,))),
        )
        for id_, account, kind, field, documents, tokens in database.execute(
            "SELECT * FROM groups WHERE documents <> 0 OR tokens <> 0"
        )
    }
    fresh: dict[tuple[str, str, str], tuple[int, int, dict[str, int]]] = {}
    for made in reference.nodes().values():
        for field, tokens in zip(("words", "bigrams"), terms(made), strict=True):
            if tokens:
                documents, total, found = fresh.get((reference.account, made.kind, field), (0, 0, {}))
                found |= {term: found.get(term, 0) + 1 for term in set(tokens)}
                fresh[reference.account, made.kind, field] = (documents + 1, total + len(tokens), found)
    assert groups == fresh
    contents = sum(bool(made.overview or made.content) for made in reference.nodes().values())
    assert database.execute("SELECT count(*) FROM contents").fetchone() == (contents,)
    relations = sum(len(made.relations) for made in reference.nodes().values())
    assert database.execute("SELECT count(*) FROM relations").fetchone() == (relations,)
    assert database.execute("SELECT count(*) FROM commits").fetchone() == (0,)
    database.close()


async def crash_and_reopen(
    folder: Path, crash: Callable[[pytest.MonkeyPatch], None], write: Any
) -> tuple[str, EmbeddedIndex]:
    """Write into an index that crashes; what it showed before it was opened again, and the index reopened."""
    index = await EmbeddedIndex.open(folder, write=True)
    with pytest.MonkeyPatch.context() as patch:
        crash(patch)
        with pytest.raises(Crash):
            await write(index)
    reader = await EmbeddedIndex.open(folder)
    meanwhile = await shown(reader)
    await reader.close()
    await index.close()
    return meanwhile, await EmbeddedIndex.open(folder, write=True)


@pytest.mark.parametrize("step", PUT_STEPS)
@pytest.mark.parametrize("start", ["nothing", "old"])
async def test_a_put_that_crashes_shows_the_old_or_the_new_whole(tmp_path: Path, start: str, step: str) -> None:
    if start == "old":
        index = await EmbeddedIndex.open(tmp_path, write=True)
        await index.put(ACCOUNT, SOURCE, version("old"), MODEL)
        await index.close()

    meanwhile, index = await crash_and_reopen(
        tmp_path, PUT_STEPS[step], lambda index: index.put(ACCOUNT, SOURCE, version("new"), MODEL)
    )

    now = await shown(index)
    committed = step not in ("before staging", "while staging", "after staging", "before the rows show")
    # Until the first document is finished the index counts as empty.
    assert meanwhile == ("new" if committed and (start == "old" or step == "after finishing") else start)
    assert now == ("new" if committed else start)
    stored = {} if now == "nothing" else {"d": now, "e": now}
    assert await index.documents(ACCOUNT, SOURCE) == stored
    left = {entry.document_id for entry in await index.unfinished(ACCOUNT)}
    assert left == ({"d", "e"} if step in ("after staging", "before the rows show") else set())
    reference = Reference()
    reference.put(version(now) if stored else [])
    check_database(tmp_path, reference)

    await index.put(ACCOUNT, SOURCE, version("new"), MODEL)
    assert await shown(index) == "new"
    reference.put(version("new"))
    check_database(tmp_path, reference)
    await index.close()


@pytest.mark.parametrize("step", DROP_STEPS)
async def test_a_drop_that_crashes_is_completed_once_it_was_begun(tmp_path: Path, step: str) -> None:
    index = await EmbeddedIndex.open(tmp_path, write=True)
    await index.put(ACCOUNT, SOURCE, version("old"), MODEL)
    await index.close()

    meanwhile, index = await crash_and_reopen(
        tmp_path, DROP_STEPS[step], lambda index: index.drop(ACCOUNT, SOURCE, ["d", "e"])
    )

    begun = step != "before staging"
    assert meanwhile in ("old", "nothing")
    assert await shown(index) == ("nothing" if begun else "old")
    assert await index.documents(ACCOUNT, SOURCE) == ({} if begun else {"d": "old", "e": "old"})
    reference = Reference()
    reference.put([] if begun else version("old"))
    check_database(tmp_path, reference)
    await index.close()


async def test_the_next_write_mends_what_a_failed_one_left(tmp_path: Path) -> None:
    index = await EmbeddedIndex.open(tmp_path, write=True)
    for step in ("after staging", "after the rows show"):
        with pytest.MonkeyPatch.context() as patch:
            PUT_STEPS[step](patch)
            with pytest.raises(Crash):
                await index.put(ACCOUNT, SOURCE, version("new"), MODEL)
    await index.drop(ACCOUNT, SOURCE, ["d"])
    reference = Reference()
    reference.put(version("new")[1:])
    check_database(tmp_path, reference)
    await index.close()


async def test_a_put_whose_caller_gives_up_still_ends_before_the_next_begins(tmp_path: Path) -> None:
    index = await EmbeddedIndex.open(tmp_path, write=True)
    put = asyncio.create_task(index.put(ACCOUNT, SOURCE, version("old"), MODEL))
    await asyncio.sleep(0)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    await index.put(ACCOUNT, SOURCE, version("new"), MODEL)
    assert await shown(index) == "new"
    await index.close()


WRITER = textwrap.dedent("""
    import asyncio, sys
    from index.embedded.index import EmbeddedIndex
    from tests.contract.corpus import ACCOUNT, MODEL, SOURCE, document, node

    async def main():
        index = await EmbeddedIndex.open(sys.argv[1], write=True)
        for number in range(10_000):
            name = f"d{number % 7}"
            nodes = [node(f"{name}/{i}", f"round {number}", content=f"content {number}") for i in range(3)]
            await index.put(ACCOUNT, SOURCE, [document(name, *nodes, fingerprint=str(number))], MODEL)
            print(number, flush=True)

    asyncio.run(main())
""")


@pytest.mark.parametrize("rounds", [1, 10, 23])
async def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(tmp_path: Path, rounds: int) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(tmp_path), stdout=PIPE)
    assert process.stdout
    acknowledged = [int(await process.stdout.readline()) for _ in range(rounds)]
    process.kill()
    acknowledged += map(int, (await process.communicate())[0].split())

    index = await EmbeddedIndex.open(tmp_path, write=True)
    documents = await index.documents(ACCOUNT, SOURCE)
    for number in acknowledged[-7:]:
        assert int(documents[f"d{number % 7}"]) >= number
    reference = Reference()
    for name, number in documents.items():
        expected = [f"strata://shared/{name}/{i}" for i in range(3)]
        assert await index.read(ACCOUNT, expected, "L2") == dict.fromkeys(expected, f"content {number}")
        reference.put([document(name, *(node(f"{name}/{i}", f"round {number}", content="x") for i in range(3)))])
    (found,) = await index.recall([ask("round")])
    assert uris(found.hits) == reference.nodes().keys()
    check_database(tmp_path, reference)
    await index.close()

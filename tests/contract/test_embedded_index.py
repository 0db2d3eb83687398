"""What only the embedded index promises: processes side by side, upkeep, and honest failures."""

import asyncio
import itertools
import os
import sqlite3
import sys
import textwrap
from asyncio.subprocess import PIPE
from pathlib import Path

import numpy as np
import pytest

from contracts.errors import ConfigError, RecallFailed
from contracts.filters import Eq
from contracts.ports import Embeddable
from contracts.records import Document
from index.embedded.config import EmbeddedConfig
from index.embedded.index import EmbeddedIndex
from index.embedded.search import Search
from tests.contract.corpus import ACCOUNT, MODEL, SOURCE, ask, document, node, uris, vectors

READER = textwrap.dedent("""
    import asyncio, sys
    from index.embedded.index import EmbeddedIndex
    from tests.contract.corpus import ACCOUNT, ask, vectors

    async def main():
        index = await EmbeddedIndex.open(sys.argv[1])
        print("ready", flush=True)
        rounds = set()
        while "99" not in rounds:
            (found,) = await index.recall([ask("round", vectors(1)[0])])
            rounds = {hit.abstract.split()[1] for hit in found.hits}
            assert not found.failed and len(rounds) <= 1 and len(found.hits) in (0, 4), found
            if found.hits:
                texts = await index.read(ACCOUNT, [hit.uri for hit in found.hits], "L2")
                metas = await index.meta(ACCOUNT, list(texts))
                assert len(texts) == len(metas) == 4, (texts, metas)
                assert len(set(texts.values())) == 1, texts
        print("done", flush=True)

    asyncio.run(main())
""")


def round_of(number: int) -> list[Embeddable]:
    nodes = [node(f"n{i}", f"round {number}", content=f"content {number}") for i in range(4)]
    return [document("d", *nodes, seed=number)]


async def test_processes_that_read_while_one_writes_see_only_whole_documents(tmp_path: Path) -> None:
    """Two readers start before there is anything, follow 20 replacements and upkeep, and never see a mixture."""
    readers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", READER, str(tmp_path), stdout=PIPE, stderr=PIPE)
        for _ in range(2)
    ]
    for reader in readers:
        assert reader.stdout and await reader.stdout.readline() == b"ready\n"
    index = await EmbeddedIndex.open(tmp_path, write=True)
    for number in range(20):
        await index.put(ACCOUNT, SOURCE, round_of(number), MODEL)
        if number % 7 == 6:
            await index.optimize()
    await index.put(ACCOUNT, SOURCE, round_of(99), MODEL)
    for reader in readers:
        out, err = await reader.communicate()
        assert (out, reader.returncode) == (b"done\n", 0), err
    await index.close()


async def test_a_reader_sees_a_commit_as_soon_as_it_is_done(tmp_path: Path) -> None:
    reader = await EmbeddedIndex.open(tmp_path)
    writer = await EmbeddedIndex.open(tmp_path, write=True)
    for number in range(3):
        await writer.put(ACCOUNT, SOURCE, round_of(number), MODEL)
        (found,) = await reader.recall([ask("round")])
        assert {hit.abstract for hit in found.hits} == {f"round {number}"}
        assert await reader.read(ACCOUNT, ["strata://shared/n0"], "L2") == {"strata://shared/n0": f"content {number}"}
    await writer.drop(ACCOUNT, SOURCE, ["d"])
    assert await reader.meta(ACCOUNT, ["strata://shared/n0"]) == {}
    await writer.close()
    await reader.close()


async def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    writer = await EmbeddedIndex.open(tmp_path, write=True)
    script = (
        "import asyncio, sys; from index.embedded.index import EmbeddedIndex; "
        "asyncio.run(EmbeddedIndex.open(sys.argv[1], write=True))"
    )
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(tmp_path), stderr=PIPE)
    _, err = await other.communicate()
    assert f"CONFIG_ERROR: Process {os.getpid()} is writing" in err.decode()
    await writer.close()
    again = await EmbeddedIndex.open(tmp_path, write=True)
    await again.close()


async def test_an_index_opened_for_reading_refuses_writes(tmp_path: Path) -> None:
    reader = await EmbeddedIndex.open(tmp_path)
    with pytest.raises(ConfigError, match="opened for reading"):
        await reader.put(ACCOUNT, SOURCE, round_of(1), MODEL)
    await reader.close()


async def test_an_index_of_another_format_is_refused_with_a_remedy(tmp_path: Path) -> None:
    index = await EmbeddedIndex.open(tmp_path)
    await index.close()
    with sqlite3.connect(tmp_path / "strata.db") as database:
        database.execute("PRAGMA user_version = 999")
    with pytest.raises(ConfigError, match="another version") as refusal:
        await EmbeddedIndex.open(tmp_path, write=True)
    assert "ingest again" in refusal.value.remedy


async def test_optimizing_drops_old_versions_so_the_folder_does_not_grow_for_ever(tmp_path: Path) -> None:
    index = await EmbeddedIndex.open(tmp_path, EmbeddedConfig(keep_seconds=0.001), write=True)
    sizes = []
    for _ in range(3):
        for number in range(12):
            await index.put(ACCOUNT, SOURCE, round_of(number), MODEL)
        grown = (await index.stats()).bytes
        await index.optimize()
        stats = await index.stats()
        assert stats.bytes < grown
        assert stats.nodes == {ACCOUNT: {"section": 4}}
        sizes.append(stats.bytes)
    assert sizes[2] <= sizes[0] * 1.2
    await index.close()


async def test_documents_are_spread_over_commits_of_the_configured_size(tmp_path: Path) -> None:
    index = await EmbeddedIndex.open(tmp_path, EmbeddedConfig(commit_rows=5), write=True)
    documents = [document(f"d{d}", *(node(f"d{d}/{i}", "text") for i in range(3))) for d in range(4)]
    await index.put(ACCOUNT, SOURCE, documents, MODEL)
    (found,) = await index.recall([ask("text")])
    assert len(found.hits) == 12
    await index.close()


async def test_with_enough_rows_a_vector_index_keeps_recall_high_and_scores_exact(tmp_path: Path) -> None:
    """Recall against brute force, under a filter that keeps one record in ten too."""
    config = EmbeddedConfig(ann_rows=1_000, ann_probes=8, ann_refine=4)
    index = await EmbeddedIndex.open(tmp_path, config, write=True)
    rows = vectors(1_500)
    nodes = tuple(node(f"n{i}", f"text {i}", category="tenth" if i % 10 == 0 else "rest") for i in range(1_500))
    await index.put(ACCOUNT, SOURCE, [Embeddable(Document("d", "p", nodes), rows)], MODEL)
    await index.optimize()
    late = node("late", "come after the index was built")
    await index.put(ACCOUNT, SOURCE, [Embeddable(Document("late", "p", (late,)), vectors(1, seed=5))], MODEL)
    found_of_true = 0
    for query, step in itertools.product(vectors(20, seed=1), (1, 10)):
        where = Eq("category", "tenth") if step == 10 else None
        (found,) = await index.recall([ask("", query, limit=10, where=where)])
        cosines = rows[::step] @ query
        best = {f"strata://shared/n{i * step}" for i in np.argsort(-cosines)[:10]}
        found_of_true += len(best & uris(found.hits))
        for hit in found.hits:
            if hit.uri.endswith("late"):
                continue
            row = rows[int(hit.uri.rpartition("/n")[2])]
            assert hit.vector == pytest.approx(max(0.0, float(row @ query)), abs=1e-5)
    assert found_of_true >= 0.95 * 400
    (found,) = await index.recall([ask("", vectors(1, seed=5)[0], limit=1)])
    assert uris(found.hits) == {"strata://shared/late"}
    await index.close()


async def _broken(*_: object) -> None:
    raise RuntimeError("uri = 'strata://user:ann/secret' went wrong")


@pytest.mark.parametrize(("part", "other"), [("dense", "keyword"), ("keyword", "dense")])
async def test_when_one_recall_fails_the_other_answers_and_the_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, other: str
) -> None:
    """C30, without a word of the query or the filter in the reason."""
    index = await EmbeddedIndex.open(tmp_path, write=True)
    await index.put(ACCOUNT, SOURCE, round_of(1), MODEL)
    monkeypatch.setattr(Search, f"_{part}", _broken)
    (found,) = await index.recall([ask("round", vectors(1)[0])])
    assert len(found.hits) == 4
    assert {hit.found_by for hit in found.hits} == {other}
    assert found.failed == {part: "LanceDB raised RuntimeError"}
    await index.close()


async def test_when_both_recalls_fail_the_call_fails_and_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RET-5001."""
    index = await EmbeddedIndex.open(tmp_path, write=True)
    await index.put(ACCOUNT, SOURCE, round_of(1), MODEL)
    monkeypatch.setattr(Search, "_dense", _broken)
    monkeypatch.setattr(Search, "_keyword", _broken)
    for query in (ask("round", vectors(1)[0]), ask("round"), ask("", vectors(1)[0])):
        with pytest.raises(RecallFailed) as failure:
            await index.recall([query])
        assert failure.value.retryable and "secret" not in str(failure.value)
    await index.close()

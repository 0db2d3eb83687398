"""Crashes of writers to Elasticsearch: whatever the request, a document shows whole or not at all (decision 10)."""

import asyncio
import itertools
import os
import socket
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from contracts.errors import ConfigError, StageFailed
from contracts.hits import Relation
from contracts.ports import Embeddable
from index.elastic import writer as writer_module
from index.elastic.config import ElasticConfig, LayoutConfig, WriteConfig
from index.elastic.index import ElasticIndex
from index.elastic.state import Owner
from tests.contract.corpus import MODEL, SOURCE, Reference, ask, document, node, uris, vectors

accounts = (f"account {number}" for number in itertools.count())
Write = Callable[[ElasticIndex, str], Awaitable[None]]


class Crash(Exception):
    """Stands for the process ending here."""


class Place:
    """One prefix on the shared node, opened as often as needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"crash-{uuid4().hex[:12]}"
        self._opened: list[ElasticIndex] = []

    async def open(self, *, write: bool = False, lease_seconds: float = 60) -> ElasticIndex:
        config = ElasticConfig(
            prefix=self.prefix, layout=LayoutConfig(shards=2), write=WriteConfig(lease_seconds=lease_seconds)
        )
        self._opened.append(await ElasticIndex.open(config, [self.url], write=write))
        return self._opened[-1]

    async def close(self) -> None:
        await self._opened[0].versions.destroy()
        for index in self._opened:
            await index.close()


@pytest.fixture(scope="module")
async def place(elasticsearch_url: str) -> AsyncIterator[Place]:
    place = Place(elasticsearch_url)
    yield place
    await place.close()


@pytest.fixture(scope="module")
async def index(place: Place) -> ElasticIndex:
    """A living writer, which finds what those that crash have left."""
    index = await place.open(write=True)
    await index.put(next(accounts), SOURCE, version("old"), MODEL)
    return index


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


async def shown(index: ElasticIndex, account: str) -> str:
    """Which version an index shows, after checking that it shows all of it and nothing else."""
    (found,) = await index.recall([ask("text 检索", vectors(1)[0], account=account)])
    for word in ("old", "new"):
        nodes = {node.uri: node for item in version(word) for node in item.document.nodes}
        if uris(found.hits) == nodes.keys() and all(word in hit.abstract for hit in found.hits):
            assert await index.read(account, list(nodes), "L2") == {u: n.content for u, n in nodes.items() if n.content}
            edges = await index.edges(account, "strata://shared/stays", 5)
            assert edges == [Relation(f"strata://shared/{word}", "see")]
            return word
    assert not found.hits
    return "nothing"


async def check_records(index: ElasticIndex, reference: Reference) -> None:
    """Nothing of another revision, and no unfinished commit, is left in any index."""
    client, versions = index.client, index.versions
    await client.indices.refresh(index=[versions.alias, versions.texts, versions.ledger])
    mine = {"term": {"account_id": reference.account}}
    nodes = reference.nodes()
    texts = [n for n in nodes.values() if n.overview or n.content or n.relations or n.vector_texts]
    for name, expected in ((versions.alias, len(nodes)), (versions.texts, len(texts))):
        assert (await client.count(index=name, query=mine))["count"] == expected
    ledger = await client.search(index=versions.ledger, query=mine, size=100)
    bodies = [hit["_source"]["body"] for hit in ledger["hits"]["hits"] if "body" in hit["_source"]]
    # States without anything pending, and no commits.
    assert all(body.get("pending") == [] for body in bodies)


async def write_and_crash(place: Place, account: str, write: Write, request: int, *, done: bool) -> bool:
    """Let a writer crash at a request; false when it ended before it came to that one.

    Args:
        place: Where.
        account: Whose.
        write: What it does.
        request: The number of the request, from 0.
        done: Whether the cluster still carried the request out.
    """
    with pytest.MonkeyPatch.context() as patch:
        ended = Owner(socket.gethostname(), os.getpid(), 0.0, uuid4().hex)
        patch.setattr(writer_module.Owner, "here", lambda: ended)
        index = await place.open(write=True)
    transport = index.client.transport
    send = transport.perform_request
    sent = 0

    async def crashing(*args: Any, **named: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent == request + 1 and done:
            await send(*args, **named)
        if sent > request:
            raise Crash
        return await send(*args, **named)

    transport.perform_request = crashing  # type: ignore[method-assign]
    try:
        await write(index, account)
    except Crash:
        return True
    finally:
        transport.perform_request = send  # type: ignore[method-assign]
    return False


async def put_new(index: ElasticIndex, account: str) -> None:
    await index.put(account, SOURCE, version("new"), MODEL)


async def drop_all(index: ElasticIndex, account: str) -> None:
    await index.drop(account, SOURCE, ["d", "e"])


@pytest.mark.parametrize("done", [False, True], ids=["before the request", "after the request"])
@pytest.mark.parametrize(
    ("start", "write", "end"),
    [("nothing", put_new, "new"), ("old", put_new, "new"), ("old", drop_all, "nothing")],
    ids=["first put", "replacing put", "drop"],
)
async def test_a_write_that_crashes_at_any_request_shows_before_or_after_and_is_mended(
    place: Place, index: ElasticIndex, start: str, write: Write, end: str, done: bool
) -> None:
    outcomes: list[str] = []
    for request in itertools.count():
        account = next(accounts)
        if start == "old":
            await index.put(account, SOURCE, version("old"), MODEL)
        if not await write_and_crash(place, account, write, request, done=done):
            break

        meanwhile = await shown(index, account)
        documents = await index.documents(account, SOURCE)  # Mends what was left.
        now = await shown(index, account)

        assert now == meanwhile
        assert documents == ({} if now == "nothing" else {"d": now, "e": now})
        reference = Reference(account)
        reference.put(version(now) if documents else [])
        await check_records(index, reference)
        await index.put(account, SOURCE, version("new"), MODEL)
        assert await shown(index, account) == "new"
        reference = Reference(account)
        reference.put(version("new"))
        await check_records(index, reference)
        outcomes.append(now)
    # Once a request has made the switch, no later crash takes it back.
    switch = outcomes.index(end)
    assert outcomes == [start] * switch + [end] * (len(outcomes) - switch)
    assert 0 < switch < len(outcomes) - 1


async def test_the_first_write_of_all_may_crash_while_it_makes_the_indices(elasticsearch_url: str) -> None:
    for request in itertools.count():
        place = Place(elasticsearch_url)
        crashed = await write_and_crash(place, "acme", put_new, request, done=True)
        index = await place.open(write=True)
        await index.put("acme", SOURCE, version("new"), MODEL)
        assert await shown(index, "acme") == "new"
        serving = [each.serving for each in await index.versions.all()]
        await place.close()
        assert serving == [True]
        if not crashed:
            break


async def test_the_next_write_of_the_same_writer_mends_what_a_failed_one_left(place: Place) -> None:
    account = next(accounts)
    index = await place.open(write=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(index.client.indices), "refresh", _refuse)
        with pytest.raises(Crash):
            await index.put(account, SOURCE, version("new"), MODEL)
    assert await shown(index, account) == "nothing"
    await index.put(account, SOURCE, version("old"), MODEL)
    assert await shown(index, account) == "old"
    reference = Reference(account)
    reference.put(version("old"))
    await check_records(index, reference)


async def _refuse(*_: object, **__: object) -> None:
    raise Crash


async def test_a_put_whose_caller_gives_up_still_ends_before_the_next_begins(index: ElasticIndex) -> None:
    account = next(accounts)
    put = asyncio.create_task(index.put(account, SOURCE, version("old"), MODEL))
    await asyncio.sleep(0)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    await index.put(account, SOURCE, version("new"), MODEL)
    assert await shown(index, account) == "new"


async def test_two_writers_of_one_source_do_not_meet_and_two_sources_do_not_disturb_each_other(
    place: Place, index: ElasticIndex
) -> None:
    account = next(accounts)
    other = await place.open(write=True)
    writing, go_on = asyncio.Event(), asyncio.Event()
    bulk = other.client.transport.perform_request

    async def waits(method: str, target: str, *args: Any, **named: Any) -> Any:
        if "_bulk" in target and not writing.is_set():
            writing.set()
            await go_on.wait()
        return await bulk(method, target, *args, **named)

    other.client.transport.perform_request = waits  # type: ignore[method-assign]
    slow = asyncio.create_task(other.put(account, SOURCE, version("new"), MODEL))
    await writing.wait()
    with pytest.raises(ConfigError, match=str(os.getpid())) as refusal:
        await index.put(account, SOURCE, version("old"), MODEL)
    assert refusal.value.remedy
    await index.put(account, "another source", [document("f", node("f", "old text"))], MODEL)
    go_on.set()
    await slow
    (found,) = await index.recall([ask("text", account=account)])
    assert uris(found.hits) == {f"strata://shared/{name}" for name in ("stays", "only-new", "f")}


async def test_a_writer_taken_for_dead_is_told_and_what_it_still_writes_never_shows(
    place: Place, index: ElasticIndex
) -> None:
    account = next(accounts)
    await index.put(account, SOURCE, version("old"), MODEL)
    stalled = await place.open(write=True, lease_seconds=0.001)
    writing, go_on = asyncio.Event(), asyncio.Event()
    send = stalled.client.transport.perform_request

    async def waits(method: str, target: str, *args: Any, **named: Any) -> Any:
        # Its lease runs out before its bulk request is on its way, and it comes to no renewal.
        if "_doc" in target and writing.is_set():
            await go_on.wait()
        if "_bulk" in target:
            writing.set()
            await go_on.wait()
        return await send(method, target, *args, **named)

    stalled.client.transport.perform_request = waits  # type: ignore[method-assign]
    late = asyncio.create_task(stalled.put(account, SOURCE, version("new"), MODEL))
    await writing.wait()
    assert await index.documents(account, SOURCE) == {"d": "old", "e": "old"}
    go_on.set()
    with pytest.raises(StageFailed, match="taken for dead"):
        await late
    assert await shown(index, account) == "old"


async def test_searches_while_documents_are_replaced_show_one_whole_version(place: Place, index: ElasticIndex) -> None:
    account = next(accounts)
    await index.put(account, SOURCE, version("old"), MODEL)
    reader = await place.open()
    seen: list[str] = []
    for number in range(12):
        change = index.put(account, SOURCE, version("new" if number % 2 == 0 else "old"), MODEL)
        writing = asyncio.create_task(change)
        while not writing.done():
            (found,) = await reader.recall([ask("text 检索", vectors(1)[0], account=account)])
            words = {hit.abstract.split()[0] for hit in found.hits}
            assert len(words) == 1
            (word,) = words
            assert uris(found.hits) == {f"strata://shared/{name}" for name in ("stays", f"only-{word}", "e")}
            seen.append(word)
        await writing
    assert {"old", "new"} <= set(seen)


WRITER = textwrap.dedent("""
    import asyncio, sys
    from index.elastic.config import ElasticConfig
    from index.elastic.index import ElasticIndex
    from tests.contract.corpus import MODEL, SOURCE, document, node

    async def main():
        url, prefix, account = sys.argv[1:]
        index = await ElasticIndex.open(ElasticConfig(prefix=prefix), [url], write=True)
        for number in range(10_000):
            name = f"d{number % 7}"
            nodes = [node(f"{name}/{i}", f"round {number}", content=f"content {number}") for i in range(3)]
            await index.put(account, SOURCE, [document(name, *nodes, fingerprint=str(number))], MODEL)
            print(number, flush=True)

    asyncio.run(main())
""")


@pytest.mark.parametrize("rounds", [1, 10, 23])
async def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(
    place: Place, index: ElasticIndex, rounds: int
) -> None:
    account = next(accounts)
    arguments = (place.url, place.prefix, account)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, *arguments, stdout=PIPE)
    assert process.stdout
    acknowledged = [int(await process.stdout.readline()) for _ in range(rounds)]
    process.kill()
    acknowledged += map(int, (await process.communicate())[0].split())

    documents = await index.documents(account, SOURCE)
    for number in acknowledged[-7:]:
        assert int(documents[f"d{number % 7}"]) >= number
    reference = Reference(account)
    for name, number in documents.items():
        expected = [f"strata://shared/{name}/{i}" for i in range(3)]
        assert await index.read(account, expected, "L2") == dict.fromkeys(expected, f"content {number}")
        reference.put([document(name, *(node(f"{name}/{i}", f"round {number}", content="x") for i in range(3)))])
    (found,) = await index.recall([ask("round", account=account)])
    assert uris(found.hits) == reference.nodes().keys()
    await check_records(index, reference)

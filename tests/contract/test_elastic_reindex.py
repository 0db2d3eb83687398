"""Another embedding model for an Elasticsearch index that serves and is written to meanwhile (design decision 9)."""

import asyncio
import os
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from contracts.errors import ConfigError, StageFailed
from contracts.filters import Eq, all_of
from contracts.hits import Relation
from contracts.ports import OTHER_MODEL, Embedded, RecallQuery, TextRole, Vectors
from contracts.records import Document, ModelRef, Node
from index.elastic import reindex as reindex_module
from index.elastic.config import ElasticConfig, LayoutConfig, RecallConfig, WriteConfig
from index.elastic.index import ElasticIndex
from index.elastic.reindex import Reindex, ReindexReport
from index.elastic.swap import Swapped, swap
from index.elastic.turn import Turn
from index.elastic.versions import Version, Versions
from index.ingest import Ingest
from tests.contract.corpus import ACCOUNT, node, uris

SOURCE = "handbook"
QUERIES = ("how to install", "backup 备份", "node 7", "部署")
WRITE = WriteConfig(settle_seconds=60)
# What an index into which a source was just ingested answers and holds, by model and source.
fresh: dict[Any, Any] = {}


class FakeEmbedder:
    """Vectors by hashing, others for each model; notes what it was asked for, and may be held up."""

    def __init__(self, name: str, dimensions: int = 8) -> None:
        self.model = ModelRef(name, "1", dimensions)
        self.texts: list[str] = []
        self.before: Callable[[], Awaitable[None]] | None = None

    def vector(self, text: str) -> Vectors:
        seed = sha256(f"{self.model.name} {text}".encode()).digest()
        row = np.random.default_rng(list(seed)).standard_normal(self.model.dimensions).astype(np.float32)
        return row / np.linalg.norm(row)

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        if self.before:
            await self.before()
        self.texts += texts
        return Embedded(np.stack([self.vector(text) for text in texts]))


@dataclass
class Handbook:
    """A source of documents that change."""

    parts: dict[str, str]
    source_id: str = SOURCE

    def documents(self) -> Iterator[Document]:
        for name, text in self.parts.items():
            yield Document(name, text, tuple(nodes(name, text)))


def nodes(name: str, text: str) -> Iterator[Node]:
    """A document's nodes: the parent, one with all parts and texts of its own to embed, and plain ones."""
    yield node(name, f"{text}: how to install and deploy", has_children=True, kind="document")
    yield node(
        f"{name}/care",
        f"{text}: backup 备份与部署",
        overview=f"overview of {text}",
        content=f"content of {text} " * 1_500,
        vector_texts=(f"{text} care", f"{text} restore"),
        relations=(Relation(f"strata://shared/{name}", "part of"),),
        tags=("it's", "care"),
        attrs={"lang": ("zh", "en")},
        created_at=7,
    )
    for number in range(6, 8):
        yield node(f"{name}/{number}", f"{text}: node {number}", search_text=f"{text} node {number} 手册")


class Place:
    """One prefix on the shared node, opened as often as needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = f"reindex-{uuid4().hex[:12]}"
        self._opened: list[ElasticIndex] = []

    async def open(self, *, write: bool = True, **settings: Any) -> ElasticIndex:
        """Another process, as it were."""
        config = ElasticConfig(
            prefix=self.prefix,
            layout=LayoutConfig(shards=2),
            recall=RecallConfig(resolve_seconds=settings.pop("resolve_seconds", 0)),
            write=WriteConfig(**settings),
        )
        self._opened.append(await ElasticIndex.open(config, [self.url], write=write))
        return self._opened[-1]

    async def close(self) -> None:
        await self._opened[0].versions.destroy()
        for index in self._opened:
            await index.close()


@pytest.fixture
async def place(elasticsearch_url: str) -> AsyncIterator[Place]:
    place = Place(elasticsearch_url)
    yield place
    await place.close()


@pytest.fixture
def old() -> FakeEmbedder:
    return FakeEmbedder("old")


@pytest.fixture
def new() -> FakeEmbedder:
    return FakeEmbedder("new", 12)


@pytest.fixture
def handbook() -> Handbook:
    return Handbook({f"doc{number}": f"text {number}" for number in range(10)})


@pytest.fixture
async def index(place: Place, old: FakeEmbedder, handbook: Handbook) -> ElasticIndex:
    index = await place.open()
    await ingest(index, old, handbook)
    return index


async def ingest(index: ElasticIndex, embedder: FakeEmbedder, source: Handbook, account: str = ACCOUNT) -> None:
    report = await Ingest(index, index, embedder).run(account, source)
    assert not report.problems


def reindex(index: ElasticIndex, embedder: FakeEmbedder, write: WriteConfig = WRITE, batch: int = 7) -> Reindex:
    return Reindex(index.client, index.versions, embedder, write, batch)


def asks(embedder: FakeEmbedder, texts: Iterable[str] = QUERIES, account: str = ACCOUNT) -> list[RecallQuery]:
    where = all_of(Eq("account_id", account))
    return [RecallQuery(text, embedder.vector(text), where, 100, embedder.model) for text in texts]


async def answers(index: ElasticIndex, embedder: FakeEmbedder) -> Any:
    """All that an index tells: what it recalls with all scores, and what is read by URI."""
    found = await index.recall(asks(embedder))
    assert not any(answer.failed or answer.partial for answer in found)
    known = sorted(uris(found[0].hits))
    return (
        [
            {hit.uri: (hit.abstract, pytest.approx(hit.vector, abs=1e-5), hit.keyword) for hit in each.hits}
            for each in found
        ],
        await index.meta(ACCOUNT, known),
        await index.read(ACCOUNT, known, "L1"),
        await index.read(ACCOUNT, known, "L2"),
        [await index.edges(ACCOUNT, uri, 10) for uri in known],
        await index.documents(ACCOUNT, SOURCE),
        await index.model(),
    )


async def counts(index: ElasticIndex) -> list[int]:
    """How many nodes and texts there are, of all commits."""
    names = [index.versions.alias, index.versions.texts]
    await index.client.indices.refresh(index=names)
    return [(await index.client.count(index=name))["count"] for name in names]


async def check_fresh(place: Place, index: ElasticIndex, embedder: FakeEmbedder, source: Handbook) -> None:
    """An index answers as one does into which its source was ingested with this model, and holds nothing else."""
    key = (embedder.model, *source.parts.items())
    if key not in fresh:
        elsewhere = Place(place.url)
        other = await elsewhere.open()
        await ingest(other, FakeEmbedder(embedder.model.name, embedder.model.dimensions), source)
        fresh[key] = await answers(other, embedder), await counts(other)
        await elsewhere.close()
    assert (await answers(index, embedder), await counts(index)) == fresh[key]


async def states(index: ElasticIndex) -> dict[int, tuple[bool, bool]]:
    """Of each version whether it serves, and whether it is closed."""
    return {version.number: (version.serving, version.closed) for version in await index.versions.all()}


class Held:
    """Holds up the requests of one index that ``chosen`` picks, until they may go on."""

    def __init__(self, index: ElasticIndex, chosen: Callable[[str, bytes], bool]) -> None:
        self.reached, self._go_on = asyncio.Event(), asyncio.Event()
        self._transport = index.client.transport
        self._send = self._transport.perform_request

        async def perform_request(method: str, target: str, *args: Any, **named: Any) -> Any:
            body = named.get("body")
            sent = (
                b"".join(line if isinstance(line, bytes) else b"" for line in body) if isinstance(body, list) else b""
            )
            if not self._go_on.is_set() and chosen(target, sent):
                self.reached.set()
                await self._go_on.wait()
            return await self._send(method, target, *args, **named)

        self._transport.perform_request = perform_request  # type: ignore[method-assign]

    def go_on(self) -> None:
        self._transport.perform_request = self._send  # type: ignore[method-assign]
        self._go_on.set()


async def test_after_it_all_answers_are_those_of_an_index_ingested_with_the_new_model(
    place: Place, index: ElasticIndex, new: FakeEmbedder, handbook: Handbook
) -> None:
    told: dict[str, int] = {}
    report = await reindex(index, new).run(lambda phase, done, total: told.update({phase: done}))
    assert (report.source, report.target, report.model) == (1, 2, new.model)
    assert (report.nodes, report.texts, report.removed) == (40, 50, 0)
    assert told == {"embed": 50, "write": 40}
    assert report.swapped and not report.resumed and not report.reopened
    assert 0 < report.stopped_seconds < report.seconds
    assert await states(index) == {1: (False, True), 2: (True, False)}
    await check_fresh(place, index, new, handbook)


async def test_searches_that_go_on_meanwhile_always_find_everything(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder
) -> None:
    reader = await place.open(write=False)
    everything = {f"strata://shared/doc{n}{rest}" for n in range(10) for rest in ("", "/care", "/6", "/7")}
    seen: list[ModelRef] = []

    async def search() -> None:
        both = await reader.recall([*asks(old, ["text install"]), *asks(new, ["text install"])])
        for answer in both:
            assert uris(answer.hits) == everything
        (comparable,) = [which for which, answer in zip((old, new), both, strict=True) if not answer.failed]
        seen.append(comparable.model)

    async def searched() -> None:
        await search()

    new.before = searched
    running = asyncio.create_task(reindex(index, new).run())
    while not running.done():
        await search()
    assert (await running).swapped
    await search()
    assert seen[0] == old.model and seen[-1] == new.model
    assert seen == sorted(seen, key=[old.model, new.model].index)


async def test_what_is_written_replaced_and_dropped_meanwhile_is_caught_up(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    rounds = 0

    async def write() -> None:
        nonlocal rounds
        for rounds in range(1_000):
            handbook.parts[f"doc{rounds % 10}"] = f"changed {rounds}"
            handbook.parts[f"more{rounds % 5}"] = f"added {rounds}"
            handbook.parts.pop(f"more{(rounds + 2) % 5}", None)
            await ingest(writer, old, handbook)

    async def some_rounds_pass() -> None:
        before = rounds
        while rounds < before + 2 and not (await index.versions.all())[0].closed:
            pass

    writing = asyncio.create_task(write())
    new.before = some_rounds_pass
    report = await reindex(index, new, batch=20).run()
    with pytest.raises(ConfigError, match="strata reindex"):
        await writing
    assert rounds >= 4 and report.removed

    # What was acknowledged is there, in its last form; the commit that met the swap is not.
    stored = await index.documents(ACCOUNT, SOURCE)
    (found,) = await index.recall(asks(new, ["text changed added install"]))
    assert not found.failed
    assert {hit.uri.split("/")[3] for hit in found.hits} == stored.keys()
    assert all(hit.abstract.startswith(f"{stored[hit.uri.split('/')[3]]}:") for hit in found.hits)
    await ingest(index, new, handbook)
    await check_fresh(place, index, new, handbook)


async def test_a_run_that_was_stopped_is_gone_on_with_and_embeds_nothing_twice(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    done: dict[str, int] = {}
    stuck = asyncio.Event()

    async def stop_before_the_fourth_batch() -> None:
        if done.get("write") == 21:
            stuck.set()
            await asyncio.Event().wait()

    new.before = stop_before_the_fourth_batch
    running = asyncio.create_task(reindex(index, new).run(lambda phase, count, _: done.update({phase: count})))
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await states(index) == {1: (True, False), 2: (False, False)}
    await ingest(index, old, handbook)

    first, new.texts, new.before = new.texts, [], None
    report = await reindex(index, new).run()
    assert report.resumed and report.target == 2
    assert first and new.texts and not set(first) & set(new.texts)
    assert len(first) + len(new.texts) == 50
    await check_fresh(place, index, new, handbook)


async def test_a_version_can_be_filled_without_a_swap_and_swapped_to_later(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    report = await reindex(index, new).run(swap=False)
    assert not report.swapped and report.stopped_seconds == 0
    assert await states(index) == {1: (True, False), 2: (False, False)}
    assert await index.model() == old.model
    assert await swap(index.client, index.versions, WRITE, 2) == Swapped(done=True)
    assert await states(index) == {1: (False, True), 2: (True, False)}
    await check_fresh(place, index, new, handbook)


async def test_a_swap_to_a_version_that_lacks_records_has_to_be_forced_and_can_be_taken_back(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    before = await answers(index, old)
    await reindex(index, new).run()
    handbook.parts["doc0"] = "changed"
    await ingest(index, new, handbook)
    rollback = await swap(index.client, index.versions, WRITE, 1)
    assert rollback == Swapped(done=False, missing=4, outdated=4)
    assert await states(index) == {1: (False, True), 2: (True, False)}

    assert (await swap(index.client, index.versions, WRITE, 1, force=True)).done
    assert await states(index) == {1: (True, False), 2: (False, True)}
    assert before[0][0].keys() - uris((await index.recall(asks(old)))[0].hits) <= {
        uri for uri in before[0][0] if "/doc0" in uri
    }
    assert (await swap(index.client, index.versions, WRITE, 2, force=True)).done
    await check_fresh(place, index, new, handbook)


async def test_the_old_model_comes_back_with_all_later_writes_and_embeds_only_those(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    await reindex(index, new).run()
    handbook.parts |= {"doc0": "changed", "doc10": "added"}
    del handbook.parts["doc1"]
    await ingest(index, new, handbook)
    old.texts = []
    report = await reindex(index, old).run()
    assert (report.target, report.nodes, report.removed) == (1, 8, 8)
    assert len(old.texts) == 10
    assert await states(index) == {1: (True, False), 2: (False, True)}
    await check_fresh(place, index, old, handbook)


async def test_there_is_nothing_to_do_without_an_index_or_with_its_own_model(
    place: Place, index: ElasticIndex, old: FakeEmbedder
) -> None:
    with pytest.raises(ConfigError, match="already") as refusal:
        await reindex(index, old).run()
    assert refusal.value.field == "embedder" and refusal.value.remedy
    assert await states(index) == {1: (True, False)}
    nowhere = Place(place.url)
    empty = await nowhere.open()
    with pytest.raises(ConfigError, match="no index yet"):
        await reindex(empty, old).run()
    await nowhere.close()


async def test_only_one_process_at_a_time_changes_the_versions(
    place: Place, index: ElasticIndex, new: FakeEmbedder
) -> None:
    embedding, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        embedding.set()
        await go_on.wait()

    new.before = wait
    first = asyncio.create_task(reindex(index, new).run())
    await embedding.wait()
    other = await place.open()
    with pytest.raises(ConfigError, match=f"Process {os.getpid()} .* re-embedding"):
        await reindex(other, FakeEmbedder("third")).run()
    with pytest.raises(ConfigError, match="re-embedding"):
        await swap(other.client, other.versions, WRITE, 1)
    go_on.set()
    assert (await first).swapped
    assert await Turn(other.client, other.versions.ledger, WRITE).holder() is None


async def fails(*_: object, **__: object) -> Any:
    raise StageFailed("on purpose")


async def is_cancelled(*_: object, **__: object) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("where", "what", "failure"),
    [(reindex_module, "count", fails), (Versions, "replace", is_cancelled), (Versions, "_move_alias", fails)],
    ids=["fails before the check", "is cancelled before the swap", "fails in the swap"],
)
async def test_a_failure_while_writes_are_stopped_lets_them_in_again(
    place: Place,
    index: ElasticIndex,
    old: FakeEmbedder,
    new: FakeEmbedder,
    handbook: Handbook,
    where: Any,
    what: str,
    failure: Any,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, what, failure)
        with pytest.raises((StageFailed, asyncio.CancelledError)):
            await reindex(index, new).run()
    assert await states(index) == {1: (True, False), 2: (False, False)}
    handbook.parts["doc0"] = "changed"
    await ingest(index, old, handbook)
    assert (await reindex(index, new).run()).nodes == 4
    await check_fresh(place, index, new, handbook)


async def test_records_that_were_missed_forbid_the_swap(index: ElasticIndex, new: FakeEmbedder) -> None:
    async def none(*_: object) -> AsyncIterator[Any]:
        return
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reindex_module, "differences", none)
        with pytest.raises(StageFailed, match="0 records instead of 40"):
            await reindex(index, new).run()
    assert await states(index) == {1: (True, False), 2: (False, False)}


DIES = textwrap.dedent("""
    import asyncio, sys
    from index.elastic.config import ElasticConfig, WriteConfig
    from index.elastic.index import ElasticIndex
    from index.elastic.reindex import Reindex
    from index.elastic.versions import Versions
    from models.deterministic import DeterministicEmbedder

    async def stuck(*_):
        print("closed", flush=True)
        await asyncio.Event().wait()

    async def main():
        url, prefix = sys.argv[1:]
        Versions.replace = stuck
        index = await ElasticIndex.open(ElasticConfig(prefix=prefix), [url], write=True)
        await Reindex(index.client, index.versions, DeterministicEmbedder(16), WriteConfig()).run()

    asyncio.run(main())
""")


@pytest.fixture
async def left_closed(place: Place, index: ElasticIndex) -> None:
    """A run was killed (-9) right before it would have swapped."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, place.url, place.prefix, stdout=PIPE)
    assert process.stdout
    assert await process.stdout.readline() == b"closed\n"
    assert await states(index) == {1: (True, True), 2: (False, False)}
    holder = await Turn(index.client, index.versions.ledger, WRITE).holder()
    assert holder and holder.owner.pid == process.pid
    process.kill()
    await process.wait()


@pytest.mark.usefixtures("left_closed")
async def test_a_run_killed_while_writes_are_stopped_is_noticed_by_the_next_which_lets_them_in(
    place: Place, index: ElasticIndex, new: FakeEmbedder, old: FakeEmbedder, handbook: Handbook
) -> None:
    handbook.parts["doc0"] = "changed"
    waiting = asyncio.create_task(ingest(await place.open(), old, handbook))
    embedding = asyncio.Event()

    async def wait() -> None:
        embedding.set()
        await waiting

    new.before = wait
    report = await reindex(index, new).run()
    assert report.reopened and report.target == 3
    await check_fresh(place, index, new, handbook)


@pytest.mark.usefixtures("left_closed")
async def test_a_swap_to_the_version_that_serves_lets_writes_in_that_a_killed_run_has_stopped(
    place: Place, index: ElasticIndex, old: FakeEmbedder, handbook: Handbook
) -> None:
    assert await swap(index.client, index.versions, WRITE, 1) == Swapped(done=True)
    handbook.parts["doc0"] = "changed"
    await ingest(index, old, handbook)
    await check_fresh(place, index, old, handbook)


@pytest.mark.parametrize("dimensions", [8, 12])
async def test_a_query_of_another_model_is_refused_after_the_swap_in_every_process(
    place: Place, index: ElasticIndex, old: FakeEmbedder, dimensions: int
) -> None:
    """Design decision 9, also when both models make vectors of the same length."""
    new = FakeEmbedder("new", dimensions)
    service = await place.open(write=False)
    assert not any(answer.failed for answer in await service.recall(asks(old)))
    await reindex(index, new).run()
    for each in (service, index):
        for answer in await each.recall(asks(old)):
            assert answer.failed == {"dense": OTHER_MODEL}
            assert all(hit.vector == 0 for hit in answer.hits)
        assert uris((await each.recall(asks(old)))[1].hits) >= {f"strata://shared/doc{n}/care" for n in range(10)}
        assert not any(answer.failed for answer in await each.recall(asks(new)))
        assert await each.model() == new.model


async def test_a_service_that_has_not_noticed_the_swap_compares_no_vectors_and_misses_no_later_write(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    known, knows_model = [await place.open(write=False, resolve_seconds=3_600) for _ in range(2)]
    for each in (known, knows_model):
        await each.recall(asks(old))
    await reindex(index, new).run()
    assert not any(answer.failed for answer in await knows_model.recall(asks(new)))
    handbook.parts |= {"doc0": "changed", "doc10": "added"}
    await ingest(index, new, handbook)
    words = [RecallQuery("changed added", None, Eq("account_id", ACCOUNT), 100)]
    (found,) = await known.recall(words)
    assert {hit.uri.split("/")[3] for hit in found.hits} == {"doc0", "doc10"}


async def meets_swap(
    index: ElasticIndex, new: FakeEmbedder, held: Held, write: asyncio.Task[Any], *, drop: bool = False
) -> ReindexReport:
    """Let an index be swapped while a request of a writer is held up."""
    await held.reached.wait()
    report = await reindex(index, new).run()
    if drop:
        await index.versions.drop(await index.versions.get(1))
    held.go_on()
    await asyncio.wait({write})
    return report


def nodes_only(target: str, body: bytes) -> bool:
    """Whether a request writes nodes."""
    return "_bulk" in target and b"-write-" in body


@pytest.mark.parametrize(
    ("first", "drop"),
    [(1, False), (0, True), (1, True)],
    ids=["half written", "nothing written, old version dropped", "half written, old version dropped"],
)
async def test_a_commit_that_meets_the_swap_is_undone_in_the_new_version(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook, first: int, drop: bool
) -> None:
    writer = await place.open(bulk_bytes=10_000, in_flight=1)
    requests = 0

    def chosen(target: str, body: bytes) -> bool:
        nonlocal requests
        requests += nodes_only(target, body)
        return nodes_only(target, body) and requests > first

    held = Held(writer, chosen)
    changed = Handbook({name: f"{text} changed" for name, text in handbook.parts.items()})
    writing = asyncio.create_task(ingest(writer, old, changed))
    report = await meets_swap(index, new, held, writing, drop=drop)
    with pytest.raises(ConfigError, match="strata reindex"):
        await writing
    assert (report.nodes > 40) == bool(first)
    # Nothing has been made anew by a late write.
    versions = ["nodes-000002"] if drop else ["nodes-000001", "nodes-000002"]
    found = await index.client.indices.get(index=f"{place.prefix}-*")
    assert set(found) == {f"{place.prefix}-{name}" for name in ("texts", "ledger", *versions)}
    left = await index.unfinished(ACCOUNT)
    assert {(entry.document_id, entry.state) for entry in left} == {(name, "embedded") for name in changed.parts}
    await check_fresh(place, index, new, handbook)
    await ingest(index, new, changed)
    await check_fresh(place, index, new, changed)


async def test_a_commit_that_was_shown_before_the_swap_is_completed_in_the_new_version(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    held = Held(writer, lambda target, body: nodes_only(target, body) and b'{"delete":' in body)
    handbook.parts["doc0"] = "changed"
    writing = asyncio.create_task(ingest(writer, old, handbook))
    await meets_swap(index, new, held, writing)
    await writing
    await check_fresh(place, index, new, handbook)


async def test_a_late_write_to_a_version_that_is_being_filled_again_is_not_taken_for_done(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    held = Held(writer, nodes_only)
    changed = Handbook({**handbook.parts, "doc0": "changed"})
    writing = asyncio.create_task(ingest(writer, old, changed))
    await held.reached.wait()
    await reindex(index, new).run()
    await reindex(index, old).run(swap=False)
    assert await states(index) == {1: (False, False), 2: (True, False)}
    held.go_on()
    with pytest.raises(ConfigError, match="strata reindex"):
        await writing
    await reindex(index, old).run()
    await check_fresh(place, index, old, handbook)


async def test_a_late_removal_from_a_version_that_is_being_filled_again_is_done_where_it_counts(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    held = Held(writer, nodes_only)
    dropping = asyncio.create_task(writer.drop(ACCOUNT, SOURCE, ["doc0"]))
    await held.reached.wait()
    await reindex(index, new).run()
    await reindex(index, old).run(swap=False)
    held.go_on()
    await dropping
    del handbook.parts["doc0"]
    await check_fresh(place, index, new, handbook)


async def test_a_writer_that_has_not_noticed_the_swap_drops_what_was_written_since(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open(resolve_seconds=3_600)
    await writer.recall(asks(old))
    await reindex(index, new).run()
    handbook.parts["doc0"] = "changed"
    await ingest(index, new, handbook)
    await writer.drop(ACCOUNT, SOURCE, ["doc0"])
    del handbook.parts["doc0"]
    await check_fresh(place, index, new, handbook)


async def test_a_node_is_never_embedded_without_texts_that_are_still_on_their_way(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open(bulk_bytes=10_000)
    held = Held(writer, lambda target, body: "_bulk" in target and b"-texts" in body)
    handbook.parts["doc0"] = "changed"
    writing = asyncio.create_task(ingest(writer, old, handbook))
    await held.reached.wait()
    # Another account's commit lets searches see all there is so far.
    await ingest(index, old, Handbook({"other": "other"}, "other"), "other")
    await reindex(index, new).run(swap=False)
    held.go_on()
    await writing
    await index.drop("other", "other", ["other"])
    await reindex(index, new).run()
    await check_fresh(place, index, new, handbook)


async def test_a_version_swapped_to_by_other_means_is_no_longer_filled(
    place: Place, index: ElasticIndex, new: FakeEmbedder, handbook: Handbook
) -> None:
    other = await place.open()

    async def swapped() -> None:
        target: Version = (await other.versions.all())[-1]
        await other.versions.swap(target)

    new.before = swapped
    with pytest.raises(ConfigError, match="replaced"):
        await reindex(index, new).run()
    assert await states(index) == {1: (False, True), 2: (True, False)}

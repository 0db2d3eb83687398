"""The durable ingest killed at every step (R2), on both index backends.

A child process submits and works, and ends by SIGKILL. Afterwards a new worker finishes: every acknowledged source is
found once and whole, a removed one is gone, and nothing of an older version is left.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from signal import SIGKILL
from uuid import uuid4

import msgspec
import pytest

from contracts.records import Document
from corpora.rag.documents import index_source
from corpora.rag.types import SourceDocument
from index.elastic.index import ElasticIndex
from tests.contract.corpus import ask, uris
from tests.support.ingest import ACCOUNT, CORPUS, SPACE, Bench, source
from tests.support.ingest_child import EVERY, NEW, OLD, Place, documents, text

SOURCE = index_source(SPACE, CORPUS)
STEPS = {
    "before it is acknowledged": "after corpora.rag.queue:add",
    "once it is acknowledged": "after corpora.rag.queue:IngestQueue.submit_deletes",
    "once it is claimed": "after corpora.rag.jobs:Jobs.claim",
    "while it is cut": "before corpora.rag.documents:SourceChunker.document",
    "while it is embedded": "before models.deterministic:DeterministicEmbedder.embed",
    "before a source is removed": "before corpora.rag.store:IndexStore.delete",
    "once a source is removed": "after corpora.rag.store:IndexStore.delete",
    "before it is written": "before corpora.rag.store:IndexStore.upsert",
    "once it is written": "after corpora.rag.store:IndexStore.upsert",
    "while a step is noted": "after corpora.rag.jobs:_owned",
    "once a step is noted": "after corpora.rag.jobs:Jobs.finish",
    "while the index is tidied up": "before corpora.rag.store:IndexStore.optimize",
}
INSIDE = {
    "embedded": {
        "while it is staged": "after index.embedded.store:Store.stage",
        "once its rows show": "after lancedb.table:AsyncTable._do_merge",
        "while a removal is finished": "before index.embedded.store:Store.finish",
    },
    "elasticsearch": {
        "once its records are written": "after index.elastic.records:Records.write",
        "once a removal or write shows": "after index.elastic.writer:Writer._switch",
        "while it is cleared up": "before index.elastic.ledger:Ledger.store",
    },
}


@pytest.fixture(params=["embedded", "elasticsearch"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    database = f"sqlite:///{tmp_path / 'strata.db'}"
    if request.param == "embedded":
        yield Place(database, folder=str(tmp_path / "index"))
        return
    url = request.getfixturevalue("elasticsearch_url")
    place = Place(database, url=url, prefix=f"ingest-{uuid4().hex[:12]}")
    yield place
    index = await place.open_index()
    assert isinstance(index, ElasticIndex)
    await index.versions.destroy()
    await index.close()


@pytest.fixture
async def bench(place: Place) -> AsyncIterator[Bench]:
    bench = await place.bench()
    yield bench
    await bench.database.close()


async def killed(place: Place, step: str) -> list[str]:
    """The receipts that a child had been given before it was killed at a step."""
    command = (sys.executable, "-m", "tests.support.ingest_child", msgspec.json.encode(place).decode(), step)
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, errors = await child.communicate()
    assert child.returncode == -SIGKILL, errors.decode()
    return out.decode().split()


async def finish(place: Place, bench: Bench) -> None:
    """A new worker, until nothing is left to do."""
    ended = asyncio.Event()
    worker = place.worker(bench, lambda _: ended.set())
    task = asyncio.create_task(worker.run())
    while await bench.queue.backlog():
        await ended.wait()
        ended.clear()
    worker.stop()
    await task


async def check(place: Place, bench: Bench, expected: Mapping[str, Document]) -> None:
    """The index holds these documents, each node once, and nothing else; the registry says the same."""
    index = await place.open_index(write=False)
    nodes = {node.uri: node for document in expected.values() for node in document.nodes}
    (found,) = await index.recall([ask(EVERY, account=ACCOUNT, limit=1000)])
    assert uris(found.hits) == nodes.keys()
    contents = {uri: node.content for uri, node in nodes.items()}
    assert await index.read(ACCOUNT, list(nodes), "L2") == contents
    prints = {name: document.fingerprint for name, document in expected.items()}
    assert await index.documents(ACCOUNT, SOURCE) == prints
    assert [each.source_id for each in await bench.queue.sources(ACCOUNT, CORPUS, SPACE)] == sorted(expected)
    await index.close()


async def go(place: Place, bench: Bench, step: str) -> None:
    await bench.queue.submit(ACCOUNT, CORPUS, OLD)
    await finish(place, bench)
    before, after = documents(*OLD), documents(*OLD, *NEW)
    del after["removed"]
    await check(place, bench, before)

    receipts = await killed(place, step)
    await finish(place, bench)

    await check(place, bench, after if receipts else before)
    assert [await state(bench, receipt) for receipt in receipts] == ["stored"] * len(receipts)


async def state(bench: Bench, receipt_id: str) -> str:
    found = await bench.queue.receipt(ACCOUNT, receipt_id)
    assert found
    return found.state


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_at_a_step_leaves_all_that_was_acknowledged_to_the_next(
    place: Place, bench: Bench, step: str
) -> None:
    await go(place, bench, STEPS[step])


@pytest.mark.parametrize(("place", "step"), [(b, s) for b, steps in INSIDE.items() for s in steps], indirect=["place"])
async def test_a_worker_killed_within_a_write_of_the_index_does_so_too(place: Place, bench: Bench, step: str) -> None:
    await go(place, bench, INSIDE["embedded" if place.folder else "elasticsearch"][step])


@pytest.mark.parametrize("acknowledged", [1, 12, 30])
async def test_a_worker_killed_at_any_moment_loses_nothing_that_it_acknowledged(
    place: Place, bench: Bench, acknowledged: int
) -> None:
    command = (sys.executable, "-m", "tests.support.ingest_child", msgspec.json.encode(place).decode(), "stream")
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert child.stdout
    for _ in range(acknowledged):
        last = int(await child.stdout.readline())
    child.kill()
    last = max([last, *map(int, (await child.communicate())[0].split())])

    await finish(place, bench)

    index = await place.open_index(write=False)
    stored = await index.documents(ACCOUNT, SOURCE)
    await index.close()
    rounds = dict.fromkeys(range(max(0, last - 6), last + 1))
    # The next one may have been committed just before it could be said.
    ((name, unsaid),) = documents(numbered(last + 1)).items()
    if stored.get(name) == unsaid.fingerprint:
        rounds[last + 1] = None
    await check(place, bench, documents(*map(numbered, rounds)))


def numbered(number: int) -> SourceDocument:
    """What the streaming child submits as its so-manieth source."""
    return source(f"s{number % 7}", text(f"round{number}", 4))

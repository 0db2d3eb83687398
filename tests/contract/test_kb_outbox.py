"""The transactional outbox on both dialects, over an embedded index."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import select, update

from contracts.errors import ConfigError, StageFailed
from contracts.ports import Embeddable, WritableIndex
from contracts.records import ModelRef
from corpora.knowledge_base.outbox import OutboxWorker, behind
from corpora.knowledge_base.reembed import rewrite
from corpora.knowledge_base.types import ChunkText, Entity
from corpora.knowledge_base.writing import note_published
from database.engine import Database
from database.tables import kb_outbox
from index.embedded.index import EmbeddedIndex
from models.deterministic import DeterministicEmbedder
from tests.support.kb import ACME, Base, base_over
from tests.support.waiting import until

SOURCE = "strata://kb"


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[EmbeddedIndex]:
    opened = await EmbeddedIndex.open(tmp_path / "index", write=True)
    yield opened
    await opened.close()


@pytest.fixture
def base(index: EmbeddedIndex, database: Database) -> Base:
    return base_over(index, database)


class FakeFailingIndex:
    """An index that refuses to store some documents; all else is a real one's."""

    def __init__(self, index: WritableIndex, refuses: str) -> None:
        self._index = index
        self.refuses = refuses

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        if any(each.document.document_id == self.refuses for each in documents):
            raise StageFailed("The index is down.")
        await self._index.put(account_id, source_id, documents, model)

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        await self._index.drop(account_id, source_id, document_ids)


def worker_on(index: object, base: Base) -> OutboxWorker:
    @asynccontextmanager
    async def writer() -> AsyncIterator[WritableIndex]:
        yield index  # type: ignore[misc]

    return OutboxWorker(base.kb.store.database, writer, DeterministicEmbedder(32), base.kb.config)


async def dresses(base: Base, *names: str) -> None:
    for name in names:
        await base.add(Entity(name, "garment", "published"), f"a {name} dress")


async def test_the_outbox_is_empty_once_the_index_has_caught_up(base: Base, database: Database) -> None:
    await dresses(base, "red", "blue")
    assert (await behind(database)).waiting == 2
    assert await base.worker.drain() == 2
    assert (await behind(database)).waiting == 0
    assert await base.worker.drain() == 0


async def test_what_fails_is_tried_again_and_keeps_nothing_else_from_the_index(
    base: Base, index: EmbeddedIndex, database: Database
) -> None:
    await dresses(base, "red", "blue", "green")
    failing = FakeFailingIndex(index, "blue")
    worker = worker_on(failing, base)
    assert await worker.drain() == 2
    state = await behind(database, "acme")
    assert (state.waiting, state.failing, state.error) == (1, 1, "RET-5004")
    assert (await behind(database, "rival")).waiting == 0
    assert set(await index.documents("acme", SOURCE)) == {"red", "green"}
    failing.refuses = ""
    assert await worker.drain() == 0  # Not before its pause is over.
    async with database.writing() as connection:
        await connection.execute(update(kb_outbox).values(due_at=0))
    assert await worker.drain() == 1
    assert set(await index.documents("acme", SOURCE)) == {"red", "green", "blue"}


async def test_an_entity_that_changes_while_it_is_written_is_written_again(
    base: Base, index: EmbeddedIndex, database: Database
) -> None:
    await dresses(base, "red")

    class FakeChangingIndex(FakeFailingIndex):
        """While it stores the document, somebody else withdraws the entity."""

        async def put(self, *args: object) -> None:
            await super().put(*args)  # type: ignore[arg-type]
            await base.kb.set_status(ACME, ["red"], "draft")

    assert await worker_on(FakeChangingIndex(index, ""), base).drain() == 2
    assert await index.documents("acme", SOURCE) == {}


async def test_a_worker_that_lost_its_claim_has_its_entity_written_once_more(
    base: Base, index: EmbeddedIndex, database: Database
) -> None:
    """Its write may have come after that of the one who took over, and have brought back what was old."""
    await dresses(base, "red")

    class FakeSlowIndex(FakeFailingIndex):
        """Before it stores what it was given, its worker's claim runs out, and another does the work and more."""

        async def put(self, *args: object) -> None:
            if self.refuses:
                self.refuses = ""
                async with database.writing() as connection:
                    await connection.execute(update(kb_outbox).values(claimed_until=0))
                await base.kb.upsert_chunks(ACME, [ChunkText("red-0", "red", "newer text")])
                await base.worker.drain()
            await super().put(*args)  # type: ignore[arg-type]

    slow = FakeSlowIndex(index, "anything")
    await worker_on(slow, base).drain()
    assert (await behind(database)).waiting == 0
    nodes = await index.meta("acme", ["strata://kb/red/red-0"])
    assert nodes["strata://kb/red/red-0"].abstract == "newer text"


async def test_a_claim_that_is_held_is_left_alone(base: Base, database: Database) -> None:
    await dresses(base, "red")
    assert len(await base.worker._claim()) == 1
    assert await worker_on(object(), base).drain() == 0


async def test_run_catches_up_when_it_is_woken_and_ends_when_it_is_stopped(base: Base, database: Database) -> None:
    running = asyncio.create_task(base.worker.run())
    await dresses(base, "red")
    base.worker.wake()

    async def caught_up() -> bool:
        return (await behind(database)).waiting == 0

    await until(caught_up)
    base.worker.stop()
    await running


async def test_chunks_of_another_version_are_embedded_anew_and_only_those(
    base: Base, database: Database, tmp_path: Path
) -> None:
    """K4, acceptance 1: another model is another version, and re-embedding can be stopped and run again."""
    await dresses(base, "red", "blue", "green", "grey")
    await base.kb.set_status(ACME, ["grey"], "draft")
    await base.worker.drain()
    embedder = DeterministicEmbedder(16)
    embedder._model = ModelRef("deterministic-v1", "2", 16)
    other = await EmbeddedIndex.open(tmp_path / "other", write=True)
    begun = FakeFailingIndex(other, "green")
    begun.documents = other.documents  # type: ignore[attr-defined]
    few = base.kb.config.model_copy(update={"outbox": base.kb.config.outbox.model_copy(update={"batch": 1})})
    with pytest.raises(StageFailed):
        await rewrite(database, begun, embedder, few)  # type: ignore[arg-type]
    told: list[int] = []
    report = await rewrite(database, other, embedder, few, told.append)
    assert (report.entities, report.chunks, sum(told)) == (2, 2, 2)  # blue came before green and is done.
    assert (await rewrite(database, other, embedder, few)).entities == 0
    assert await other.model() == embedder.model
    versions = {name: (await base.kb.chunks(ACME, name))[0].embedding_version for name in ("red", "green", "grey")}
    assert versions == {"red": "2", "green": "2", "grey": "1"}
    newer = base_over(other, database, embedder)
    assert (await newer.kb.search("a red dress", ACME)).results[0].entity_id == "red"
    await base.kb.delete_entities(ACME, ["red"])
    assert (await rewrite(database, other, embedder, few)).removed == 1
    await other.close()


async def test_a_worker_on_an_empty_index_fills_it_by_itself(base: Base, database: Database, tmp_path: Path) -> None:
    """Of other dimensions, for instance, or after its folder was lost; the outbox holds nothing of that."""
    await dresses(base, "red", "blue")
    await base.worker.drain()
    other = await EmbeddedIndex.open(tmp_path / "other", write=True)
    worker = base_over(other, database, DeterministicEmbedder(16)).worker
    running = asyncio.create_task(worker.run())

    async def filled() -> bool:
        return set(await other.documents("acme", SOURCE)) == {"red", "blue"}

    await until(filled)
    worker.stop()
    await running
    await other.close()


async def test_a_worker_of_another_version_finds_by_itself_what_to_embed_anew(base: Base, database: Database) -> None:
    """K4: what changed between a re-embedding and the start with the new model is not forgotten."""
    await dresses(base, "red", "blue")
    await base.worker.drain()
    assert await note_published(database, base.kb.model) == 0
    assert await note_published(database, ModelRef("deterministic-v1", "2", 32)) == 2
    async with database.reading() as connection:
        assert len((await connection.execute(select(kb_outbox))).all()) == 2


async def test_an_index_that_cannot_be_opened_for_a_while_ends_no_worker(
    base: Base, index: EmbeddedIndex, database: Database
) -> None:
    attempts = 0

    @asynccontextmanager
    async def writer() -> AsyncIterator[WritableIndex]:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("no such host")
        yield index

    quick = base.kb.config.model_copy(update={"outbox": base.kb.config.outbox.model_copy(update={"poll_s": 0.01})})
    worker = OutboxWorker(database, writer, DeterministicEmbedder(32), quick)
    await dresses(base, "red")
    running = asyncio.create_task(worker.run())

    async def caught_up() -> bool:
        return (await behind(database)).waiting == 0

    await until(caught_up)
    worker.stop()
    await running
    assert attempts >= 3


async def test_an_index_of_another_model_keeps_the_notes_and_costs_them_no_time(
    base: Base, index: EmbeddedIndex, database: Database
) -> None:
    """K4: they are done as soon as the model fits."""
    await dresses(base, "red")
    await base.worker.drain()
    await dresses(base, "blue")
    with pytest.raises(ConfigError):
        await base_over(index, database, DeterministicEmbedder(16)).worker.drain()
    assert await base.worker.drain() == 1

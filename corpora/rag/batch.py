"""One batch of the durable ingest: each step is done for all its sources together, and one by one where that fails."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Literal

import msgspec
import numpy as np

from contracts.errors import RequestError, StrataError
from contracts.ports import Embeddable, Embedder, Vectors
from contracts.records import Document
from corpora.rag.documents import SourceChunker
from corpora.rag.ingest_config import IngestQueueConfig
from corpora.rag.ingest_rows import Step
from corpora.rag.jobs import Done, Job, Jobs
from corpora.rag.store import IndexStore
from index.embedding import embed_nodes, embedding_texts

# Sources that fail alone, one after the other, after which it is taken that not they are at fault.
_OUTAGE = 3
# What is older than this share of a lease is confirmed before anything is written.
_FRESH = 0.25


class Outcome(msgspec.Struct, frozen=True):
    """How one try of a job ended.

    Args:
        job: The job.
        result: Stored or removed; nothing to do, because it was stored so; to be tried again; or put aside.
        step: What failed.
        reason: Why, without any text of the source.
    """

    job: Job
    result: Literal["done", "unchanged", "retry", "dead"]
    step: Step = ""
    reason: str = ""


class Item(msgspec.Struct, frozen=True):
    """A job on its way; a document once it is cut, vectors once it is embedded."""

    job: Job
    document: Document | None = None
    vectors: Vectors | None = None
    expires_at: int = 0

    def embeddable(self) -> Embeddable:
        """What to write."""
        assert self.document is not None  # noqa: S101
        assert self.vectors is not None  # noqa: S101
        return Embeddable(self.document, self.vectors)


Work = Callable[[Sequence[Item]], Awaitable[Sequence[Item]]]


class Batch:
    """Jobs that one worker has claimed.

    Args:
        claimed: The jobs, each of another source.
        owner: Who has claimed them.
        jobs: Where they are noted.
        chunker: Cuts sources.
        embedder: Makes vectors.
        config: How many texts are embedded together, and how long leases are.
        told: Told how each job ended.
    """

    def __init__(
        self,
        claimed: Iterable[Job],
        owner: str,
        jobs: Jobs,
        chunker: SourceChunker,
        embedder: Embedder,
        config: IngestQueueConfig,
        told: Callable[[Outcome], None],
    ) -> None:
        self._owner = owner
        self._jobs = jobs
        self._chunker = chunker
        self._embedder = embedder
        self._config = config
        self._told = told
        self._clock = asyncio.get_running_loop().time
        self._confirmed = self._clock()
        self.held = {job.id: job for job in claimed}
        self.nodes = 0
        self.trouble: tuple[Step, str] | None = None

    async def run(self, store: IndexStore) -> None:
        """Do all that can be done; what is left in ``held`` was not at fault, and ``trouble`` says what was.

        Raises:
            DatabaseDown: It can't be noted what was done.
        """
        items = [Item(job) for job in self.held.values()]
        for group in _grouped(item for item in items if item.job.action == "delete"):
            await self._written("delete", group, lambda some: self._delete(store, some))
        cut = await self._cut([item.job for item in items if item.job.action == "put"])
        new = [item for group in _grouped(cut) for item in await self._new(store, group)]
        for group in _grouped(await self._together("embed", new, self._embed)):
            await self._written("write", group, lambda some: self._write(store, some))

    async def renew(self) -> None:
        """Prolong the leases; jobs that were given to another worker are no longer held.

        Raises:
            DatabaseDown: They could not be prolonged.
        """
        began = self._clock()
        kept = await self._jobs.renew(self._owner, list(self.held))
        self._confirmed = began
        for lost in self.held.keys() - kept:
            self.held.pop(lost, None)

    async def release(self, pause_s: float) -> None:
        """Give back what is still held, because of ``trouble`` or because there is no time left for it."""
        step, reason = self.trouble or ("", "")
        await self._jobs.release(self._owner, list(self.held.values()), step, reason, pause_s)
        self.held.clear()

    async def _cut(self, wanted: Sequence[Job]) -> list[Item]:
        """Each job's document; made in a thread, because it is all computing."""
        cut = []
        for job, made in await asyncio.to_thread(lambda: [(each, self._document(each)) for each in wanted]):
            if isinstance(made, Item):
                cut.append(made)
            else:
                await self._fail(job, "chunk", made)
        return cut

    def _document(self, job: Job) -> Item | Exception:
        try:
            source = job.document()
            return Item(job, self._chunker.document(job.corpus, source), expires_at=source.expires_at)
        except Exception as error:
            return error

    async def _new(self, store: IndexStore, group: Sequence[Item]) -> Sequence[Item]:
        """Those of one space that are not stored as they are."""
        alike = [item for item in group if item.document and item.document.fingerprint == item.job.stored]
        known: dict[str, str] = {}
        if alike:
            # The index has the last word; what it can't tell is written once more.
            with suppress(Exception):
                known = await store.fingerprints(*_place(group[0].job))
        same = [item for item in alike if known.get(item.job.source_id) == item.job.stored]
        await self._finish(same, "unchanged")
        return [item for item in group if item.job.id in self.held]

    async def _embed(self, items: Sequence[Item]) -> list[Item]:
        nodes = [item.document.nodes if item.document else () for item in items]
        texts = [embedding_texts(node.name, node.abstract, node.vector_texts) for own in nodes for node in own]
        vectors, _ = await embed_nodes(self._embedder, texts, self._config.embed_texts, lambda _: None)
        parts = np.split(vectors, np.cumsum([len(own) for own in nodes])[:-1])
        return [msgspec.structs.replace(item, vectors=part) for item, part in zip(items, parts, strict=True)]

    async def _write(self, store: IndexStore, items: Sequence[Item]) -> Sequence[Item]:
        documents = [item.embeddable() for item in items]
        await store.upsert(*_place(items[0].job), documents, self._embedder.model)
        self.nodes += sum(len(each.document.nodes) for each in documents)
        return items

    async def _delete(self, store: IndexStore, items: Sequence[Item]) -> Sequence[Item]:
        await store.delete(*_place(items[0].job), [item.job.source_id for item in items])
        self.nodes += len(items)
        return items

    async def _written(self, step: Step, group: Sequence[Item], work: Work) -> None:
        """Do a step that changes the index, for jobs that surely are still held, and note it."""
        if self._clock() - self._confirmed > self._config.lease_s * _FRESH:
            await self.renew()
        group = [item for item in group if item.job.id in self.held]
        await self._finish(await self._together(step, group, work), "done")

    async def _together(self, step: Step, items: Sequence[Item], work: Work) -> Sequence[Item]:
        """Do a step for all items, else for each by itself, so that only the one at fault fails."""
        if len(items) > 1:
            with suppress(Exception):
                return await work(items)
        done: list[Item] = []
        in_a_row = 0
        for item in items:
            try:
                done += await work([item])
                in_a_row = 0
            except Exception as error:
                in_a_row += await self._fail(item.job, step, error)
                if in_a_row == _OUTAGE:
                    self.trouble = step, reason_of(error)
                    break
        return done

    async def _finish(self, items: Sequence[Item], result: Literal["done", "unchanged"]) -> None:
        if items:
            await self._jobs.finish(self._owner, [_done(item) for item in items])
        for item in items:
            self._end(Outcome(item.job, result))

    async def _fail(self, job: Job, step: Step, error: Exception) -> bool:
        """Note a failure; returns whether trying again can help."""
        retry = not isinstance(error, RequestError) or error.retryable
        again = await self._jobs.fail(self._owner, job, step, reason_of(error), retry=retry)
        self._end(Outcome(job, "retry" if again else "dead", step, reason_of(error)))
        return retry

    def _end(self, outcome: Outcome) -> None:
        self.held.pop(outcome.job.id, None)
        self._told(outcome)


def reason_of(error: Exception) -> str:
    """Why something failed, for people: messages of foreign errors may hold texts of a source, so only their names."""
    return str(error) if isinstance(error, StrataError | OSError) and str(error) else type(error).__name__


def _place(job: Job) -> tuple[str, str, str]:
    return job.account_id, job.space, job.corpus


def _grouped(items: Iterable[Item]) -> list[list[Item]]:
    """Items by where they are written."""
    return [list(group) for _, group in groupby(sorted(items, key=lambda i: _place(i.job)), lambda i: _place(i.job))]


def _done(item: Item) -> Done:
    document = item.document
    if document is None:
        return Done(item.job)
    pieces = sum(not node.has_children for node in document.nodes)
    return Done(item.job, document.fingerprint, pieces, item.expires_at)

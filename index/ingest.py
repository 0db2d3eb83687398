"""Ingest: from a source's documents to the index, writing only what changed (design decision 10).

A run reads the source as a stream, compares fingerprints with what is stored, embeds and writes what is new or
different in batches, and at the end removes what the source no longer holds. Every document passes the journal's
states parsed → embedded → (by the writer) indexed → stored, or ends as failed. Whatever stops a run, the next one does
what is left: only what is stored whole counts as done.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Protocol, TypeVar, get_args

import msgspec
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from contracts.errors import ConfigError, InvalidUri, StageFailed, StrataError
from contracts.ports import Embeddable, Embedder, IndexWriter, IngestJournal, Vectors
from contracts.records import Document, Node
from contracts.uri import parse
from index.abstracts import AbstractOptions
from index.chunker import ChunkOptions
from index.embedding import embed_nodes, embedding_texts

Phase = Literal["read", "embed", "write", "remove", "optimize"]
T = TypeVar("T")


class IngestConfig(BaseModel):
    """How sources are cut up, and how much an ingest does at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chunk: ChunkOptions | None = Field(
        ChunkOptions(), description="How long texts are cut; null leaves them whole: fewer records, blurrier vectors."
    )
    abstracts: AbstractOptions = Field(AbstractOptions(), description="How long made L0 and L1 texts are.")
    read_documents: int = Field(64, ge=1, description="Documents read at a time. More: fewer switches, more memory.")
    embed_texts: int = Field(256, ge=1, description="Texts an embedder call. More: fuller batches, rarer progress.")
    write_nodes: int = Field(2048, ge=1, description="Nodes a write. More: fewer commits, more to redo after a crash.")
    give_up_after: int = Field(
        25, ge=1, description="Documents failing in a row after which the run stops: then it is not the documents."
    )
    max_problems: int = Field(1000, ge=0, description="Problems a report lists; all are counted.")


class Problem(msgspec.Struct, frozen=True):
    """Something of a source that could not be read; the rest goes on.

    Args:
        file: Its name, as the user would write it.
        line: From 1; 0 for the whole file.
        message: What is wrong, and what to do about it.
        document_id: Stored documents whose id starts with this are not removed in this run, because they may be what
            could not be read; empty means any document.
        skipped: Left out on purpose, with the reason in ``message``; protects nothing.
    """

    file: str
    line: int
    message: str
    document_id: str = ""
    skipped: bool = False


class Source(Protocol):
    """Where documents come from."""

    @property
    def source_id(self) -> str:
        """Names the source in the index for ever: a later run under the same id replaces what this one wrote."""
        ...

    def documents(self) -> Iterator[Document | Problem]:
        """All documents, in any order, each with an id and URIs that are unique in the source.

        Reads as it is asked for more, so that a source of any size passes through little memory. Called again, starts
        anew. Blocking: the caller chooses the thread.

        Raises:
            InvalidInput: The source as a whole can't be read.
        """
        ...


class Progress(Protocol):
    """Told how far an ingest is."""

    def __call__(self, phase: Phase, done: int, total: int | None, /) -> None:
        """``done`` of ``total`` documents read, texts embedded, nodes written or documents removed.

        ``total`` is ``None`` while the source's end is not known.
        """
        ...


class IngestReport(msgspec.Struct):
    """What a run did.

    Args:
        source_id: The source.
        added: Documents stored that were not there.
        changed: Documents replaced.
        unchanged: Documents whose fingerprint was the same; nothing was done for them.
        removed: Documents that the source no longer holds.
        kept: Documents that the source did not show but that a problem may hide; they were not removed.
        failed: Documents and lines that could not be read, embedded or written.
        skipped: What the source left out on purpose.
        nodes: Nodes written.
        truncated: Texts that the embedding model cut at its limit.
        problems: What failed or was skipped, the first ``max_problems`` of it.
        seconds: Wall time by phase.
    """

    source_id: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    kept: int = 0
    failed: int = 0
    skipped: int = 0
    nodes: int = 0
    truncated: int = 0
    problems: list[Problem] = []
    seconds: dict[Phase, float] = {}


def silent(phase: Phase, done: int, total: int | None, /) -> None:
    """A progress that nobody looks at."""


class Ingest:
    """Brings sources into the index.

    Args:
        writer: Stores documents whole.
        journal: Notes how far each got.
        embedder: Makes the vectors; its model must be that of the vectors already there.
        config: Batch sizes and limits.
    """

    def __init__(
        self, writer: IndexWriter, journal: IngestJournal, embedder: Embedder, config: IngestConfig | None = None
    ) -> None:
        self._writer = writer
        self._journal = journal
        self._embedder = embedder
        self._config = config or IngestConfig()

    async def run(self, account_id: str, source: Source, progress: Progress = silent) -> IngestReport:
        """Make the index hold what ``source`` holds.

        Documents that fail are reported and do not stop the rest; nothing is removed unless the source was read to
        its end.

        Args:
            account_id: The tenant to write for.
            source: What to read.
            progress: Told how far the run is.

        Raises:
            ConfigError: The embedder's model is not the one of the index.
            InvalidInput: The source as a whole can't be read.
            StageFailed: Too many documents failed one after the other; ``give_up_after`` says how many.
        """
        report = IngestReport(source.source_id, seconds=dict.fromkeys(get_args(Phase), 0.0))
        run = _Run(self._writer, self._journal, self._embedder, self._config, account_id, source, progress, report)
        await run.go()
        return report


@dataclass
class _Run:
    """One run of an ingest: what it has seen, and what waits to be written."""

    writer: IndexWriter
    journal: IngestJournal
    embedder: Embedder
    config: IngestConfig
    account_id: str
    source: Source
    progress: Progress
    report: IngestReport
    stored: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    uris: set[str] = field(default_factory=set)
    protected: set[str] = field(default_factory=set)
    pending: list[Document] = field(default_factory=list)
    pending_nodes: int = 0
    embedded_texts: int = 0
    failed_in_a_row: int = 0

    async def go(self) -> None:
        self.stored = await self.writer.documents(self.account_id, self.source.source_id)
        items = self.source.documents()
        read = 0
        while batch := await self._timed("read", asyncio.to_thread(self._next, items)):
            read += len(batch)
            self.progress("read", read, None)
            for item in batch:
                await self._take(item)
        await self._flush()
        await self._remove_vanished()
        self.progress("optimize", 0, 1)
        await self._timed("optimize", self.writer.optimize())
        self.progress("optimize", 1, 1)

    def _next(self, items: Iterator[Document | Problem]) -> list[Document | Problem]:
        return list(islice(items, self.config.read_documents))

    async def _take(self, item: Document | Problem) -> None:
        if isinstance(item, Problem):
            self._note(item)
            return
        if fault := self._fault(item):
            self._note(Problem(item.document_id, 0, fault, item.document_id))
            return
        self.seen.add(item.document_id)
        self.uris.update(node.uri for node in item.nodes)
        if self.stored.get(item.document_id) == item.fingerprint:
            self.report.unchanged += 1
            return
        self.pending.append(item)
        self.pending_nodes += len(item.nodes)
        if self.pending_nodes >= self.config.write_nodes:
            await self._flush()

    def _fault(self, document: Document) -> str:
        """What forbids to store a document; empty when nothing does."""
        if document.document_id in self.seen:
            return "This document appears twice in the source; the first one is kept."
        if not document.nodes:
            return "This document has no nodes."
        own: set[str] = set()
        for node in document.nodes:
            try:
                canonical = parse(node.uri)
            except InvalidUri as error:
                return f"{node.uri[:200]}: {error.message}"
            if canonical != node.uri:
                return f"{node.uri} is not in canonical form; write {canonical}."
            if node.uri in own or node.uri in self.uris:
                return f"{node.uri} appears twice in the source; give one of the two another name."
            if not any(text.strip() for text in _texts(node)):
                return f"{node.uri} has neither a name nor a text to search."
            own.add(node.uri)
        return ""

    async def _flush(self) -> None:
        batch, self.pending, self.pending_nodes = self.pending, [], 0
        if not batch:
            return
        try:
            await self._store(batch)
        except ConfigError:
            raise
        except Exception as error:
            if len(batch) == 1:
                await self._fail(batch[0], error)
                return
            # One by one, so that the document at fault fails alone.
            for document in batch:
                self.pending = [document]
                await self._flush()

    async def _store(self, batch: Sequence[Document]) -> None:
        source_id, ids = self.source.source_id, [document.document_id for document in batch]
        await self.journal.record(self.account_id, source_id, ids, "parsed")
        vectors, cut = await self._timed("embed", self._vectors([node for each in batch for node in each.nodes]))
        await self.journal.record(self.account_id, source_id, ids, "embedded")
        parts = np.split(vectors, np.cumsum([len(document.nodes) for document in batch])[:-1])
        embeddable = [Embeddable(document, part) for document, part in zip(batch, parts, strict=True)]
        await self._timed("write", self.writer.put(self.account_id, source_id, embeddable, self.embedder.model))
        new = sum(document_id not in self.stored for document_id in ids)
        self.report.added += new
        self.report.changed += len(ids) - new
        self.report.nodes += len(vectors)
        self.report.truncated += cut
        self.failed_in_a_row = 0
        self.progress("write", self.report.nodes, None)

    async def _vectors(self, nodes: Sequence[Node]) -> tuple[Vectors, int]:
        """A vector a node, and how many texts the model cut."""

        def told(texts: int) -> None:
            self.embedded_texts += texts
            self.progress("embed", self.embedded_texts, None)

        return await embed_nodes(self.embedder, [_texts(node) for node in nodes], self.config.embed_texts, told)

    async def _fail(self, document: Document, error: Exception) -> None:
        # Messages of foreign errors may hold the text that was indexed; those of ours and of the system do not.
        detail = str(error) if isinstance(error, StrataError | OSError) else type(error).__name__
        self._note(Problem(document.document_id, 0, f"Could not be stored: {detail}", document.document_id))
        await self.journal.record(self.account_id, self.source.source_id, [document.document_id], "failed", detail)
        self.failed_in_a_row += 1
        if self.failed_in_a_row >= self.config.give_up_after:
            raise StageFailed(
                f"{self.failed_in_a_row} documents failed one after the other, the last with {detail}",
                remedy="Mend that and run the ingest again: it goes on where it stopped.",
                stage="ingest",
            ) from error

    async def _remove_vanished(self) -> None:
        source_id = self.source.source_id
        unfinished = await self.journal.unfinished(self.account_id)
        known = {*self.stored, *(entry.document_id for entry in unfinished if entry.source_id == source_id)}
        vanished = sorted(known - self.seen)
        gone = [document_id for document_id in vanished if not document_id.startswith(tuple(self.protected))]
        self.report.kept = len(vanished) - len(gone)
        for start in range(0, len(gone), self.config.write_nodes):
            part = gone[start : start + self.config.write_nodes]
            await self._timed("remove", self.writer.drop(self.account_id, source_id, part))
            self.report.removed += sum(document_id in self.stored for document_id in part)
            self.progress("remove", start + len(part), len(gone))

    def _note(self, problem: Problem) -> None:
        if problem.skipped:
            self.report.skipped += 1
        else:
            self.report.failed += 1
            self.protected.add(problem.document_id)
        if len(self.report.problems) < self.config.max_problems:
            self.report.problems.append(problem)

    async def _timed(self, phase: Phase, work: Awaitable[T]) -> T:
        started = time.perf_counter()
        try:
            return await work
        finally:
            self.report.seconds[phase] += time.perf_counter() - started


def _texts(node: Node) -> tuple[str, ...]:
    return embedding_texts(node.name, node.abstract, node.vector_texts)

"""Writes to the embedded index: each commit shows as a whole or not at all, wherever it is interrupted.

``store`` describes the phases. A commit runs to its end even when its caller gives up, so that no two overlap.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import lancedb
import pyarrow as pa

from contracts.errors import ConfigError
from contracts.ports import Embeddable, JournalState
from contracts.records import ModelRef
from index.embedded.config import EmbeddedConfig
from index.embedded.filter_sql import one_of
from index.embedded.statistics import Terms, deltas
from index.embedded.store import Commit, Staged, Store
from index.embedded.table import NodeTable, rows
from index.rows import batches, check, refuse_foreign

_OLD = ("source_id", "document_id", "uri", "kind", "words", "bigrams")


class Writer:
    """The one writer of an index folder."""

    def __init__(self, nodes: NodeTable, store: Store, config: EmbeddedConfig) -> None:
        self._nodes = nodes
        self._store = store
        self._config = config
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        """See ``IndexWriter.put``. Documents go in commits of about ``commit_rows`` nodes.

        Raises:
            InvalidInput: Nodes and vectors do not fit together, text is not Unicode, an attribute can't be filtered by,
                a document id or URI comes twice, or a URI belongs to another source.
        """
        check(documents, model)
        for batch in batches(documents, self._config.commit_rows):
            await self._alone(self._put(account_id, source_id, batch, model))

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        """See ``IndexWriter.drop``."""
        if document_ids:
            await self._alone(self._drop(account_id, source_id, document_ids))

    async def optimize(self) -> None:
        """See ``IndexWriter.optimize``."""
        await self._alone(self._optimize())

    async def recover(self) -> None:
        """Complete or undo what a crash left half done."""
        await self._alone(self._recover())

    async def record(
        self, account_id: str, source_id: str, document_ids: Sequence[str], state: JournalState, detail: str
    ) -> None:
        """See ``IngestJournal.record``."""
        await self._alone(asyncio.to_thread(self._store.record, account_id, source_id, document_ids, state, detail))

    async def finish(self) -> None:
        """Wait for all writes under way."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        async def locked() -> None:
            async with self._lock:
                await work

        task = asyncio.create_task(locked())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _put(self, account_id: str, source_id: str, batch: Sequence[Embeddable], model: ModelRef) -> None:
        await self._recover()
        table = await self._table_for(model)
        first = self._store.next_revision()
        revisions = range(first, first + len(batch))
        new = await asyncio.to_thread(rows, account_id, source_id, batch, revisions)
        ours = _documents(source_id, [item.document.document_id for item in batch])
        uris = one_of("uri", new["uri"].to_pylist())
        account = one_of("account_id", [account_id])
        old = await table.query().where(f"{account} AND ({ours} OR {uris})").select(list(_OLD)).to_arrow()
        refuse_foreign(source_id, zip(*(old[c].to_pylist() for c in _OLD[:3]), strict=True))
        staged = [
            Staged(item.document.document_id, revision, item.document.fingerprint)
            for item, revision in zip(batch, revisions, strict=True)
        ]
        commit = Commit(account_id, source_id, False, staged, deltas(_terms(new), _terms(old)))
        number = await asyncio.to_thread(self._store.stage, commit, [item.document for item in batch], model)
        await (
            table.merge_insert(["account_id", "uri"])
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete(f"{account} AND {ours}")
            .execute(new)
        )
        await asyncio.to_thread(self._store.finish, number, commit)

    async def _drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        await self._recover()
        table = await self._nodes.get()
        terms: Iterable[Terms] = ()
        if table is not None:
            condition = f"{one_of('account_id', [account_id])} AND {_documents(source_id, document_ids)}"
            terms = _terms(await table.query().where(condition).select(list(_OLD)).to_arrow())
        commit = Commit(account_id, source_id, True, [Staged(name) for name in document_ids], deltas((), terms))
        number = await asyncio.to_thread(self._store.stage, commit, (), None)
        await self._complete(number, commit)

    async def _optimize(self) -> None:
        await self._recover()
        await self._nodes.optimize(self._config)
        await asyncio.to_thread(self._store.optimize)

    async def _recover(self) -> None:
        for number, commit in self._store.pending():
            await self._complete(number, commit)

    async def _complete(self, number: int, commit: Commit) -> None:
        table = await self._nodes.get()
        if commit.removes:
            if table is not None:
                documents = _documents(commit.source_id, [staged.document_id for staged in commit.documents])
                await table.delete(f"{one_of('account_id', [commit.account_id])} AND {documents}")
        elif table is None or not await table.count_rows(one_of("revision", commit.revisions())):
            await asyncio.to_thread(self._store.abandon, number, commit)
            return
        await asyncio.to_thread(self._store.finish, number, commit)

    async def _table_for(self, model: ModelRef) -> lancedb.AsyncTable:
        held = self._store.state.model()
        if held is None:
            return await self._nodes.create(model.dimensions)
        if held != model:
            raise ConfigError(
                f"The index holds vectors of {held.name} {held.version} ({held.dimensions} dimensions), not of "
                f"{model.name} {model.version} ({model.dimensions}).",
                field="embedder",
                remedy="Use that model, or ingest into another index folder.",
            )
        table = await self._nodes.get()
        if table is None:
            raise ConfigError(
                "The index has documents but no table of nodes: its folder is damaged.",
                field="index.path",
                remedy="Remove the folder and ingest again.",
            )
        return table


def _documents(source_id: str, document_ids: Sequence[str]) -> str:
    return f"({one_of('source_id', [source_id])} AND {one_of('document_id', document_ids)})"


def _terms(table: pa.Table) -> Iterable[Terms]:
    return map(Terms, *(table[column].to_pylist() for column in ("kind", "words", "bigrams")))

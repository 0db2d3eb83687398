"""Writes to Elasticsearch: each commit shows as a whole or not at all, wherever it is interrupted.

1. ``begin``: the account's state gets a commit with its own range of revisions, which no search shows yet;
2. its intent is kept in the ledger, then texts and nodes are written beside the old ones, and refreshed;
3. ``switch``: one write of the state shows the new revisions and hides those they replace;
4. the old records go, the ledger notes the documents, and the commit leaves the state.

What a writer left at 2 is undone, what it left at 4 completed: by the next writer of the account that finds its process
ended or its lease over.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from elasticsearch import ApiError, AsyncElasticsearch, TransportError

from contracts.errors import ConfigError, StageFailed, StrataError
from contracts.ports import Embeddable, JournalEntry, JournalState
from contracts.records import ModelRef
from index.elastic.bulk import WriteBlocked
from index.elastic.client import reason
from index.elastic.config import WriteConfig
from index.elastic.ledger import Ledger
from index.elastic.records import SWAP_TRIES, Records
from index.elastic.state import Commit, Owner, Pending, Staged, State, now
from index.elastic.versions import Version, Versions
from index.rows import batches, check

T = TypeVar("T")


class Writer:
    """A writer; its commits follow one another, and a commit runs to its end even when its caller gives up.

    Args:
        client: To the cluster.
        versions: Where is written.
        ledger: What is noted.
        config: How is written.
        changed: Told of an account after each write.
    """

    def __init__(
        self,
        client: AsyncElasticsearch,
        versions: Versions,
        ledger: Ledger,
        config: WriteConfig,
        changed: Callable[[str], None],
    ) -> None:
        self._client = client.options(request_timeout=config.request_timeout_ms / 1000)
        self._versions = versions
        self._ledger = ledger
        self._config = config
        self._changed = changed
        self._records = Records(client, versions, config)
        self._owner = Owner.here()
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        """See ``IndexWriter.put``. Documents go in commits of about ``commit_rows`` nodes.

        Raises:
            InvalidInput: Nodes and vectors do not fit together, a text is not Unicode, a value can't be filtered by, a
                document id or URI comes twice, or a URI belongs to another source.
            StageFailed: The cluster did not take it.
        """
        check(documents, model)
        for batch in batches(documents, self._config.commit_rows):
            await self._alone(account_id, lambda batch=batch: self._put(account_id, source_id, batch, model))  # type: ignore[misc]

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        """See ``IndexWriter.drop``."""
        if document_ids:
            await self._alone(account_id, lambda: self._drop(account_id, source_id, document_ids))

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        """See ``IndexWriter.documents``; first mends what a crash left, so that only what is whole counts."""

        async def mended() -> dict[str, str]:
            await self._recover(account_id, source_id)
            return await self._ledger.documents(account_id, source_id)

        return await self._alone(account_id, mended)

    async def record(
        self, account_id: str, source_id: str, document_ids: Sequence[str], state: JournalState, detail: str
    ) -> None:
        """See ``IngestJournal.record``."""

        async def recorded() -> None:
            await self._versions.prepare()
            await self._ledger.record(account_id, source_id, document_ids, state, detail)

        await self._alone(account_id, recorded)

    async def unfinished(self, account_id: str) -> list[JournalEntry]:
        """See ``IngestJournal.unfinished``."""
        return await self._alone(account_id, lambda: self._ledger.unfinished(account_id))

    async def optimize(self) -> None:
        """See ``IndexWriter.optimize``: the cluster merges by itself, only deleted records are pressed out."""
        version = await self._versions.serving()
        if version is not None:
            await self._client.indices.forcemerge(
                index=version.name, only_expunge_deletes=True, wait_for_completion=False
            )

    async def finish(self) -> None:
        """Wait for all writes under way."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _alone(self, account_id: str, work: Callable[[], Awaitable[T]]) -> T:
        async def locked() -> T:
            async with self._lock:
                try:
                    return await work()
                except (ApiError, TransportError) as error:
                    raise StageFailed(
                        f"Elasticsearch did not take a write: {reason(error)}.",
                        remedy="Run the ingest again: it goes on where it stopped.",
                        stage="ingest",
                    ) from None
                finally:
                    self._changed(account_id)

        task = asyncio.create_task(locked())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _put(self, account_id: str, source_id: str, batch: Sequence[Embeddable], model: ModelRef) -> None:
        await self._recover(account_id, source_id)
        for _ in range(SWAP_TRIES):
            version = await self._version_for(model)
            if version.closed:
                await self._records.swapped()
                continue
            names = [item.document.document_id for item in batch]
            uris = [node.uri for item in batch for node in item.document.nodes]
            old = await self._records.old(version, account_id, source_id, names, uris)
            begun = await self._begin(account_id, source_id, len(batch))
            staged = tuple(
                Staged(item.document.document_id, revision, item.document.fingerprint)
                for revision, item in enumerate(batch, begun.number)
            )
            commit = Commit(account_id, source_id, begun.number, staged, old, removes=False)
            try:
                async with self._alive(commit):
                    await self._ledger.put_commit(commit)
                    await self._records.write(version, commit, batch)
                    await self._switch(commit)
            except WriteBlocked:
                await self._undo(account_id, begun)
                await self._records.swapped()
            except StrataError:
                # What can't be undone now is at the next write.
                with suppress(StrataError, ApiError, TransportError):
                    await self._undo(account_id, begun)
                raise
            else:
                await self._complete(commit)
                return
        raise StageFailed("The index takes no writes.", remedy="See strata index list, and try again.", stage="ingest")

    async def _drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        await self._versions.prepare()
        await self._recover(account_id, source_id)
        version = await self._versions.serving_now()
        old = await self._records.old(version, account_id, source_id, document_ids, ()) if version else ()
        begun = await self._begin(account_id, source_id, 0)
        documents = tuple(map(Staged, document_ids))
        commit = Commit(account_id, source_id, begun.number, documents, old, removes=True)
        await self._ledger.put_commit(commit)
        await self._switch(commit)
        await self._complete(commit)

    async def _begin(self, account_id: str, source_id: str, revisions: int) -> Pending:
        def begin(state: State) -> State:
            self._refuse_busy(state, source_id)
            number = state.next_revision
            pending = Pending(number, number + revisions - 1, source_id, self._owner, self._lease())
            return state.begun(pending, self._config.keep_seconds)

        return (await self._ledger.change(account_id, begin)).pending[-1]

    @asynccontextmanager
    async def _alive(self, commit: Commit) -> AsyncIterator[None]:
        """Renew the lease of a commit while it is being written."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(self._config.lease_seconds / 3)
                # A try that fails is made up for by the next one.
                with suppress(StageFailed, ApiError, TransportError):
                    await self._ledger.change(
                        commit.account_id, lambda state: state.renewed(commit.number, self._owner, self._lease())
                    )

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            renewing.cancel()

    async def _switch(self, commit: Commit) -> None:
        """Show what a commit brings and hide what it replaces.

        Raises:
            StageFailed: Another writer took this one for dead, and has undone the commit.
        """
        names = [staged.document_id for staged in commit.documents]
        whole = await self._ledger.revisions(commit.account_id, commit.source_id, names)
        # Of other documents only the nodes go that moved to one of these; they are told by their newest revision.
        replaced = frozenset(whole.values()) & {old.revision for old in commit.old}

        def switch(state: State) -> State:
            pending = state.commit(commit.number)
            if pending is None or pending.owner != self._owner:
                raise StageFailed(
                    "This ingest was taken for dead, and its last commit undone.",
                    remedy="Run it again; raise index.elastic.write.lease_seconds if it was only slow.",
                    stage="ingest",
                )
            return state.switched(commit.number, replaced, self._lease())

        await self._ledger.change(commit.account_id, switch)

    async def _complete(self, commit: Commit) -> None:
        """Clear away what a shown commit has replaced; done again, it changes nothing."""
        await self._records.remove(commit.account_id, [old.id for old in commit.old])
        await self._ledger.store(commit)
        await self._end(commit.account_id, commit.number)

    async def _end(self, account_id: str, number: int) -> None:
        await self._ledger.drop_commit(account_id, number)
        await self._ledger.change(account_id, lambda state: state.ended(number, self._config.keep_seconds))

    async def _undo(self, account_id: str, pending: Pending) -> None:
        """Remove what a commit that never showed has written; what may still be on its way stays hidden."""
        await self._records.remove(account_id, await self._records.written(account_id, pending))
        await self._ledger.drop_commit(account_id, pending.number)
        await self._ledger.change(account_id, lambda state: state.abandoned(pending.number))

    async def _recover(self, account_id: str, source_id: str) -> None:
        """Complete or undo what ended writers, or this one, left half done.

        Raises:
            ConfigError: Another writer is busy with the same source.
        """
        state = (await self._ledger.states([account_id]))[account_id]
        self._refuse_busy(state, source_id)
        for pending in state.pending:
            if self._left(pending):
                commit = await self._ledger.commit(account_id, pending.number)
                if not pending.shown:
                    await self._undo(account_id, pending)
                elif commit:
                    await self._complete(commit)
                else:
                    await self._end(account_id, pending.number)

    def _refuse_busy(self, state: State, source_id: str) -> None:
        for pending in state.pending:
            if pending.source_id == source_id and not self._left(pending):
                raise ConfigError(
                    f"Process {pending.owner.pid} on {pending.owner.host} is writing source {source_id!r}.",
                    field="source",
                    remedy="Wait until it is done, or stop it.",
                )

    def _left(self, pending: Pending) -> bool:
        """Whether nobody works on a commit any more: this writer does one at a time, and others have ended."""
        return pending.owner == self._owner or pending.lease < now() or pending.owner.dead()

    async def _version_for(self, model: ModelRef) -> Version:
        await self._versions.prepare()
        version = await self._versions.serving_now()
        if version is None:
            return await self._versions.create(model, serve=True)
        held = version.meta.model
        if held == model:
            return version
        if not await self._ledger.empty():
            raise ConfigError(
                f"The index holds vectors of {held.name} {held.version} ({held.dimensions} dimensions), not of "
                f"{model.name} {model.version} ({model.dimensions}).",
                field="embedder",
                remedy="Use that model, or bring the index to this one: strata reindex.",
            )
        made = await self._versions.create(model, serve=True)
        await self._versions.drop(version)
        return made

    def _lease(self) -> int:
        return now() + int(self._config.lease_seconds * 1000)

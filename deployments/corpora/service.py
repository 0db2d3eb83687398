"""What can be asked of corpora, wherever their parts run: behind HTTP in an ingress, or in this process."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from contracts.context import RequestContext
from contracts.errors import DatabaseDown, InvalidBody, NotFound
from corpora.rag.core import Core
from corpora.rag.documents import check
from corpora.rag.ports import CorpusAdapter
from corpora.rag.queue import IngestQueue
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import Raw, Receipt, Retrieved, SourceDocument
from deployments.corpora.events import Observer, WriteAction, WriteEvent
from deployments.corpora.messages import (
    BatchAnswer,
    BatchReceipt,
    DeleteSourcesRequest,
    IngestBatchRequest,
    RefusedBody,
    RetrieveBatchRequest,
    RetrievedBatch,
)
from deployments.corpora.settings import CorporaSettings
from deployments.http_errors import as_strata_error, error_body


class Corpora:
    """The corpora of a service. Belongs to one event loop.

    Who may write is decided by a corpus's adapter, and is who may see: a ``user`` and an ``agent`` write into spaces of
    their own scope, an ``admin`` into all of its account. Sources are deleted where a retrieval with the same
    dimensions would look, and nowhere else.

    Args:
        adapters: By name.
        core: Retrieves.
        queue: Takes what is to be written.
        settings: Limits.
        observer: Told of each action.
        wake: Tells the worker that there is work; must not fail.
        close: Ends what goes on beside answers.
    """

    def __init__(
        self,
        adapters: Mapping[str, CorpusAdapter],
        core: Core,
        queue: IngestQueue,
        settings: CorporaSettings,
        observer: Observer,
        wake: Callable[[], None],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._adapters = adapters
        self._core = core
        self._queue = queue
        self._limits = settings.serving.http
        self._timeout_ms = settings.retrieve.timeout_ms
        self._observer = observer
        self._wake = wake
        self.close = close
        self._waiting = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The corpora."""
        return tuple(sorted(self._adapters))

    def check(self, corpus: str) -> None:
        """See whether there is a corpus.

        Raises:
            NotFound: There is not.
        """
        if corpus not in self._adapters:
            raise NotFound("There is no such corpus.", field="corpus", remedy=f"Use one of {', '.join(self.names)}.")

    async def ingest(self, ctx: RequestContext, corpus: str, raw: Raw, wait_ms: int = 0) -> Receipt:
        """Take one body in.

        Args:
            ctx: Who writes.
            corpus: Name of the corpus.
            raw: The body, as the corpus's adapter reads it.
            wait_ms: How long to wait until it shows, within the limits of the settings.

        Returns:
            The receipt of what is recorded durably; ``pending`` where it does not show yet.

        Raises:
            NotFound: There is no such corpus.
            RequestError: The body is refused; nothing was stored.
            DatabaseDown: Nothing was stored.
        """
        adapter = self._adapter(corpus)
        with self._told(ctx, corpus, "ingest") as counts:
            documents = await _read(adapter, ctx, raw)
            receipt = await self._queue.submit(ctx.account_id, corpus, documents, ctx.request_id)
            counts["sources"] = len(receipt.sources)
        return await self._settled(ctx, receipt, wait_ms)

    async def ingest_batch(
        self, ctx: RequestContext, corpus: str, batch: IngestBatchRequest, wait_ms: int = 0
    ) -> BatchReceipt:
        """Take several bodies in: each is judged by itself, and nothing of a refused one is stored.

        Of two bodies that hold the same source, the later one counts.

        Args:
            ctx: Who writes.
            corpus: Name of the corpus.
            batch: The bodies.
            wait_ms: As for :meth:`ingest`.

        Raises:
            NotFound: There is no such corpus.
            InvalidBody: There are too many bodies.
            DatabaseDown, Overloaded: Nothing was stored.
        """
        adapter = self._adapter(corpus)
        documents: list[SourceDocument] = []
        refused: list[RefusedBody] = []
        receipt: Receipt | None = None
        with self._told(ctx, corpus, "ingest_batch") as counts:
            _check_number(len(batch.requests), self._limits.max_bodies, "requests")
            for index, raw in enumerate(batch.requests):
                try:
                    documents += await _read(adapter, ctx, raw)
                except Exception as error:
                    told = error_body(error, ctx.request_id)
                    refused.append(RefusedBody(index, told.code, told.message, told.field, told.remedy))
            if documents:
                receipt = await self._queue.submit(ctx.account_id, corpus, documents, ctx.request_id)
            counts |= {"sources": len(receipt.sources) if receipt else 0, "refused": len(refused)}
        if receipt:
            receipt = await self._settled(ctx, receipt, wait_ms)
        return BatchReceipt(ctx.request_id, corpus, receipt, tuple(refused))

    async def delete(
        self, ctx: RequestContext, corpus: str, request: DeleteSourcesRequest, wait_ms: int = 0
    ) -> Receipt:
        """Remove sources from where a retrieval with the same dimensions would look.

        Args:
            ctx: Who deletes.
            corpus: Name of the corpus.
            request: The sources, and the corpus's dimensions.
            wait_ms: As for :meth:`ingest`.

        Raises:
            NotFound: There is no such corpus. Sources that do not exist are as good as removed.
            RequestError: A dimension is missing or wrong, or the caller may not look there; nothing was removed.
            DatabaseDown: Nothing was removed.
        """
        adapter = self._adapter(corpus)
        with self._told(ctx, corpus, "delete") as counts:
            _check_number(len(request.source_ids), self._limits.max_deletions, "source_ids")
            scope = adapter.build_retrieve_filter(ctx, {**request.dimensions, "options": {}})
            receipt = await self._queue.submit_deletes(
                ctx.account_id, corpus, scope.space, request.source_ids, ctx.request_id
            )
            counts["sources"] = len(receipt.sources)
        return await self._settled(ctx, receipt, wait_ms)

    async def receipt(self, ctx: RequestContext, corpus: str, receipt_id: str) -> Receipt:
        """What became of a submission.

        Raises:
            NotFound: There is no such corpus, or no such receipt (any more).
            DatabaseDown: It can't be told now.
        """
        self.check(corpus)
        found = await self._queue.receipt(ctx.account_id, receipt_id, ctx.request_id)
        if found is None or found.corpus != corpus:
            raise NotFound(
                "There is no such receipt.",
                field="receipt_id",
                remedy="Receipts of finished work are kept for some days.",
            )
        return found

    async def retrieve(self, ctx: RequestContext, corpus: str, request: RetrieveRequest) -> Retrieved:
        """See :meth:`corpora.rag.core.Core.retrieve`.

        Raises:
            NotFound: There is no such corpus.
            StrataError: As there.
        """
        self.check(corpus)
        return await self._core.retrieve(ctx, corpus, request)

    async def retrieve_batch(self, ctx: RequestContext, corpus: str, batch: RetrieveBatchRequest) -> RetrievedBatch:
        """Answer several retrievals side by side, under one deadline; each fails by itself.

        Raises:
            NotFound: There is no such corpus.
            InvalidBody: There are too many.
        """
        self.check(corpus)
        _check_number(len(batch.requests), self._limits.max_retrievals, "requests")
        longest = min(batch.timeout_ms or self._timeout_ms, self._timeout_ms)

        async def one(request: RetrieveRequest) -> BatchAnswer:
            timeout = min(request.timeout_ms or longest, longest)
            try:
                bounded = request.model_copy(update={"timeout_ms": timeout})
                return BatchAnswer(await self._core.retrieve(ctx, corpus, bounded))
            except Exception as error:
                return BatchAnswer(error=error_body(error, ctx.request_id))

        return RetrievedBatch(ctx.request_id, corpus, tuple(await asyncio.gather(*map(one, batch.requests))))

    def _adapter(self, corpus: str) -> CorpusAdapter:
        self.check(corpus)
        return self._adapters[corpus]

    @contextmanager
    def _told(self, ctx: RequestContext, corpus: str, action: WriteAction) -> Iterator[dict[str, int]]:
        """Tell of a write, however the block ends; the block fills in how many sources it was."""
        started, counts, outcome = time.perf_counter(), dict[str, int](), "abandoned"
        try:
            yield counts
            outcome = "ok"
        except Exception as error:
            outcome = as_strata_error(error).code
            raise
        finally:
            latency = (time.perf_counter() - started) * 1000
            self._observer.wrote(
                WriteEvent(ctx.request_id, ctx.account_id, corpus, action, outcome, latency_ms=latency, **counts)
            )

    async def _settled(self, ctx: RequestContext, receipt: Receipt, wait_ms: int) -> Receipt:
        """The receipt after a while. It is recorded: whatever goes wrong in waiting is no error any more."""
        self._wake()
        if not wait_ms or self._waiting >= self._limits.max_waiting:
            return receipt
        self._waiting += 1
        try:
            seconds = min(wait_ms, self._limits.max_wait_ms) / 1000
            settled = await self._queue.settled(ctx.account_id, receipt.receipt_id, seconds)
        except DatabaseDown:
            return receipt
        finally:
            self._waiting -= 1
        return msgspec.structs.replace(settled, request_id=ctx.request_id) if settled else receipt


async def _read(adapter: CorpusAdapter, ctx: RequestContext, raw: Raw) -> Sequence[SourceDocument]:
    """What an adapter makes of a body, once it is sure that it can be stored; large ones take a while."""

    def read() -> Sequence[SourceDocument]:
        documents = adapter.build_ingest_documents(ctx, raw)
        for document in documents:
            check(document)
        return documents

    return await asyncio.to_thread(read)


def _check_number(number: int, most: int, field: str) -> None:
    if number > most:
        raise InvalidBody(f"{field} has more than {most} items.", field=field, remedy="Send several requests.")

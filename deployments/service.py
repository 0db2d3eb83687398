"""``search_memory`` and ``read_memory`` over a chain and a reader, wherever those run (C1)."""

import time
from typing import TypeVar

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import ReadForbidden
from contracts.hits import RetrievedBlock, SeedHit
from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ReadBatchResponse, ReadMemoryResponse, SearchMemoryResponse
from contracts.stages import Observer, ReadRequest, ReadResult, Stage
from contracts.trace import ReadTrace
from contracts.uri import parse
from deployments.settings import Settings
from stages.chain import Chain
from stages.guarded import Guarded
from stages.redaction import Redactor
from stages.run import Silent
from stages.shapes import FITS

Hit = TypeVar("Hit", SeedHit, RetrievedBlock)


class Service:
    """The two public walks.

    Args:
        chain: Searches.
        reader: Reads; ``self.reader`` is the same behind its circuit breaker.
        settings: Time for one read, batch or not, when the reader's circuit opens, and what is masked.
        observer: Told what the reader does, and where that circuit stands.
    """

    def __init__(
        self,
        chain: Chain,
        reader: Stage[ReadRequest, ReadResult],
        settings: Settings,
        observer: Observer | None = None,
    ) -> None:
        self.chain = chain
        self._observer = observer or Silent()
        self._redactor = Redactor(settings.redaction)
        self._read_timeout = settings.server.read_timeout_ms / 1000
        self.reader: Stage[ReadRequest, ReadResult] = Guarded(
            "reader", reader, self._read_timeout, settings.chain.breaker, self._observer, FITS["reader"]
        )

    async def search(self, ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        """Search; reads no L1 and no L2.

        Raises:
            RequestError: The caller is at fault.
        """
        answer = await self.chain.search(ctx, request)
        answer.hits = tuple(map(self._shown, answer.hits))
        answer.seed_hits = tuple(map(self._shown, answer.seed_hits))
        return answer

    async def read(self, ctx: RequestContext, request: ReadMemoryRequest) -> ReadMemoryResponse:
        """Read one node.

        Raises:
            InvalidUri: The URI is malformed.
            ReadForbidden: It may not be read or does not exist (C22).
            StageError: The reader failed.
        """
        uri = parse(request.uri)
        wanted = ReadRequest((uri,), request.level, request.expand_relations, request.max_relations)
        result = await self._read(ctx, wanted)
        if not result.blocks:
            raise ReadForbidden("You may not read this URI.", field="uri")
        return ReadMemoryResponse(ctx.request_id, result.blocks[0], ReadTrace(result.read_ms, result.relations_ms))

    async def read_batch(self, ctx: RequestContext, request: ReadBatchRequest) -> ReadBatchResponse:
        """Read several nodes; those that may not be read are named, the rest are answered.

        Raises:
            StageError: The reader failed.
        """
        result = await self._read(ctx, ReadRequest(tuple(request.uris), request.level))
        return ReadBatchResponse(
            ctx.request_id, result.blocks, result.forbidden, ReadTrace(result.read_ms, result.relations_ms)
        )

    def _shown(self, hit: Hit) -> Hit:
        """A hit as it may leave: here, and not in a stage, whose degradation would let it pass as it is."""
        abstract = self._redactor.shown(hit.abstract or "", "L0")
        return hit if abstract == (hit.abstract or "") else msgspec.structs.replace(hit, abstract=abstract)

    async def _read(self, ctx: RequestContext, request: ReadRequest) -> ReadResult:
        started = time.perf_counter()
        result = await self.reader(ctx, Deadline.after(self._read_timeout), request)
        self._observer.stage("reader", time.perf_counter() - started, len(request.uris), len(result.blocks))
        return result

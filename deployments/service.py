"""``search_memory`` and ``read_memory`` over a chain and a reader, wherever those run (C1)."""

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import ReadForbidden
from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import ReadBatchResponse, ReadMemoryResponse, SearchMemoryResponse
from contracts.stages import ReadRequest, ReadResult, Stage
from contracts.trace import ReadTrace
from contracts.uri import parse
from stages.chain import Chain


class Service:
    """The two public walks.

    Args:
        chain: Searches.
        reader: Reads.
        read_timeout_ms: Time for one read, batch or not.
    """

    def __init__(self, chain: Chain, reader: Stage[ReadRequest, ReadResult], read_timeout_ms: int) -> None:
        self._chain = chain
        self._reader = reader
        self._read_timeout = read_timeout_ms / 1000

    async def search(self, ctx: RequestContext, request: SearchMemoryRequest) -> SearchMemoryResponse:
        """Search; reads no L1 and no L2.

        Raises:
            RequestError: The caller is at fault.
        """
        return await self._chain.search(ctx, request)

    async def read(self, ctx: RequestContext, request: ReadMemoryRequest) -> ReadMemoryResponse:
        """Read one node.

        Raises:
            InvalidUri: The URI is malformed.
            ReadForbidden: It may not be read or does not exist (C22).
            StageError: The reader failed.
        """
        uri = parse(request.uri)
        result = await self._read(
            ctx, ReadRequest((uri,), request.level, request.expand_relations, request.max_relations)
        )
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

    async def _read(self, ctx: RequestContext, request: ReadRequest) -> ReadResult:
        return await self._reader(ctx, Deadline.after(self._read_timeout), request)

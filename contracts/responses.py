"""Response bodies (seed 1 §4.1). msgspec encodes them without rebuilding; their JSON Schema feeds the OpenAPI."""

import msgspec

from contracts.hits import RetrievedBlock, SeedHit
from contracts.query import TypedQuery
from contracts.stages import NextActions
from contracts.trace import Degradation, ReadTrace, ThinkingTrace, Trace


class SearchMemoryResponse(msgspec.Struct):
    """Answer of ``search_memory``. ``retryable`` marks an answer emptied by a failing recall (C30)."""

    request_id: str
    typed_queries: tuple[TypedQuery, ...]
    seed_hits: tuple[SeedHit, ...]
    hits: tuple[RetrievedBlock, ...]
    next_actions: NextActions
    trace: Trace
    thinking_trace: ThinkingTrace | None = None
    degraded: tuple[Degradation, ...] = ()
    retryable: bool = False


class ReadMemoryResponse(msgspec.Struct):
    """Answer of ``read_memory``."""

    request_id: str
    block: RetrievedBlock
    trace: ReadTrace


class ReadBatchResponse(msgspec.Struct):
    """Answer of ``read_batch``: blocks in the order asked, without those in ``forbidden``."""

    request_id: str
    blocks: tuple[RetrievedBlock, ...]
    forbidden: tuple[str, ...]
    trace: ReadTrace


class ErrorBody(msgspec.Struct):
    """Every error answer. ``field`` and ``remedy`` say what to mend."""

    request_id: str
    code: str
    message: str
    field: str = ""
    remedy: str = ""
    stage: str = ""
    retryable: bool = False

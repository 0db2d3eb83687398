"""Whether what a stage answered has the shape that its request asks for: garbage of one stage must not break the next.

A later stage may only order, drop and cut: what it answers comes from what it was given.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from contracts.hits import NodeHit
from contracts.query import CONTEXT_TYPES
from contracts.stages import (
    AssembleRequest,
    Assembly,
    EmbedRequest,
    ExpandRequest,
    ExpandResult,
    Plan,
    PlanRequest,
    QueryVectors,
    ReadRequest,
    ReadResult,
    RecheckRequest,
    RecheckResult,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
)


def _plan(request: PlanRequest, answer: Plan) -> bool:
    kinds = [query.context_type for query in answer.queries]
    return 0 < len(kinds) == len(set(kinds)) <= len(CONTEXT_TYPES)


def _vectors(request: EmbedRequest, answer: QueryVectors) -> bool:
    whole = len(answer.data) == 4 * answer.rows * answer.model.dimensions
    return answer.rows == len(request.texts) and whole and bool(np.isfinite(answer.unpack()).all())


def _seeds(request: SeedRequest, answer: SeedResult) -> bool:
    return len(answer.hits) == len(request.queries)


def _expanded(request: ExpandRequest, answer: ExpandResult) -> bool:
    return len(answer.hits) == len(request.queries)


def _subset(request: RecheckRequest | RerankRequest, answer: RecheckResult | RerankResult) -> bool:
    return len(answer.hits) == len(request.hits) and all(
        _uris(kept) <= _uris(given) for kept, given in zip(answer.hits, request.hits, strict=True)
    )


def _assembly(request: AssembleRequest, answer: Assembly) -> bool:
    given = {hit.uri for hits in request.hits for hit in hits}
    return len(answer.blocks) <= request.limit and {block.uri for block in answer.blocks} <= given


def _read(request: ReadRequest, answer: ReadResult) -> bool:
    described = [node.uri for node in answer.nodes]
    return len(answer.blocks) <= len(request.uris) and (
        not request.describe or described == [block.uri for block in answer.blocks]
    )


def _uris(hits: Iterable[NodeHit]) -> set[str]:
    return {hit.uri for hit in hits}


FITS: Mapping[str, Callable[[Any, Any], bool]] = {
    "planner": _plan,
    "embedder": _vectors,
    "seed_search": _seeds,
    "expander": _expanded,
    "rechecker": _subset,
    "reranker": _subset,
    "assembler": _assembly,
    "reader": _read,
}

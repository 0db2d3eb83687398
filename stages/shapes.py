"""Whether what a stage answered has the shape that its request asks for: garbage of one stage must not break the next.

A later stage may only order, drop and cut. The rechecker and the reranker name places in what they were given, so they
can't do anything else; what the assembler answers must come from what it was given.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

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


def _kept(request: RecheckRequest, answer: RecheckResult) -> bool:
    return _places(request.hits, answer.kept) and all(kept == sorted(kept) for kept in answer.kept)


def _ranked(request: RerankRequest, answer: RerankResult) -> bool:
    places = [[each.place for each in ranked] for ranked in answer.ranked]
    return _places(request.hits, places) and all(isfinite(each.score) for found in answer.ranked for each in found)


def _places(given: Sequence[Sequence[object]], places: Sequence[Sequence[int]]) -> bool:
    """Whether these are places of what was given, none of them twice."""
    return len(given) == len(places) and all(
        len(set(found)) == len(found) and set(found) <= set(range(len(each)))
        for each, found in zip(given, places, strict=True)
    )


def _assembly(request: AssembleRequest, answer: Assembly) -> bool:
    given = {hit.uri for hits in request.hits for hit in hits}
    return len(answer.blocks) <= request.limit and {block.uri for block in answer.blocks} <= given


def _read(request: ReadRequest, answer: ReadResult) -> bool:
    described = [node.uri for node in answer.nodes]
    return len(answer.blocks) <= len(request.uris) and (
        not request.describe or described == [block.uri for block in answer.blocks]
    )


FITS: Mapping[str, Callable[[Any, Any], bool]] = {
    "planner": _plan,
    "embedder": _vectors,
    "seed_search": _seeds,
    "expander": _expanded,
    "rechecker": _kept,
    "reranker": _ranked,
    "assembler": _assembly,
    "reader": _read,
}

"""Garbage of one stage costs its own part of the answer and breaks no other (C30)."""

from typing import Any

import numpy as np
import pytest

from contracts.query import TypedQuery
from contracts.records import ModelRef
from contracts.stages import (
    AssembleRequest,
    Assembly,
    EmbedRequest,
    ExpandRequest,
    ExpandResult,
    NextActions,
    Plan,
    PlanRequest,
    QueryVectors,
    Ranked,
    ReadRequest,
    ReadResult,
    RecheckRequest,
    RecheckResult,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
)
from contracts.trace import STAGES
from stages.assembler import block
from stages.shapes import FITS
from tests.support.hits import node_hit

ONE, TWO, THREE, OTHER = (node_hit(f"strata://shared/{name}") for name in ("one", "two", "three", "other"))
QUERIES = (TypedQuery("text", "memory"), TypedQuery("text", "skill"))
MODEL = ModelRef("m", "1", 2)
HITS = [[ONE, THREE], [TWO]]


def vectors(*rows: list[float], count: int | None = None) -> QueryVectors:
    packed = QueryVectors.pack(MODEL, np.array(rows, dtype=np.float32))
    return QueryVectors(MODEL, len(rows) if count is None else count, packed.data)


def assembly(*hits: Any) -> Assembly:
    return Assembly(tuple(map(block, hits)), NextActions())


REQUESTS: dict[str, Any] = {
    "planner": PlanRequest("text", 10),
    "embedder": EmbedRequest(("text", "text")),
    "seed_search": SeedRequest(QUERIES, None, None, 10),
    "expander": ExpandRequest(QUERIES, None, None, HITS),
    "rechecker": RecheckRequest.of(QUERIES, None, HITS),
    "reranker": RerankRequest(QUERIES, HITS),
    "assembler": AssembleRequest(QUERIES, HITS, limit=2),
    "reader": ReadRequest(("strata://shared/one",)),
}


@pytest.mark.parametrize(
    ("stage", "answer"),
    [
        ("planner", Plan(QUERIES)),
        ("embedder", vectors([1, 0], [0, 1])),
        ("seed_search", SeedResult([[ONE, OTHER], []], more=False)),
        ("expander", ExpandResult([[ONE, OTHER], [TWO]])),
        ("rechecker", RecheckResult([[0], []])),
        ("rechecker", RecheckResult([[0, 1], [0]])),
        ("reranker", RerankResult([[Ranked(1, 0.5), Ranked(0, 0.4)], [Ranked(0, 0.3)]])),
        ("reranker", RerankResult([[], []])),
        ("assembler", assembly(ONE, TWO)),
        ("reader", ReadResult((block(ONE),))),
    ],
)
def test_what_was_asked_for_fits(stage: str, answer: Any) -> None:
    assert FITS[stage](REQUESTS[stage], answer)


@pytest.mark.parametrize(
    ("stage", "answer"),
    [
        ("planner", Plan(())),
        ("planner", Plan(QUERIES[:1] * 2)),
        ("embedder", vectors([1, 0])),
        ("embedder", vectors([1, 0], count=2)),
        ("embedder", vectors([1, 0], [float("nan"), 1])),
        ("seed_search", SeedResult([[ONE]], more=False)),
        ("expander", ExpandResult([])),
        ("rechecker", RecheckResult([[0]])),
        ("rechecker", RecheckResult([[0], [1]])),
        ("rechecker", RecheckResult([[0], [-1]])),
        ("rechecker", RecheckResult([[1, 0], []])),
        ("rechecker", RecheckResult([[0, 0], []])),
        ("reranker", RerankResult([[Ranked(0, 0.5)]])),
        ("reranker", RerankResult([[Ranked(2, 0.5)], []])),
        ("reranker", RerankResult([[Ranked(-1, 0.5)], []])),
        ("reranker", RerankResult([[Ranked(0, 0.5), Ranked(0, 0.4)], []])),
        ("reranker", RerankResult([[Ranked(0, float("nan"))], []])),
        ("assembler", assembly(ONE, OTHER)),
        ("assembler", assembly(ONE, TWO, ONE)),
        ("reader", ReadResult((block(ONE), block(TWO)))),
    ],
)
def test_anything_else_does_not(stage: str, answer: Any) -> None:
    assert not FITS[stage](REQUESTS[stage], answer)


def test_every_stage_has_a_shape() -> None:
    assert FITS.keys() == {*STAGES, "reader"}

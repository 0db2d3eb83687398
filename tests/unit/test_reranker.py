import asyncio
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import ConfigError, StageFailed
from contracts.hits import NodeHit, ScoreBreakdown
from contracts.query import TypedQuery
from contracts.stages import RerankRequest, RerankResult
from stages.reranker import Reranker, RerankerConfig
from tests.support.hits import node_hit

CTX = RequestContext("acme")
QUERIES = (TypedQuery("how to stop", "skill"), TypedQuery("how to stop", "resource"))


class FakeScorer:
    """Reads a pair's score from the end of its abstract."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, str]]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.batches.append(list(pairs))
        return np.array([passage.rsplit(" ", 1)[-1] for _, passage in pairs], dtype=np.float32)


class GatedScorer(FakeScorer):
    """Answers ``free`` batches, then waits for ``gate``."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free
        self.gate = threading.Event()

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        scores = super().score(pairs)
        if len(self.batches) > self.free:
            self.gate.wait()
        return scores


class BrokenScorer:
    """Raises or returns what it is given."""

    def __init__(self, answer: Exception | Sequence[float]) -> None:
        self.answer = answer

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return np.array(self.answer, dtype=np.float32)


def hit(name: str, score: float, rerank: float = 0.5, **fields: object) -> NodeHit:
    return node_hit(f"strata://shared/{name}", score, abstract=f"about {name} {rerank}", **fields)


class Answer(NamedTuple):
    """A result, and the hits that it makes of those that went in."""

    result: RerankResult
    hits: list[list[NodeHit]]


async def rerank(hits: list[list[NodeHit]], scorer: object, seconds: float = 60, **settings: object) -> Answer:
    stage = Reranker(RerankerConfig(**{"kind": "cross_encoder"} | settings), scorer)  # type: ignore[arg-type]
    result = await stage(CTX, Deadline.after(seconds), RerankRequest(QUERIES[: len(hits)], hits))
    return Answer(result, result.of(hits))


def names(hits: list[NodeHit]) -> list[str]:
    return [h.name for h in hits]


async def test_without_a_reranker_hits_come_back_as_they_are() -> None:
    hits = [[hit("a", 0.4), hit("b", 0.3)]]
    answer = await rerank(hits, None, kind="none")
    assert answer == (RerankResult.as_before(hits), hits)


def test_a_cross_encoder_without_a_model_is_refused_at_start() -> None:
    with pytest.raises(ConfigError) as refused:
        Reranker(RerankerConfig(kind="cross_encoder"))
    assert refused.value.field == "reranker.kind"


async def test_scored_hits_are_ordered_by_the_reranker_and_say_so() -> None:
    """C15: the parts of the score before remain in the breakdown."""
    parts = ScoreBreakdown(vector=0.3, relevance=0.4, hierarchy=0.2)
    answer = await rerank([[hit("a", 0.4, 0.1, scores=parts), hit("b", 0.3, 0.9)]], FakeScorer())
    (hits,) = answer.hits
    assert names(hits) == ["b", "a"]
    assert [h.score for h in hits] == pytest.approx([0.9, 0.1])
    assert [h.scores.rerank for h in hits] == pytest.approx([0.9, 0.1])
    assert (hits[1].scores.vector, hits[1].scores.relevance, hits[1].scores.hierarchy) == (0.3, 0.4, 0.2)
    assert (answer.result.scored, answer.result.total) == (2, 2)


async def test_the_pair_is_the_query_with_name_and_abstract() -> None:
    scorer = FakeScorer()
    await rerank([[hit("a", 0.4)]], scorer)
    assert scorer.batches == [[("how to stop", "a\nabout a 0.5")]]


async def test_the_best_hits_over_all_queries_go_first_in_one_flow() -> None:
    scorer = FakeScorer()
    hits = [[hit("a", 0.9), hit("d", 0.2)], [hit("b", 0.8), hit("c", 0.5)]]
    answer = await rerank(hits, scorer, top_n=3, batch_pairs=2)
    assert [[p.split("\n")[0] for _, p in batch] for batch in scorer.batches] == [["a", "b"], ["c"]]
    assert (answer.result.scored, answer.result.total) == (3, 3)


async def test_hits_beyond_top_n_keep_their_order_below_all_that_were_scored() -> None:
    hits = [[hit("a", 0.9, 0.2), hit("b", 0.8, 0.6), hit("c", 0.7), hit("d", 0.6)]]
    (answer,) = (await rerank(hits, FakeScorer(), top_n=2)).hits
    assert names(answer) == ["b", "a", "c", "d"]
    assert [h.score for h in answer] == pytest.approx([0.6, 0.2, 0.14, 0.12])
    assert [h.scores.rerank is None for h in answer] == [False, False, True, True]


async def test_the_weight_keeps_a_share_of_the_score_before() -> None:
    (answer,) = (await rerank([[hit("a", 0.8, 0.2), hit("b", 0.4, 0.4)]], FakeScorer(), weight=0.5)).hits
    assert names(answer) == ["a", "b"]
    assert [h.score for h in answer] == pytest.approx([0.5, 0.4])


async def test_what_is_not_scored_in_time_keeps_its_order_behind_what_is() -> None:
    scorer = GatedScorer(free=1)
    hits = [[hit(name, score, 0.5) for name, score in (("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6))]]
    answer = await rerank(hits, scorer, seconds=0.5, batch_pairs=2)
    scorer.gate.set()
    assert names(answer.hits[0]) == ["a", "b", "c", "d"]
    assert [h.scores.rerank is None for h in answer.hits[0]] == [False, False, True, True]
    assert (answer.result.scored, answer.result.total) == (2, 4)


async def test_when_nothing_is_scored_in_time_the_order_before_stands() -> None:
    hits = [[hit("a", 0.9, 0.1), hit("b", 0.8, 0.9)]]
    scorer = FakeScorer()
    answer = await rerank(hits, scorer, seconds=-1)
    assert answer == (RerankResult.as_before(hits, 2), hits)
    assert scorer.batches == []


async def test_a_batch_of_a_caller_that_gave_up_is_never_begun() -> None:
    scorer = GatedScorer(free=0)
    stage = Reranker(RerankerConfig(kind="cross_encoder"), scorer)
    request = RerankRequest(QUERIES[:1], [[hit("a", 0.9)]])
    calls = [asyncio.create_task(stage(CTX, Deadline.after(60), request)) for _ in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.wait([calls[1]])
    scorer.gate.set()
    await asyncio.gather(calls[0], calls[2])
    assert len(scorer.batches) == 2


async def test_the_hits_that_came_in_are_left_alone() -> None:
    hits = [[hit("a", 0.4, 0.1), hit("b", 0.3, 0.9)]]
    await rerank(hits, FakeScorer(), top_n=1)
    assert hits == [[hit("a", 0.4, 0.1), hit("b", 0.3, 0.9)]]


async def test_no_hits_need_no_model() -> None:
    scorer = FakeScorer()
    assert await rerank([[], []], scorer) == (RerankResult([[], []], 0, 0), [[], []])
    assert scorer.batches == []


@pytest.mark.parametrize("answer", [ValueError("the text was: secret"), [0.5, 0.5], [float("nan")]])
async def test_a_model_that_fails_or_returns_garbage_fails_the_stage_without_its_text(
    answer: Exception | Sequence[float],
) -> None:
    with pytest.raises(StageFailed) as failed:
        await rerank([[hit("secret", 0.4)]], BrokenScorer(answer))
    assert failed.value.stage == "reranker"
    assert "secret" not in str(failed.value)


SCORE = st.floats(0, 1, width=32)
LISTS = st.lists(st.lists(st.tuples(SCORE, SCORE), max_size=6), min_size=2, max_size=2)


@given(LISTS, st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.25, 1.0]))
async def test_nothing_is_lost_and_scores_fall_along_each_list_and_over_all(
    lists: list[list[tuple[float, float]]], top_n: int, batch_pairs: int, weight: float
) -> None:
    hits = [
        sorted((hit(f"{q}-{i}", s, r) for i, (s, r) in enumerate(found)), key=lambda h: -h.score)
        for q, found in enumerate(lists)
    ]
    answer = await rerank(hits, FakeScorer(), top_n=top_n, batch_pairs=batch_pairs, weight=weight)
    assert [sorted(names(found)) for found in answer.hits] == [sorted(names(found)) for found in hits]
    for found in answer.hits:
        assert all(0 <= h.score <= 1 for h in found)
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    everything = [h for found in answer.hits for h in found]
    scored = [h.score for h in everything if h.scores.rerank is not None]
    others = [h.score for h in everything if h.scores.rerank is None]
    assert len(scored) == answer.result.scored == answer.result.total == min(top_n, len(everything))
    if scored and others:
        assert min(scored) >= max(others)

"""The graph as upstream, with a language model: it orders, plans and asks again, or is done without."""

import asyncio
from typing import Any

import pytest

from contracts.deadline import Deadline
from contracts.errors import StageFailed, StageTimeout
from gateway.config import AgenticConfig, RerankConfig
from tests.support.fake_index import FakeIndex
from tests.support.gateway_graph import (
    BOTH,
    FAR,
    WORDS,
    FakeModel,
    at,
    ids,
    memory,
    search,
    upstream,
)


async def test_a_language_model_orders_all_arrays_together() -> None:
    records = [memory("a", "green tea"), memory("b", "green"), memory("t", "tea", "conversation")]
    model = FakeModel({"scores": [0.1, 0.9, 1.7]})
    answer = await search(records, model=model, enable_llm_rerank=True)
    assert [(item["id"], item["score"]) for item in answer.episodes] == [("b", 0.9), ("a", 0.1)]
    assert answer.unprocessed_messages[0]["score"] == 1.0
    assert model.asked == [{"query": "green tea", "memories": ["green tea", "green", "tea"]}]
    assert not answer.degraded


async def test_what_the_language_model_did_not_see_stays_behind() -> None:
    records = [memory(f"{n}", "green tea", vector=at(0.9 - n / 10)) for n in range(4)]
    model = FakeModel({"scores": [0.2, 0.6]})
    answer = await search(records, model=model, enable_llm_rerank=True, rerank=RerankConfig(top_n=2))
    assert ids(answer) == ["1", "0", "2", "3"]
    scores = [item["score"] for item in answer.episodes]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (None, "RET-5042"),
        (FakeModel(StageTimeout("late")), "RET-5041"),
        (FakeModel(StageFailed("down")), "RET-5004"),
        (FakeModel({"scores": [1]}), "RET-5004"),
        (FakeModel({"scores": ["1", 2]}), "RET-5004"),
        (FakeModel({"scores": [float("nan"), 0.5]}), "RET-5004"),
        (FakeModel({}), "RET-5004"),
    ],
)
async def test_without_an_answer_of_the_language_model_the_order_stands_and_says_so(model: Any, code: str) -> None:
    answer = await search([WORDS, BOTH], model=model, enable_llm_rerank=True)
    assert ids(answer) == ["both", "words"]
    ((stage, reason),) = [(part.stage, part.reason) for part in answer.degraded]
    assert (stage, reason.split(":")[0]) == ("llm_rerank", code)


class HangingModel(FakeModel):
    """A language model that answers nothing before its deadline."""

    async def ask(self, task: str, material: Any, deadline: Deadline) -> dict[str, Any]:
        try:
            async with asyncio.timeout(deadline.left()):
                await asyncio.Event().wait()
        except TimeoutError:
            raise StageTimeout("late") from None
        raise AssertionError


@pytest.mark.parametrize("method", ["hybrid", "agentic"])
async def test_a_language_model_that_hangs_costs_its_own_part_alone(method: str) -> None:
    """The answer is there by the deadline."""
    index = FakeIndex([BOTH])
    async with asyncio.timeout(5):
        answer = await search(index, model=HangingModel(), method=method, enable_llm_rerank=True, seconds=1)
    assert ids(answer) == ["both"]
    assert "llm_rerank" in {part.stage for part in answer.degraded}


@pytest.mark.parametrize("method", ["keyword", "vector"])
async def test_single_recalls_are_not_reranked(method: str) -> None:
    assert not (await search([BOTH], method=method, enable_llm_rerank=True)).degraded


BRIDGE = [
    memory("first", "Ann's manager is Zoe", vector=at(0.5)),
    memory("second", "Zoe lives in Kyoto", vector=FAR),
    memory("other", "a manager manages", vector=at(0.4)),
]
QUESTION = "which city has the manager"


async def test_agentic_asks_again_for_what_is_missing_with_the_names_it_found() -> None:
    """By rules: no first query has a word of the second memory, so only a second round can find it."""
    index = FakeIndex(BRIDGE)
    one = upstream(index, agentic=AgenticConfig(rounds=1))
    await search(index, QUESTION, on=one, method="agentic")
    assert {query.text for queries in index.recalls for query in queries} == {QUESTION}
    index = FakeIndex(BRIDGE)
    answer = await search(index, QUESTION, method="agentic")
    assert "second" in ids(answer)
    asked = [query.text for queries in index.recalls for query in queries]
    assert any("Zoe" in text and "city" in text for text in asked)
    assert not answer.degraded


async def test_agentic_is_bounded_in_rounds_and_queries() -> None:
    index = FakeIndex(BRIDGE)
    model = FakeModel(*({"enough": False, "queries": [f"q{n}a", f"q{n}b", f"q{n}c"]} for n in range(9)))
    config = AgenticConfig(rounds=3, queries=2)
    await search(index, QUESTION, method="agentic", model=model, agentic=config)
    searched = {query.text for queries in index.recalls for query in queries} - {""}
    assert searched == {QUESTION, "q0a", "q1a", "q1b", "q2a", "q2b"}
    assert len(model.asked) == 3


async def test_agentic_stops_when_the_language_model_has_enough_or_repeats_itself() -> None:
    for answers in (
        [{"queries": []}, {"enough": True, "queries": ["more"]}],
        [{"queries": [QUESTION]}, {"queries": [QUESTION.upper()]}],
    ):
        index, model = FakeIndex(BRIDGE), FakeModel(*answers)
        await search(index, QUESTION, method="agentic", model=model, agentic=AgenticConfig(rounds=5))
        assert {query.text for queries in index.recalls for query in queries} == {QUESTION}
        assert model.asked[1]["memories"]


async def test_agentic_goes_by_rules_where_the_language_model_fails() -> None:
    model = FakeModel(StageTimeout("late"), {"queries": 7})
    answer = await search(BRIDGE, QUESTION, method="agentic", model=model)
    assert [part.reason.split(":")[0] for part in answer.degraded if part.stage == "agentic"] == ["RET-5041"]
    assert "first" in ids(answer)


async def test_agentic_begins_no_round_without_time() -> None:
    answer = await search(BRIDGE, QUESTION, method="agentic", agentic=AgenticConfig(reserve_ms=60_000))
    assert [part.stage for part in answer.degraded] == ["agentic"]
    assert "first" in ids(answer)

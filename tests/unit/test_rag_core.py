"""The core under every corpus: refusals, limits, degradations, switch and shadows (R3, R6, R7, R8)."""

from typing import Any

import msgspec
import pytest

from contracts.context import SHARED_SPACE
from contracts.errors import (
    BlankQuery,
    ConfigError,
    InvalidBody,
    InvalidFilter,
    MissingDimension,
    Overloaded,
    RecallFailed,
    RequestError,
    StageDown,
    StageFailed,
    StageTimeout,
    StrataError,
    ThresholdOutOfRange,
    TopKOutOfRange,
)
from contracts.filters import And, Eq
from contracts.trace import Degradation
from corpora.rag.cache import CacheConfig
from corpora.rag.requests import RetrieveRequest
from corpora.rag.shadow import overlap
from corpora.rag.types import CorpusHit, Decision, Retrieved
from tests.support.corpora import CTX, SPACE, World, node, ranking, uri


async def retrieve(world: World, query: str = "tea", corpus: str = "notes", **fields: Any) -> Retrieved:
    dimensions = fields.pop("dimensions", {"session": "s1"})
    return await world.core.retrieve(CTX, corpus, RetrieveRequest(query=query, dimensions=dimensions, **fields))


def names(answer: Retrieved) -> list[str]:
    return [hit.source_id for hit in answer.hits]


def reasons(answer: Retrieved) -> list[str]:
    return [f"{part.stage}:{part.reason.split(':')[0]}" for part in answer.degraded]


async def test_hits_come_with_their_text_and_what_the_source_of_truth_says_of_them() -> None:
    world = World("a", "b")
    answer = await retrieve(world)
    assert (answer.request_id, answer.corpus, answer.path, answer.cached) == ("r-1", "notes", "rag", False)
    first = answer.hits[0]
    assert (first.uri, first.source_id, first.title, first.text) == (uri("a"), "a", "Title of a", "text of a")
    assert (first.start, first.end, first.updated_at, first.attrs) == (0, 9, 5, {"session": ("s1",)})
    assert (first.score, first.relevance) == (0.9, 0.9)
    assert (answer.degraded, answer.retryable) == ((), False)


async def test_a_search_is_held_to_the_corpus_its_scope_and_the_callers_filter() -> None:
    world = World("a")
    await retrieve(world, " tea ", filter={"eq": {"tags": "x"}}, top_k=50, threshold=0.7, rerank=False)
    ((ctx, query),) = world.graph.asked
    assert (ctx.account_id, ctx.owner_spaces()) == ("acme", (SHARED_SPACE, SPACE))
    assert query.condition == And(
        (
            Eq("owner_space", SPACE),
            Eq("source_id", f"corpus:notes:{SPACE}"),
            Eq("attrs.session", "s1"),
            Eq("tags", "x"),
        )
    )
    assert (query.text, query.candidates, query.threshold, query.rerank) == ("tea", 50, 0.7, False)


async def test_what_a_request_does_not_say_has_its_default() -> None:
    """R3: top_k 8, threshold 0.55."""
    world = World(*map(str, range(20)))
    answer = await retrieve(world)
    ((_, query),) = world.graph.asked
    assert (len(answer.hits), query.candidates, query.threshold, query.rerank) == (8, 50, 0.55, True)
    assert (world.config.timeout_ms, world.config.rerank_timeout_ms) == (1500, 1200)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"dimensions": {}}, MissingDimension),
        ({"query": " "}, BlankQuery),
        ({"query": "a\ud800"}, BlankQuery),
        ({"top_k": 0}, TopKOutOfRange),
        ({"top_k": 51}, TopKOutOfRange),
        ({"threshold": 1.1}, ThresholdOutOfRange),
        ({"threshold": float("nan")}, ThresholdOutOfRange),
        ({"filter": {"eq": {"account_id": "rival"}}}, InvalidFilter),
        ({"corpus": "nothing"}, InvalidBody),
        ({"dimensions": {"session": "s1", "options": {}}}, InvalidBody),
    ],
)
async def test_what_can_not_be_answered_is_refused_before_anything_is_searched(
    fields: dict[str, Any], error: type[RequestError]
) -> None:
    """R6."""
    world = World("a")
    with pytest.raises(error) as refused:
        await retrieve(world, **fields)
    assert refused.value.field
    assert (world.graph.asked, world.keyword.asked, world.reader.asked, world.switch.asked) == ([], [], [], [])
    ((event,)) = world.events.retrievals
    assert (event.outcome, event.path, event.hit_count) == (error.code, "none", 0)
    assert event.corpus == ("notes" if "corpus" not in fields else "unknown")


async def test_the_adapter_reads_dimensions_and_options_and_may_order_and_drop_but_not_add() -> None:
    world = World("a", "b", "c")
    stranger = msgspec.structs.replace((await retrieve(world)).hits[0], uri=uri("x"))
    world.corpus.raws.clear()
    world.corpus.order = lambda hits: [stranger, *reversed(hits[1:])]
    answer = await retrieve(world, options={"fresh": True}, top_k=1)
    assert names(answer) == ["c"]
    assert world.corpus.raws == [{"session": "s1", "options": {"fresh": True}}] * 2


async def test_an_adapter_that_fails_costs_the_order_and_not_the_answer() -> None:
    world = World("a", "b")

    def broken(hits: Any) -> list[CorpusHit]:
        raise ValueError("with a secret in it")

    world.corpus.order = broken
    answer = await retrieve(world)
    assert (names(answer), reasons(answer), answer.retryable) == (["a", "b"], ["corpus:RET-5004"], False)
    assert "secret" not in answer.degraded[0].reason


async def test_an_adapter_that_breaks_on_a_request_is_an_error_without_its_words() -> None:
    world = World("a")

    def broken(*_: Any) -> Any:
        raise ValueError("with a secret in it")

    world.corpus.build_retrieve_filter = broken  # type: ignore[method-assign]
    with pytest.raises(StageFailed) as failed:
        await retrieve(world)
    assert "secret" not in str(failed.value) and world.graph.asked == []


@pytest.mark.parametrize(
    "change",
    [
        {"status": "archived", "attrs": {"session": ("s2",), "source": ("b",)}},
        {"owner_space": "shared"},
        {"source_id": "strata://user:ann/other"},
    ],
)
async def test_a_hit_that_no_longer_satisfies_the_condition_is_left_out(change: dict[str, Any]) -> None:
    world = World("a", "b")
    world.reader.nodes[uri("b")] = node("b", **change)
    assert names(await retrieve(world)) == ["a"]


async def test_secrets_in_a_title_are_masked() -> None:
    world = World("a")
    attrs = node("a").attrs | {"title": ("sk-abcdefghijklmnopqrstuvwx",)}
    world.reader.nodes[uri("a")] = node("a", attrs=attrs)
    assert "sk-abc" not in (await retrieve(world)).hits[0].title


async def test_what_the_graph_lacked_is_told_with_its_reason_code() -> None:
    world = World()
    world.graph.result = ranking("a", degraded=(Degradation("reranker", "RET-5041: late", 1200),), below_threshold=3)
    world.reader.nodes[uri("a")] = node("a")
    answer = await retrieve(world)
    assert (reasons(answer), answer.retryable, answer.below_threshold) == (["reranker:RET-5041"], False, 3)
    ((event,)) = world.events.retrievals
    assert (event.outcome, event.fallback_reasons, event.below_threshold) == ("degraded", ("reranker:RET-5041",), 3)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RecallFailed("Nothing answered."), "RET-5001"),
        (StageDown("Not asked."), "RET-5042"),
        (Overloaded("No room."), "RET-4291"),
        (RuntimeError("with a secret in it"), "RET-5004"),
        (ConfigError("The index is damaged."), "RET-5004"),
    ],
)
async def test_when_the_graph_fails_the_keyword_search_answers_and_says_so(error: Exception, code: str) -> None:
    """R8, seed 3: no failing part may block the caller."""
    world = World("a", "b")
    world.keyword.result = ranking("b")
    world.graph.fail(error)
    answer = await retrieve(world)
    assert (names(answer), answer.path, reasons(answer), answer.retryable) == (
        ["b"],
        "keyword",
        [f"graph:{code}"],
        True,
    )
    assert "secret" not in answer.degraded[0].reason
    ((event,)) = world.events.retrievals
    assert (event.path, event.outcome, event.fallback_reasons) == ("keyword", "degraded", (f"graph:{code}",))


async def test_a_graph_that_hangs_is_given_up_in_time() -> None:
    world = World("a", timeout_ms=80, reader_reserve_ms=40)
    world.graph.act = world.graph.hang
    answer = await retrieve(world)
    assert (names(answer), answer.path, reasons(answer)) == (["a"], "keyword", ["graph:RET-5041"])


async def test_when_both_paths_fail_the_error_says_so() -> None:
    world = World("a")
    world.graph.fail(RecallFailed("Nothing answered."))
    world.keyword.fail(StageDown("Not asked."))
    with pytest.raises(StageDown):
        await retrieve(world)
    ((event,)) = world.events.retrievals
    assert (event.outcome, event.path) == ("RET-5042", "none")


@pytest.mark.parametrize("error", [RecallFailed("No answer."), OSError("with a secret in it")])
async def test_a_reader_that_fails_is_an_error_and_never_a_hit_without_a_check(error: Exception) -> None:
    world = World("a")
    world.reader.error = error
    with pytest.raises(StrataError) as failed:
        await retrieve(world)
    assert isinstance(failed.value, RecallFailed | StageFailed) and "secret" not in str(failed.value)


async def test_a_caller_at_fault_gets_to_know_and_no_other_path_is_tried() -> None:
    world = World("a")
    world.graph.fail(InvalidFilter("No such field.", field="filter"))
    with pytest.raises(InvalidFilter):
        await retrieve(world)
    assert world.keyword.asked == []


async def test_a_caller_may_ask_for_less_time_and_never_for_more() -> None:
    world = World("a", timeout_ms=100)
    world.graph.act = world.keyword.act = world.graph.hang
    for timeout_ms in (20, 3_600_000):
        with pytest.raises(StageTimeout):
            await retrieve(world, timeout_ms=timeout_ms)


async def test_the_switch_says_which_path_answers_a_user() -> None:
    world = World("a")
    world.switch.decision = Decision("keyword")
    answer = await retrieve(world)
    assert (answer.path, world.graph.asked, world.switch.asked) == ("keyword", [], [("notes", f"acme/{SPACE}")])
    assert (answer.degraded, world.events.retrievals[0].path) == ((), "keyword")


async def test_a_keyword_search_that_was_chosen_never_falls_back_to_a_graph_that_was_switched_off() -> None:
    world = World("a")
    world.switch.decision = Decision("keyword")
    world.keyword.fail(RecallFailed("Nothing answered."))
    with pytest.raises(RecallFailed):
        await retrieve(world)
    assert world.graph.asked == []


async def test_a_switch_that_fails_leaves_the_answer_to_the_graph() -> None:
    world = World("a")
    world.switch.error = OSError("no database")
    assert (await retrieve(world)).path == "rag"


async def test_a_shadow_runs_beside_the_answer_and_is_compared_with_it() -> None:
    world = World("a", "b", "c")
    world.keyword.result = ranking("b", "x")
    world.switch.decision = Decision("rag", shadow=True)
    answer = await retrieve(world)
    assert (answer.path, names(answer), world.keyword.asked) == ("rag", ["a", "b", "c"], [])
    await world.events.compared.wait()
    ((event,)) = world.events.shadows
    assert (event.trace_id, event.corpus, event.path, event.outcome) == ("r-1", "notes", "rag", "ok")
    assert event.overlap == pytest.approx(1 / 3)
    assert len(world.keyword.asked) == 1 and len(world.events.retrievals) == 1


@pytest.mark.parametrize(
    ("act", "outcome"), [("hang", "RET-5041"), (RecallFailed("x"), "RET-5001"), (ValueError("x"), "RET-5004")]
)
async def test_a_shadow_that_fails_or_hangs_harms_nobody(act: Any, outcome: str) -> None:
    world = World("a", shadow_timeout_ms=20)
    world.switch.decision = Decision("keyword", shadow=True)
    if act == "hang":
        world.graph.act = world.graph.hang
    else:
        world.graph.fail(act)
    assert names(await retrieve(world)) == ["a"]
    await world.events.compared.wait()
    assert [(each.outcome, each.overlap) for each in world.events.shadows] == [(outcome, None)]


async def test_there_are_only_so_many_shadows_at_once_and_none_outlives_the_core() -> None:
    world = World("a", max_shadows=2, shadow_timeout_ms=3_600_000)
    world.switch.decision = Decision("rag", shadow=True)
    world.keyword.act = world.keyword.hang
    for number in range(3):
        await retrieve(world, f"tea {number}")
    assert [event.outcome for event in world.events.shadows] == ["dropped"]
    await world.core.close()
    await retrieve(world, "one more")
    assert len(world.events.shadows) == 1


async def test_a_remembered_answer_has_no_shadow() -> None:
    world = World("a", max_shadows=1)
    world.switch.decision = Decision("rag", shadow=True)
    await retrieve(world)
    await world.events.compared.wait()
    assert (await retrieve(world)).cached
    assert len(world.events.shadows) == 1 and len(world.keyword.asked) == 1


async def test_a_shadow_fills_no_cache() -> None:
    world = World("a", cache=CacheConfig(entries=10))
    world.switch.decision = Decision("rag", shadow=True)
    await retrieve(world)
    await world.events.compared.wait()
    assert len(world.cache) == 1


def test_overlap_is_the_share_that_both_have_of_the_longer_list() -> None:
    hits = [CorpusHit(name, name, "", "", 1, 1, ranking("a").hits[0].scores) for name in "abcd"]
    assert [overlap(hits[:3], hits[1:]), overlap(hits[:1], hits), overlap([], []), overlap([], hits)] == [
        pytest.approx(2 / 3),
        0.25,
        1.0,
        0.0,
    ]

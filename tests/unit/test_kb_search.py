import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import (
    BlankQuery,
    DatabaseDown,
    InvalidBody,
    InvalidFilter,
    RecallFailed,
    StageTimeout,
    StrataError,
    TopKOutOfRange,
)
from contracts.filters import And, Eq, matches
from contracts.hits import ScoreBreakdown
from contracts.stages import EmbedRequest, QueryVectors, SeedRequest, SeedResult
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.search import HybridSearch
from corpora.knowledge_base.service import Searcher
from corpora.knowledge_base.types import Chunk, Entity, Gap, SearchOutcome
from models.deterministic import DeterministicEmbedder
from stages.embedder import EmbedderStage
from stages.redaction import RedactionConfig, Redactor
from tests.support.hits import node_hit

CTX = RequestContext("acme", role="admin", request_id="r1")
CONFIG = KnowledgeBaseConfig.model_validate(
    {
        "timeout_ms": 60_000,
        "embed_ms": 20_000,
        "recall_ms": 20_000,
        "candidates": 2,
        "attrs": {"occasions": "keywords", "avoid_body_shapes": "keywords", "seasons": "keywords"},
        "hard_filters": [
            {"name": "occasion", "field": "attrs.occasions", "operator": "has"},
            {"name": "body_shape", "field": "attrs.avoid_body_shapes", "operator": "lacks"},
            {"name": "seasons", "field": "attrs.seasons", "operator": "has_all"},
        ],
    }
)


class FakeSeeds:
    """A seed search over chunk ids of entity ``e``, best first; each ``limit`` shows as many."""

    def __init__(self, *chunk_ids: str) -> None:
        self.chunk_ids = chunk_ids
        self.asked: list[tuple[RequestContext, SeedRequest]] = []
        self.failing_from = 99

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: SeedRequest) -> SeedResult:
        self.asked.append((ctx, request))
        if len(self.asked) >= self.failing_from:
            raise RecallFailed("The index is down.")
        hits = [
            node_hit(f"strata://kb/e/{name}", scores=ScoreBreakdown(vector=1 / (1 + i), keyword=0.0))
            for i, name in enumerate(self.chunk_ids[: request.limit])
        ]
        return SeedResult([hits], more=len(self.chunk_ids) > request.limit)


class FakeStore:
    """A source of truth that shows some chunks of entity ``e``."""

    def __init__(self, *live: str, attrs: Mapping[str, Any] | None = None, down: StrataError | None = None) -> None:
        self._live = live
        self._entity = Entity("e", "garment", "published", attrs=attrs or {})
        self._down = down

    async def live(
        self, account_id: str, chunk_ids: Sequence[str], types: Sequence[str]
    ) -> dict[str, tuple[Chunk, Entity]]:
        if self._down:
            raise self._down
        shown = [each for each in chunk_ids if each in self._live]
        return {name: (Chunk(name, "e", f"text of {name}", "text", "m", "1"), self._entity) for name in shown}


class FakeGaps:
    """Takes gaps."""

    def __init__(self, down: bool = False) -> None:
        self.recorded: list[tuple[str, str, Mapping[str, Any]]] = []
        self._down = down

    async def record(self, account_id: str, query_text: str, filter_ctx: Mapping[str, Any]) -> Gap:
        if self._down:
            raise DatabaseDown("The database is down.")
        self.recorded.append((account_id, query_text, filter_ctx))
        return Gap("g1", query_text, filter_ctx, 1, 0, 0)


async def broken(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
    raise RuntimeError("the model is down")


def searcher(
    seeds: FakeSeeds, store: FakeStore, gaps: FakeGaps | None = None, embedder: Any = None, **config: Any
) -> Searcher:
    settings = CONFIG.model_copy(update=config)
    stage = HybridSearch(
        embedder or EmbedderStage(DeterministicEmbedder(8)),
        seeds,
        store,  # type: ignore[arg-type]
        gaps or FakeGaps(),  # type: ignore[arg-type]
        settings,
        Redactor(RedactionConfig()),
    )
    return Searcher(stage, settings.timeout_ms)


def ids(outcome: SearchOutcome) -> list[str]:
    return [each.chunk_id for each in outcome.results]


async def test_the_index_is_asked_under_all_hard_filters_and_in_one_space_even_for_an_admin() -> None:
    """K1: hard filters first."""
    seeds = FakeSeeds("a")
    await searcher(seeds, FakeStore("a")).search(
        "q", CTX, ["garment"], "party", "apple", filters={"seasons": ["summer", "spring"]}
    )
    ((ctx, request),) = seeds.asked
    assert (ctx.owner_spaces(), ctx.account_id) == (("kb", "shared"), "acme")
    wanted = {"account_id": "acme", "owner_space": "kb", "category": "garment"}
    seasons = ["spring", "summer"]
    assert request.caller is not None
    assert isinstance(request.caller, And)
    assert Eq("owner_space", "kb") in request.caller.parts
    good = {**wanted, "attrs": {"occasions": ["party"], "avoid_body_shapes": ["pear"], "seasons": seasons}}
    assert matches(request.caller, good)
    for worse in (
        {"category": "advice"},
        {"owner_space": "shared"},
        {"attrs": {"occasions": ["party"], "seasons": seasons, "avoid_body_shapes": ["apple"]}},
        {"attrs": {"occasions": ["office"], "seasons": seasons}},
        {"attrs": {"occasions": ["party"], "seasons": ["summer"]}},
    ):
        assert not matches(request.caller, good | worse)


async def test_the_source_of_truth_has_the_last_word_on_every_hard_filter() -> None:
    """K1: the entity has got a taboo, and the index has not."""
    attrs = {"occasions": ["party"], "avoid_body_shapes": ["apple"]}
    seeds, store = FakeSeeds("a"), FakeStore("a", attrs=attrs)
    assert ids(await searcher(seeds, store).search("q", CTX, body_shape="pear")) == ["a"]
    assert ids(await searcher(seeds, store).search("q", CTX, body_shape="apple")) == []
    assert ids(await searcher(seeds, store).search("q", CTX, occasion="office")) == []


async def test_it_looks_deeper_until_enough_pass() -> None:
    seeds = FakeSeeds(*"abcdefgh", "x", "y", "z")
    outcome = await searcher(seeds, FakeStore("x", "y")).search("q", CTX, top_k=2)
    assert ids(outcome) == ["x", "y"]
    assert [request.limit for _, request in seeds.asked] == [2, 8, 32]


async def test_it_does_not_look_deeper_when_the_index_has_no_more() -> None:
    seeds = FakeSeeds("a", "b")
    assert ids(await searcher(seeds, FakeStore("a")).search("q", CTX, top_k=2)) == ["a"]
    assert len(seeds.asked) == 1


async def test_what_the_first_look_found_stands_when_the_deeper_one_fails() -> None:
    seeds = FakeSeeds(*"abcdef")
    seeds.failing_from = 2
    outcome = await searcher(seeds, FakeStore("b")).search("q", CTX, top_k=2)
    assert (ids(outcome), outcome.degraded, outcome.retryable) == (["b"], True, True)


async def test_without_a_vector_the_words_are_searched() -> None:
    """K5: the outcome says so."""
    seeds = FakeSeeds("a")
    outcome = await searcher(seeds, FakeStore("a"), embedder=broken).search("q", CTX)
    assert seeds.asked[0][1].vectors is None
    assert (ids(outcome), outcome.degraded, outcome.reasons[0].stage) == (["a"], True, "embedder")


async def test_a_search_that_failed_is_no_gap() -> None:
    """K5: else an outage would fill the list of gaps."""
    seeds, gaps = FakeSeeds("a"), FakeGaps()
    seeds.failing_from = 1
    outcome = await searcher(seeds, FakeStore("a"), gaps).search("q", CTX)
    assert (outcome.results, outcome.degraded, outcome.retryable, outcome.gap_id) == ((), True, True, "")
    await searcher(FakeSeeds(), FakeStore(), gaps, embedder=broken).search("q", CTX)
    assert gaps.recorded == []


async def test_nothing_found_is_a_gap_with_the_filters_it_was_asked_under() -> None:
    """K5."""
    gaps = FakeGaps()
    outcome = await searcher(FakeSeeds(), FakeStore(), gaps).search(
        "  rain boots ", CTX, ["shoe", "garment"], occasion="hiking"
    )
    assert (outcome.degraded, outcome.gap_id, outcome.request_id) == (True, "g1", "r1")
    assert gaps.recorded == [("acme", "rain boots", {"entity_types": ["garment", "shoe"], "occasion": ["hiking"]})]


async def test_candidates_too_far_away_are_no_answer() -> None:
    """K5: with a least cosine, a question that nothing answers is a gap although every query has a nearest chunk."""
    gaps = FakeGaps()
    outcome = await searcher(FakeSeeds("x", "a"), FakeStore("a"), gaps, min_vector=0.6).search("q", CTX)
    assert (outcome.results, outcome.gap_id) == ((), "g1")


async def test_a_gap_that_could_not_be_recorded_fails_no_search() -> None:
    outcome = await searcher(FakeSeeds(), FakeStore(), FakeGaps(down=True)).search("q", CTX)
    assert (outcome.degraded, outcome.gap_id, outcome.reasons[0].reason[:8]) == (True, "", "RET-5031")


async def test_unchecked_candidates_are_never_an_answer() -> None:
    """K1: without the source of truth there is an error, not a guess."""
    with pytest.raises(DatabaseDown):
        await searcher(FakeSeeds("a"), FakeStore("a", down=DatabaseDown("down"))).search("q", CTX)


async def test_a_source_of_truth_that_hangs_ends_with_the_deadline() -> None:
    class FakeHangingStore(FakeStore):
        async def live(self, *args: Any) -> dict[str, tuple[Chunk, Entity]]:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(StageTimeout):
        await searcher(FakeSeeds("a"), FakeHangingStore()).search("q", CTX, timeout_ms=50)


async def test_a_chunk_that_went_to_another_entity_is_not_what_was_found() -> None:
    class FakeMovedStore(FakeStore):
        async def live(self, *args: Any) -> dict[str, tuple[Chunk, Entity]]:
            return {"a": (Chunk("a", "f", "text", "text", "m", "1"), Entity("f", "garment", "published"))}

    assert ids(await searcher(FakeSeeds("a"), FakeMovedStore()).search("q", CTX)) == []


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"query_text": "  "}, BlankQuery, "query_text"),
        ({"query_text": "x" * 8193}, BlankQuery, "query_text"),
        ({"top_k": 0}, TopKOutOfRange, "top_k"),
        ({"top_k": 201}, TopKOutOfRange, "top_k"),
        ({"occasion": ""}, InvalidFilter, "occasion"),
        ({"body_shape": " apple"}, InvalidFilter, "body_shape"),
        ({"filters": {"seasons": []}}, InvalidFilter, "seasons"),
        ({"filters": {"colour": "red"}}, InvalidFilter, "filters"),
        ({"entity_types": [""]}, InvalidFilter, "entity_types"),
        ({"rule_boost": {"a": -1.0}}, InvalidBody, "rule_boost"),
    ],
)
async def test_a_search_that_cannot_be_understood_is_refused_and_nothing_is_left_out_in_silence(
    changes: dict[str, Any], error: type[StrataError], field: str
) -> None:
    """K1: a blank taboo must not mean no taboo."""
    seeds = FakeSeeds("a")
    with pytest.raises(error) as caught:
        await searcher(seeds, FakeStore("a")).search(**{"query_text": "q", "user_ctx": CTX} | changes)
    assert (caught.value.field, seeds.asked) == (field, [])


async def test_values_are_compared_in_one_form_of_unicode() -> None:
    """K1: a taboo written with a full-width letter is a taboo."""
    seeds, store = FakeSeeds("a"), FakeStore("a", attrs={"avoid_body_shapes": ["A"]})
    assert ids(await searcher(seeds, store).search("q", CTX, body_shape="Ａ")) == []

"""The assembler: dedupe, threshold, blocks and next actions (C4, C6, C14, C15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.hits import NodeHit, ScoreBreakdown
from contracts.query import TypedQuery
from contracts.stages import AssembleRequest, Assembly
from stages.assembler import Assembler, AssemblerConfig
from tests.support.hits import node_hit

CTX = RequestContext("acme")


async def assemble(*lists: list[NodeHit], limit: int = 10, **options: object) -> Assembly:
    queries = tuple(TypedQuery("q", "resource") for _ in lists)
    request = AssembleRequest(queries, list(lists), limit, **options)  # type: ignore[arg-type]
    return await Assembler(AssemblerConfig(l1_reads=2, l2_reads=1))(CTX, Deadline.after(1), request)


@pytest.mark.parametrize(("gte", "kept"), [(False, ["b"]), (True, ["b", "a"])])
async def test_the_threshold_is_exclusive_unless_score_gte(gte: bool, kept: list[str]) -> None:
    """C4, section 10 unit 4."""
    hits = [node_hit("strata://shared/a", 0.5), node_hit("strata://shared/b", 0.6), node_hit("strata://shared/c", 0.4)]
    result = await assemble(hits, threshold=0.5, gte=gte)
    assert [block.uri.rsplit("/", 1)[-1] for block in result.blocks] == kept
    assert result.threshold_filtered == 3 - len(kept)


async def test_a_uri_found_by_several_queries_counts_once_with_its_highest_score() -> None:
    """C15."""
    result = await assemble([node_hit("strata://shared/a", 0.2)], [node_hit("strata://shared/a", 0.7, query=1)])
    assert [(block.uri, block.score) for block in result.blocks] == [("strata://shared/a", 0.7)]


async def test_equal_scores_prefer_the_node_with_an_overview() -> None:
    """C15."""
    hits = [node_hit("strata://shared/a", has_overview=False), node_hit("strata://shared/b")]
    assert [block.uri for block in (await assemble(hits)).blocks] == ["strata://shared/b", "strata://shared/a"]


async def test_blocks_carry_the_abstract_and_no_deeper_text() -> None:
    """C14, section 10 unit 8: an intermediate node gets read_l1 and a null overview."""
    (block,) = (await assemble([node_hit("strata://shared/a", has_children=True)])).blocks
    assert (block.level_hit, block.abstract) == ("L0", "an abstract")
    assert block.overview is block.content_excerpt is None
    assert block.read_recommendation == "read_l1"


async def test_what_to_read_next_follows_what_each_hit_has() -> None:
    """C6."""
    hits = [
        node_hit("strata://shared/root", 0.9, has_children=True),
        node_hit("strata://shared/leaf", 0.8),
        node_hit("strata://shared/bare", 0.7, has_overview=False),
        node_hit("strata://shared/more", 0.6),
        node_hit("strata://shared/none", 0.5, has_overview=False, has_content=False),
    ]
    result = await assemble(hits)
    assert result.next_actions.recommended_read_l1_uris == ("strata://shared/root", "strata://shared/leaf")
    assert result.next_actions.recommended_read_l2_uris == ("strata://shared/leaf",)
    assert [block.read_recommendation for block in result.blocks] == [
        "read_l1",
        "read_l1",
        "read_l2",
        "read_l1",
        "none",
    ]


async def test_what_the_reranker_scored_stands_before_what_it_did_not() -> None:
    hits = [
        node_hit("strata://shared/unscored", 0.9),
        node_hit("strata://shared/scored", 0.1, scores=ScoreBreakdown(rerank=0.1)),
    ]
    assert [block.uri for block in (await assemble(hits)).blocks] == [
        "strata://shared/scored",
        "strata://shared/unscored",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1)), max_size=20),
    st.integers(1, 10),
    st.one_of(st.none(), st.floats(0, 1)),
)
async def test_the_answer_is_sorted_unique_within_the_limit_and_above_the_threshold(
    rows: list[tuple[int, float]], limit: int, threshold: float | None
) -> None:
    hits = [node_hit(f"strata://shared/{n}", score) for n, score in rows]
    result = await assemble(hits, limit=limit, threshold=threshold)
    scores = [block.score for block in result.blocks]
    best = {n: max(s for m, s in rows if m == n) for n, _ in rows}
    wanted = sorted((s for s in best.values() if threshold is None or s > threshold), reverse=True)
    assert scores == wanted[:limit]
    assert len({block.uri for block in result.blocks}) == len(scores)

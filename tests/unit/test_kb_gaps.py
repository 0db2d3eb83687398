import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.ports import Embedded
from corpora.knowledge_base.gaps import clustered, gap_id, leaders
from corpora.knowledge_base.types import Gap
from models.deterministic import DeterministicEmbedder


class FakeEmbedder:
    """Angles instead of meanings: a text is the angle of its vector in degrees."""

    async def embed(self, texts: list[str], role: str) -> Embedded:
        angles = np.radians([float(text.split()[-1]) for text in texts])
        return Embedded(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))


def gap(text: str, hits: int = 1, **context: list[str]) -> Gap:
    return Gap(gap_id(text, context), text, context, hits, 0, 0)


async def test_questions_that_mean_the_same_stand_together_under_the_one_asked_most() -> None:
    """K5: an editor sees the real gaps."""
    gaps = [gap("at 0", 5), gap("at 10", 7), gap("at 90", 20), gap("at 15", 1)]
    first, second = await clustered(gaps, FakeEmbedder(), 0.9)  # type: ignore[arg-type]
    assert (first.query_text, first.hit_count) == ("at 90", 20)
    assert (second.query_text, second.hit_count, len(second.gaps)) == ("at 10", 13, 3)


async def test_fifty_ways_to_ask_ten_things_are_ten_groups() -> None:
    gaps = [gap(f"way {way} at {36 * thing + way}", hits=way + 1) for thing in range(10) for way in range(5)]
    clusters = await clustered(gaps, FakeEmbedder(), 0.98)  # type: ignore[arg-type]
    assert [len(cluster.gaps) for cluster in clusters] == [5] * 10


async def test_groups_do_not_chain() -> None:
    """Each member is near its leader; not merely near some other member."""
    gaps = [gap(f"at {angle}", 10 - angle // 20) for angle in range(0, 100, 20)]
    clusters = await clustered(gaps, FakeEmbedder(), 0.93)  # type: ignore[arg-type]
    assert all(len(cluster.gaps) <= 2 for cluster in clusters)


async def test_case_spacing_and_filters_make_no_other_question() -> None:
    gaps = [gap("Rain  boots", 2), gap("rain boots", occasion=["hiking"]), gap("umbrella")]
    clusters = await clustered(gaps, DeterministicEmbedder(64), 0.85)
    assert [(cluster.query_text, len(cluster.gaps)) for cluster in clusters] == [("Rain  boots", 2), ("umbrella", 1)]


async def test_no_gaps_are_no_groups() -> None:
    assert await clustered([], DeterministicEmbedder(8), 0.85) == []


@given(st.permutations([gap(f"at {angle}", hits) for angle, hits in [(0, 1), (10, 1), (20, 1), (90, 2), (95, 2)]]))
async def test_the_same_gaps_always_give_the_same_groups(gaps: list[Gap]) -> None:
    expected = await clustered(sorted(gaps, key=lambda each: each.query_text), FakeEmbedder(), 0.95)  # type: ignore[arg-type]
    assert await clustered(gaps, FakeEmbedder(), 0.95) == expected  # type: ignore[arg-type]


def test_a_row_joins_the_nearest_leader_before_it() -> None:
    angles = np.radians([0, 50, 30, 26, 120])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert leaders(vectors, 0.85) == [0, 1, 1, 1, 4]


@pytest.mark.parametrize("other", [{"a": ["y"]}, {"b": ["x"]}, {}])
def test_ids_tell_filters_apart_and_not_their_order(other: dict[str, list[str]]) -> None:
    assert gap_id("q", {"a": ["x"], "b": ["y"]}) == gap_id("q", {"b": ["y"], "a": ["x"]})
    assert gap_id("q", {"a": ["x"]}) != gap_id("q", other)

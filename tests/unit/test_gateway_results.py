"""What becomes of the upstream's arrays: one list, best first, each memory once."""

from typing import Any

import msgspec
import pytest

from gateway.results import MemoryResult, SearchMemoriesResponse, merged, of_scope
from gateway.upstream import ARRAYS, UpstreamAnswer
from tests.support.memory_service import episode


def results(*episodes: dict[str, Any], scope: Any = "all_user_memory") -> list[MemoryResult]:
    return of_scope(scope, [UpstreamAnswer(episodes=episodes)])


@pytest.mark.parametrize(
    ("array", "memory_type", "item", "text"),
    [
        ("episodes", "episode", {"episode": "long", "summary": "short", "subject": "s"}, "long"),
        ("episodes", "episode", {"episode": "", "summary": "short"}, "short"),
        ("profiles", "profile", {"profile_data": {"likes": "tea"}, "score": None}, '{"likes":"tea"}'),
        ("profiles", "profile", {"profile_data": {"text": "Likes tea."}}, "Likes tea."),
        ("agent_cases", "agent_case", {"task_intent": "a", "approach": "b", "key_insight": None}, "a\nb"),
        ("agent_skills", "agent_skill", {"name": "n", "description": "d", "content": "c"}, "n\nd\nc"),
        ("unprocessed_messages", "unprocessed_message", {"content": "hi"}, "hi"),
        (
            "unprocessed_messages",
            "unprocessed_message",
            {"content": [{"type": "text", "text": "hi"}, {"type": "image", "url": "x"}, {"text": "there"}]},
            "hi\nthere",
        ),
        ("episodes", "episode", {}, ""),
    ],
)
def test_each_array_has_its_memory_type_and_text(array: str, memory_type: str, item: Any, text: str) -> None:
    """G5; acceptance 6 of seed 2."""
    (result,) = of_scope("resources", [UpstreamAnswer(**{array: ({"id": "m", **item},)})])
    assert (result.memory_type, result.text, result.source_scope) == (memory_type, text, "resources")
    assert (result.session_id, result.resource_id, result.resource_uri) == (None, None, None)
    assert result.raw == {"id": "m", **item}


def test_every_array_of_the_upstream_is_answered() -> None:
    """G5: none is left out, which some upstreams do."""
    answer = UpstreamAnswer(**{array: ({"id": array},) for array in ARRAYS})
    assert [result.id for result in of_scope("resources", [answer])] == list(ARRAYS)


def test_a_memory_of_several_scopes_counts_once_where_it_scored_best() -> None:
    chat = results(episode("a", score=0.3), episode("b", score=0.9), scope="current_chat")
    every = results(episode("a", score=0.5), episode("b", score=0.9), episode("c", score=0.1))
    found = merged([chat, every])
    assert [(r.id, r.score, r.source_scope) for r in found] == [
        ("b", 0.9, "current_chat"),
        ("a", 0.5, "all_user_memory"),
        ("c", 0.1, "all_user_memory"),
    ]


def test_equal_ids_of_different_types_are_different_memories() -> None:
    answer = UpstreamAnswer(episodes=({"id": "a"},), agent_skills=({"id": "a"},))
    assert len(merged([of_scope("resources", [answer])])) == 2


def test_what_has_no_score_comes_last_in_its_order() -> None:
    found = merged([results(episode("a", score=None), episode("b", score=0.0), {"id": "c", "score": True})])  # type: ignore[arg-type]
    assert [(r.id, r.score) for r in found] == [("b", 0.0), ("a", None), ("c", None)]


def test_the_answer_is_results_and_nothing_else_where_nothing_was_missing() -> None:
    """G5."""
    answer = msgspec.json.decode(msgspec.json.encode(SearchMemoriesResponse(results(episode("a")))))
    assert answer.keys() == {"results"}
    assert answer["results"][0].keys() == set(MemoryResult.__struct_fields__)

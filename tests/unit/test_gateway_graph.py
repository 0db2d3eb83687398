"""The graph as upstream, on a stand-in index: methods do what they say, records are what they are, owners apart."""

from dataclasses import replace
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, RecallFailed, StageFailed
from contracts.filters import In
from contracts.stages import EmbedRequest, QueryVectors
from gateway.upstream import ARRAYS, Owner, UpstreamAnswer
from tests.support.fake_index import FakeIndex
from tests.support.gateway_graph import (
    BOTH,
    MEANING,
    WORDS,
    ids,
    memory,
    search,
    upstream,
)


async def no_embedder(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
    raise StageFailed("Down.")


async def test_keyword_ranks_by_words_and_embeds_nothing() -> None:
    index = FakeIndex([WORDS, MEANING, BOTH])
    answer = await search(index, method="keyword", embedder=no_embedder)
    assert [(item["id"], item["score"]) for item in answer.episodes] == [("words", 1.0), ("both", 0.5)]
    assert not answer.degraded
    assert all(query.vector is None for queries in index.recalls for query in queries)


async def test_vector_ranks_by_meaning_and_matches_no_words() -> None:
    index = FakeIndex([WORDS, MEANING, BOTH])
    answer = await search(index, method="vector")
    assert [(item["id"], item["score"]) for item in answer.episodes] == [("meaning", 0.9), ("both", 0.8)]
    assert all(query.text == "" for queries in index.recalls for query in queries)


async def test_hybrid_finds_by_both_and_ranks_by_both() -> None:
    assert ids(await search([WORDS, MEANING, BOTH])) == ["both", "words", "meaning"]


@pytest.mark.parametrize(
    ("method", "found"),
    [("keyword", ["words"]), ("vector", ["meaning"]), ("hybrid", ["meaning"]), ("agentic", ["meaning"])],
)
async def test_a_radius_leaves_out_what_is_less_similar(method: str, found: list[str]) -> None:
    """Its users say that elsewhere it has no effect."""
    assert ids(await search([WORDS, MEANING, BOTH], method=method, radius=0.85)) == found
    assert len(ids(await search([WORDS, MEANING, BOTH], method=method, radius=0.0))) >= 2


async def test_without_the_embedder_hybrid_goes_by_words_and_vector_finds_nothing() -> None:
    hybrid = await search([WORDS, MEANING], embedder=no_embedder, radius=0.9)
    assert ids(hybrid) == ["words"]
    vector = await search([WORDS, MEANING], embedder=no_embedder, method="vector")
    assert not ids(vector)
    assert {part.stage for part in (*hybrid.degraded, *vector.degraded)} == {"embedder"}


async def test_a_failing_recall_is_an_error_and_no_empty_answer() -> None:
    async def down(*_: Any) -> Any:
        raise RecallFailed("Both.")

    index = FakeIndex([WORDS])
    broken = upstream(index)
    broken._walk._chain.stages = replace(broken._walk._chain.stages, seed_search=down)
    with pytest.raises(RecallFailed):
        await search(index, on=broken)


async def test_top_k_holds_for_each_array_and_minus_one_is_the_cap() -> None:
    """G1; acceptance 3."""
    records = [memory(f"e{n}", "green tea") for n in range(70)] + [
        memory(f"t{n}", "tea", "conversation") for n in range(70)
    ]
    for top_k, cap, expected in ((3, 100, 3), (-1, 60, 60), (100, 60, 60), (-1, 100, 70)):
        answer = await search(records, top_k=top_k, max_top_k=cap)
        assert len(answer.episodes) == len(answer.unprocessed_messages) == expected


TYPED = [
    memory("fact", "green tea"),
    memory("hint", "buy green tea", "todo_hint"),
    memory("profile", '{"likes": "green tea"}', "profile"),
    memory("raw", "green tea please", "unprocessed_message", attrs={"sender_id": ("ann",), "session_id": ("chat:9",)}),
    memory("talk/part-3", "green tea?", "conversation", kind="turn", parent_uri="strata://memory.ann/memory/talk"),
    memory("case", "made green tea", "agent_case", space="agent-memory.chef"),
    memory("skill", "how to make green tea", "agent_skill", space="agent-memory.chef"),
]


async def test_each_record_shows_in_the_array_of_its_type() -> None:
    """Acceptance 6."""
    user = await search(TYPED, include_profile=True)
    assert {array: sorted(ids(user, array)) for array in ARRAYS} == {
        "episodes": ["fact", "hint"],
        "profiles": ["profile"],
        "agent_cases": [],
        "agent_skills": [],
        "unprocessed_messages": ["raw", "talk#3"],
    }
    assert user.profiles[0]["profile_data"] == {"likes": "green tea"}
    agent = await search(TYPED, owner=Owner("agent_id", "chef"), include_profile=True)
    assert (ids(agent, "agent_cases"), ids(agent, "agent_skills"), ids(agent)) == (["case"], ["skill"], [])


async def test_profiles_come_whatever_the_filters_say_unless_they_are_not_wanted() -> None:
    filters = {"session_id": "chat:9"}
    answer = await search(TYPED, include_profile=True, filters=filters, radius=1.0, query="weather")
    assert ids(answer, "profiles") == ["profile"]
    assert not ids(await search(TYPED, include_profile=False), "profiles")


async def test_sessions_are_named_by_attribute_or_conversation() -> None:
    records = [
        memory("a", "green tea", attrs={"conversation_id": ("7",)}, created_at=1_767_225_600_000),
        memory("b", "green tea", attrs={"session_id": ("book:1",)}),
        memory("c", "green tea"),
    ]
    answer = await search(records)
    assert {item["id"]: item["session_id"] for item in answer.episodes} == {"a": "chat:7", "b": "book:1", "c": None}
    assert answer.episodes[0]["timestamp"] == "2026-01-01T00:00:00.000Z"
    assert ids(await search(records, filters={"session_id": {"in": ["chat:7", "book:9"]}})) == ["a"]
    assert ids(await search(records, filters={"session_id": "book:1"})) == ["b"]
    assert ids(await search(records, filters={"timestamp": {"gte": "2025-06-01"}})) == ["a"]


async def test_owners_accounts_and_corpora_are_apart() -> None:
    """G2."""
    records = [
        memory("mine", "green tea"),
        memory("bobs", "green tea", space="memory.bob"),
        memory("agents", "green tea", "agent_case", space="agent-memory.chef"),
        memory("shared", "green tea", space="shared"),
        memory("rivals", "green tea", account_id="rival"),
        memory("notes", "green tea", source_id="strata://memory.ann/memory"),
        memory("skills", "green tea", context_type="skill"),
        memory("old", "green tea", expires_at=1),
        memory("hidden", "green tea", status="archived"),
    ]
    for method in ("keyword", "vector", "hybrid", "agentic"):
        answer = await search(records, method=method)
        assert [item["id"] for array in ARRAYS for item in getattr(answer, array)] == ["mine"]


async def test_an_agent_that_can_not_be_has_no_memory() -> None:
    index = FakeIndex(TYPED)
    for name in ("Chef", "memory.ann", "../user:ann", "x" * 80):
        answer = await search(index, owner=Owner("agent_id", name))
        assert answer == UpstreamAnswer() or not any(getattr(answer, array) for array in ARRAYS)


async def test_apps_and_projects_are_apart() -> None:
    records = [
        memory("plain", "green tea"),
        memory("app", "green tea", attrs={"app_id": ("shop",), "named": ("app_id",)}),
        memory("project", "green tea", attrs={"project_id": ("p",), "named": ("project_id",)}),
        memory(
            "both", "green tea", attrs={"app_id": ("shop",), "project_id": ("p",), "named": ("app_id", "project_id")}
        ),
    ]
    assert ids(await search(records)) == ["plain"]
    assert ids(await search(records, app_id="shop")) == ["app"]
    assert ids(await search(records, project_id="p")) == ["project"]
    assert ids(await search(records, app_id="shop", project_id="p")) == ["both"]
    assert not ids(await search(records, app_id="other"))


async def test_what_must_hold_holds_for_profiles_too() -> None:
    must = In("attrs.sensitivity_level", ("public",))
    records = [
        memory(f"{kind}-{level}", "green tea", kind, attrs={"sensitivity_level": (level,)})
        for kind in ("fact", "profile")
        for level in ("public", "secret")
    ]
    answer = await search(records, must=must, include_profile=True)
    assert (ids(answer), ids(answer, "profiles")) == (["fact-public"], ["profile-public"])


@pytest.mark.parametrize("filters", [{"owner_id": "bob"}, {"session_id": {"like": "x"}}, {"AND": []}])
async def test_a_bad_filter_is_refused_before_any_search(filters: Any) -> None:
    """G8."""
    index = FakeIndex([WORDS])
    with pytest.raises(InvalidFilter):
        upstream(index).check(filters)
    with pytest.raises(InvalidFilter):
        await search(index, filters=filters)
    assert not index.recalls


async def test_chunks_are_shown_as_their_source_and_parents_not_at_all() -> None:
    parent = "strata://memory.ann/memory/long"
    records = [
        memory("long", "green tea and more", has_children=True),
        memory("long/chunk-1", "green tea", kind="chunk", parent_uri=parent),
        memory("long/chunk-2", "green", kind="chunk", parent_uri=parent),
        memory("bare", "green tea", has_content=False, content=""),
    ]
    answer = await search(records)
    assert [(item["id"], item["episode"]) for item in answer.episodes] == [("long", "green tea")]


async def test_secrets_are_masked_in_the_text() -> None:
    (item,) = (await search([memory("a", "green tea", content="API_TOKEN = 'sk-abcdefghijklmnopqrstuvwx'")])).episodes
    assert "abcdefghij" not in str(item)


async def test_what_has_changed_since_it_was_found_is_held_to_the_conditions_again() -> None:
    index = FakeIndex(
        [
            memory("a", "green tea", attrs={"session_id": ("chat:1",)}),
            memory("b", "green tea", attrs={"session_id": ("chat:1",)}),
        ]
    )
    reading = upstream(index)

    async def moved(*args: Any) -> Any:
        index.records["strata://memory.ann/memory/a"]["attrs"]["session_id"] = ("chat:2",)
        return await read(*args)

    read, reading._walk._reader = reading._walk._reader, moved
    assert ids(await search(index, on=reading, filters={"session_id": "chat:1"})) == ["b"]

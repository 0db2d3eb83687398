"""The memory corpus: dimensions (R6), clearance, and the order of what is found (R4)."""

import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.context import RequestContext, Role
from contracts.errors import InvalidBody, MissingDimension, RequestError, TargetForbidden
from contracts.filters import matches
from contracts.hits import ScoreBreakdown
from corpora.memory import Clearance, MemoryConfig, MemoryCorpus
from corpora.memory_bodies import DIMENSIONS, SENSITIVITIES, FoundType, MemoryType, Sensitivity
from corpora.rag.types import CorpusHit, SourceDocument

NOW = 1_750_000_000_000
ALICE = RequestContext("acme", user_space="user:alice")
WHERE = {"user_id": "alice", "assistant_id": "helper", "conversation_id": "c1"}
DIALOGUE = {
    "session_id": "D1",
    "date": "1:56 pm on 8 May, 2023",
    "turns": [
        {"speaker": "Ann", "text": "I planted tomatoes yesterday.", "id": "D1:1"},
        {"speaker": "Bob", "text": "How many?"},
        {"speaker": "", "text": "  "},
        {"speaker": "Ann", "text": "Twelve.", "time": 1_683_600_000_000},
    ],
}
roles = st.sampled_from(get_args(Role))
levels = st.sampled_from(SENSITIVITIES)
spaces = st.sampled_from(["", "user:alice", "user:bob", "user:a:b", "agent:helper", "shared"])
contexts = st.builds(
    RequestContext, st.just("acme"), roles, spaces, spaces, st.lists(spaces.filter(bool), max_size=2).map(tuple)
)
ids = st.sampled_from(["alice", "bob", "a:b", "Alice", "user:alice", "", " ", "a/b", "../shared", "x" * 60]) | st.text()


def corpus(**config: Any) -> MemoryCorpus:
    return MemoryCorpus(MemoryConfig(**config), clock=lambda: NOW / 1000)


def ingest(*items: dict[str, Any], ctx: RequestContext = ALICE, **body: Any) -> list[SourceDocument]:
    return corpus().build_ingest_documents(ctx, {**WHERE, "items": list(items), **body})


def shows(document: SourceDocument, ctx: RequestContext = ALICE, /, **raw: Any) -> bool:
    scope = corpus().build_retrieve_filter(ctx, {**WHERE, **raw})
    return scope.space == document.space and matches(scope.must, {"attrs": document.attrs})


def hit(name: str, score: float, **attrs: str) -> CorpusHit:
    return CorpusHit(
        name, name, "", "", score, score, ScoreBreakdown(), {key: (value,) for key, value in attrs.items()}
    )


def test_an_item_becomes_a_document_in_the_users_space_with_its_dimensions_and_metadata() -> None:
    """R4."""
    (document,) = ingest(
        {
            "source_id": "m1",
            "text": "Allergic to nuts.",
            "memory_type": "constraint",
            "confidence": 0.879,
            "sensitivity_level": "private",
            "ttl_at": "2030-01-01",
            "source_event_id": "e1",
            "created_at": NOW - 5,
            "tags": ["food"],
        }
    )
    assert (document.source_id, document.space, document.context_type) == ("m1", "memory.alice", "memory")
    assert (document.text, document.category, document.tags) == ("Allergic to nuts.", "constraint", ("food",))
    assert (document.created_at, document.updated_at, document.expires_at) == (NOW - 5, NOW - 5, 1_893_456_000_000)
    assert document.attrs == {name: (value,) for name, value in WHERE.items()} | {
        "memory_type": ("constraint",),
        "confidence": ("0.87",),
        "sensitivity_level": ("private",),
        "source_event_id": ("e1",),
    }


def test_what_an_item_does_not_say_has_a_default() -> None:
    (document,) = ingest({"text": "Likes tea."})
    assert (document.created_at, document.expires_at) == (NOW, 0)
    assert document.attrs["memory_type"] == ("fact",)
    assert document.attrs["confidence"] == ("1.00",)
    assert document.attrs["sensitivity_level"] == ("internal",)


def test_a_ttl_before_the_epoch_means_expired_and_not_for_ever() -> None:
    (document,) = ingest({"text": "Old.", "ttl_at": "1960-01-01"})
    assert document.expires_at == 1


def test_ids_that_are_made_stay_the_same_and_are_apart_for_each_conversation() -> None:
    items = {"text": "Likes tea."}, {"text": "Likes tea.", "source_event_id": "e1"}
    first, again = ingest(*items), ingest(*items)
    elsewhere = ingest(*items, conversation_id="c2")
    assert [each.source_id for each in first] == [each.source_id for each in again]
    assert len({each.source_id for each in [*first, *elsewhere]}) == 4


def test_two_memories_of_one_event_are_two_sources() -> None:
    found = ingest({"text": "One.", "source_event_id": "e1"}, {"text": "Two.", "source_event_id": "e1"})
    assert len({each.source_id for each in found}) == 2


def test_of_two_items_with_the_same_id_the_later_stays() -> None:
    (document,) = ingest({"text": "Old.", "source_id": "m"}, {"text": "New.", "source_id": "m"})
    assert document.text == "New."


def test_a_dialogue_is_a_parent_over_its_turns_in_the_form_that_finds_best() -> None:
    """A vector of the turn and of it between its neighbours; the date for keywords alone."""
    (document,) = ingest(dialogues=[DIALOGUE])
    first, second, third = document.passages
    date = "1:56 pm on 8 May, 2023"
    assert (document.kind, document.title, document.created_at) == ("session", "D1", 1_683_554_160_000)
    assert document.text == f"{date}\nAnn: I planted tomatoes yesterday.\nBob: How many?\nAnn: Twelve."
    assert second.vector_texts == ("Bob: How many?", document.text.removeprefix(f"{date}\n"))
    assert first.vector_texts == (
        "Ann: I planted tomatoes yesterday.",
        "Ann: I planted tomatoes yesterday.\nBob: How many?",
    )
    assert first.search_text == f"I planted tomatoes yesterday.\n{date}"
    assert third.search_text == f"Twelve.\n2023-05-09 (9 May 2023)\n{date}"
    assert first.text == f"{date}\nAnn: I planted tomatoes yesterday.\nBob: How many?"
    assert (first.kind, first.name, first.attrs) == ("turn", "Ann", {"speaker": ("Ann",), "id": ("D1:1",)})
    assert document.attrs["memory_type"] == ("conversation",)
    assert document.attrs["session"] == ("D1",)


def test_a_date_that_no_calendar_has_is_kept_out_of_the_times() -> None:
    (document,) = ingest(dialogues=[DIALOGUE | {"date": 10**30}])
    assert document.created_at == NOW


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "items"),
        ({"items": [{"text": " "}]}, "items.0.text"),
        ({"items": [{"text": "a"}, {"text": "b", "confidence": 1.5}]}, "items.1.confidence"),
        ({"items": [{"text": "a", "confidence": float("nan")}]}, "items.0.confidence"),
        ({"items": [{"text": "a", "memory_type": "conversation"}]}, "items.0.memory_type"),
        ({"items": [{"text": "a", "ttl_at": 1_750_000_000}]}, "items.0.ttl_at"),
        ({"items": [{"text": "a", "mood": "good"}]}, "items.0.mood"),
        ({"items": [{"text": "a\0"}]}, "items.0.text"),
        ({"dialogues": [DIALOGUE | {"turns": [{"text": ""}]}]}, "dialogues.0.turns"),
        ({"dialogues": [{"turns": [{"text": "a"}]}]}, "dialogues.0.session_id"),
        ({"items": "a"}, "items"),
        ({"query": "a"}, "query"),
    ],
)
def test_a_field_that_is_wrong_is_named(body: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        corpus().build_ingest_documents(ALICE, {**WHERE, **body})
    assert caught.value.field == field


@given(given_ids=st.dictionaries(st.sampled_from(DIMENSIONS), st.sampled_from(["alice", "", " ", None])))
def test_without_a_dimension_nothing_is_written_or_searched_and_all_missing_ones_are_named(
    given_ids: dict[str, Any],
) -> None:
    """R6."""
    missing = [name for name in DIMENSIONS if not (given_ids.get(name) or "").strip()]
    if not missing:
        return
    for build in (corpus().build_ingest_documents, corpus().build_retrieve_filter):
        with pytest.raises(MissingDimension) as caught:
            build(ALICE, given_ids)
        assert caught.value.field == ", ".join(missing)
        assert " and ".join(missing) in caught.value.message


@pytest.mark.parametrize("raw", [None, [], "alice", 1])
def test_a_body_that_is_no_object_is_refused(raw: Any) -> None:
    with pytest.raises(InvalidBody):
        corpus().build_retrieve_filter(ALICE, raw)


@given(contexts, st.fixed_dictionaries({}, optional=dict.fromkeys(DIMENSIONS, ids)))
def test_no_body_leads_anywhere_that_the_caller_may_not_see(ctx: RequestContext, raw: dict[str, Any]) -> None:
    """C20, R6."""
    try:
        scope = corpus().build_retrieve_filter(ctx, raw)
    except RequestError:
        return
    assert ctx.may_see(f"user:{raw['user_id']}")
    assert scope.space == f"memory.{raw['user_id']}"


@given(contexts, ids)
def test_no_body_is_written_where_the_caller_may_not_see(ctx: RequestContext, user_id: str) -> None:
    raw = {**WHERE, "user_id": user_id, "items": [{"text": "a"}], "dialogues": [DIALOGUE]}
    try:
        documents = corpus().build_ingest_documents(ctx, raw)
    except RequestError:
        return
    assert {each.space for each in documents} == {f"memory.{user_id}"}
    assert ctx.may_see(f"user:{user_id}")


def test_plain_searches_of_users_and_agents_never_see_the_space_of_memories() -> None:
    """R6: there is no way round the dimensions."""
    space = corpus().build_retrieve_filter(ALICE, WHERE).space
    assert not ALICE.may_see(space)
    assert not RequestContext("acme", "agent", "user:alice", "agent:helper").may_see(space)


def test_another_users_memories_are_forbidden_in_words_that_do_not_tell_whether_there_are_any() -> None:
    """C21."""
    errors = []
    for user_id in ("bob", "nobody"):
        with pytest.raises(TargetForbidden) as caught:
            corpus().build_retrieve_filter(ALICE, {**WHERE, "user_id": user_id})
        errors.append(str(caught.value))
    assert len(set(errors)) == 1


def test_an_id_that_no_space_can_be_named_after_is_refused() -> None:
    admin = RequestContext("acme", role="admin")
    for user_id in ("Alice", "a/b", "x" * 60, "李"):
        with pytest.raises(InvalidBody) as caught:
            corpus().build_retrieve_filter(admin, {**WHERE, "user_id": user_id})
        assert caught.value.field == "user_id"


@given(
    roles,
    levels,
    levels,
    levels,
    levels,
    st.none() | levels,
    st.sampled_from([(), ("fact",)]),
    st.none() | st.just(0.5),
)
def test_a_memory_above_the_callers_clearance_never_matches(
    role: Role,
    user: Sensitivity,
    agent: Sensitivity,
    admin: Sensitivity,
    level: Sensitivity,
    asked: Sensitivity | None,
    types: tuple[FoundType, ...],
    least: float | None,
) -> None:
    """R4: ``max_sensitivity`` can only lower it, and no other option lifts it."""
    memory = corpus(clearance=Clearance(user=user, agent=agent, admin=admin))
    ctx = RequestContext("acme", role, "user:alice", "agent:helper")
    (document,) = memory.build_ingest_documents(ctx, {**WHERE, "items": [{"text": "a", "sensitivity_level": level}]})
    options = {"max_sensitivity": asked, "memory_types": list(types), "min_confidence": least}
    scope = memory.build_retrieve_filter(ctx, {**WHERE, "options": options})
    cleared = {"user": user, "agent": agent, "admin": admin}[role]
    highest = min(SENSITIVITIES.index(each) for each in (cleared, asked) if each)
    assert matches(scope.must, {"attrs": document.attrs}) == (SENSITIVITIES.index(level) <= highest)


def test_a_record_without_a_sensitivity_level_never_shows() -> None:
    (document,) = ingest({"text": "a"})
    del document.attrs["sensitivity_level"]
    assert not shows(document, RequestContext("acme", "admin"))


def test_by_default_agents_do_not_see_what_is_private_and_users_not_what_is_secret() -> None:
    agent = RequestContext("acme", "agent", "user:alice", "agent:helper")
    (private,) = ingest({"text": "a", "sensitivity_level": "private"})
    (secret,) = ingest({"text": "a", "sensitivity_level": "secret"})
    assert [shows(private, agent), shows(private)] == [False, True]
    assert [shows(secret), shows(secret, RequestContext("acme", "admin"))] == [False, True]


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_least_confidence_keeps_out_what_lies_below_it(confidence: float, least: float) -> None:
    """Exact to a step of 0.01."""
    (document,) = ingest({"text": "a", "confidence": confidence})
    found = shows(document, options={"min_confidence": least})
    if abs(confidence - least) >= 0.02 or confidence == least == 0:
        assert found == (confidence >= least)
    if found:
        assert confidence >= least - 1e-6


def test_confidences_on_the_grid_are_compared_exactly() -> None:
    for percent in range(101):
        (document,) = ingest({"text": "a", "confidence": percent / 100})
        assert shows(document, options={"min_confidence": percent / 100})
        assert percent == 100 or not shows(document, options={"min_confidence": (percent + 1) / 100})


def test_types_narrow_and_conversations_are_one_of_them() -> None:
    item, dialogue = ingest({"text": "a"}, dialogues=[DIALOGUE])
    assert [shows(item), shows(dialogue)] == [True, True]
    conversations = {"memory_types": ["conversation"]}
    assert [shows(item, options=conversations), shows(dialogue, options=conversations)] == [False, True]


@pytest.mark.parametrize("name", DIMENSIONS[1:])
def test_a_memory_of_another_assistant_or_conversation_does_not_show(name: str) -> None:
    """R6."""
    (document,) = ingest({"text": "a"})
    assert shows(document)
    assert not shows(document, **{name: "other"})


def test_constraints_and_preferences_come_before_facts_and_hints() -> None:
    """R4."""
    found = [
        hit("fact", 0.9, memory_type="fact"),
        hit("talk", 0.8, memory_type="conversation"),
        hit("preference", 0.6, memory_type="preference"),
        hit("hint", 0.95, memory_type="todo_hint"),
        hit("constraint", 0.7, memory_type="constraint"),
    ]
    arranged = corpus().arrange(WHERE, found)
    assert [each.uri for each in arranged] == ["constraint", "preference", "hint", "fact", "talk"]


def test_confidence_weighs_lightly() -> None:
    sure, unsure = hit("sure", 0.80, confidence="1.00"), hit("unsure", 0.82, confidence="0.50")
    clear = hit("clear", 0.95, confidence="0.00")
    assert [each.uri for each in corpus().arrange(WHERE, [unsure, sure, clear])] == ["clear", "sure", "unsure"]
    assert [each.uri for each in corpus(confidence_weight=0).arrange(WHERE, [sure, unsure])] == ["unsure", "sure"]


hits = st.lists(
    st.builds(
        lambda name, score, kind, confidence: hit(name, score, memory_type=kind, confidence=f"{confidence:.2f}"),
        st.text("abc", min_size=1),
        st.floats(0, 1),
        st.sampled_from(get_args(MemoryType)),
        st.floats(0, 1),
    ),
    unique_by=lambda each: each.uri,
)


@given(hits, st.randoms(use_true_random=False), st.floats(0, 1))
def test_arranging_adds_nothing_lifts_nothing_and_depends_on_no_order(
    found: list[CorpusHit], chance: random.Random, weight: float
) -> None:
    memory = corpus(confidence_weight=weight)
    arranged = memory.arrange(WHERE, found)
    before = {each.uri: each for each in found}
    assert sorted(each.uri for each in arranged) == sorted(before)
    assert all(0 <= each.score <= before[each.uri].score for each in arranged)
    chance.shuffle(found)
    assert memory.arrange(WHERE, found) == arranged

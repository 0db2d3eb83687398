"""The graph as upstream, on a stand-in index: methods do what they say, records are what they are, owners apart."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidFilter, RecallFailed, StageFailed, StageTimeout
from contracts.filters import In
from contracts.records import corpus_source
from contracts.stages import EmbedRequest, QueryVectors
from gateway.config import AgenticConfig, GraphUpstreamConfig, RerankConfig
from gateway.graph_upstream import GraphUpstream
from gateway.upstream import ARRAYS, Owner, UpstreamAnswer, UpstreamQuery, User
from gateway.walk import Walk
from stages.chain import Chain, ChainConfig
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor
from tests.support.chain import fake_embedder, stages
from tests.support.fake_index import FakeIndex, record

ANN = User("Ann!", "acme", "memory.ann")
NEAR, FAR = (1.0, 0.0), (0.0, 1.0)


def at(cosine: float) -> tuple[float, float]:
    return (cosine, (1 - cosine**2) ** 0.5)


def memory(name: str, text: str = "", of: str = "fact", *, space: str = "memory.ann", **fields: Any) -> dict[str, Any]:
    """A record of the memory corpus."""
    attrs = {"memory_type": (of,), "source": (name.split("/", maxsplit=1)[0],), **fields.pop("attrs", {})}
    return record(
        f"strata://{space}/memory/{name}",
        text or name,
        **{
            "context_type": "memory",
            "source_id": corpus_source("memory", space),
            "attrs": attrs,
            "kind": "memory",
            "parent_uri": "",
            "content": text or name,
            "vector": NEAR,
        }
        | fields,
    )


class FakeModel:
    """A language model that answers what the test says, in order; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def ask(self, task: str, material: Any, deadline: Deadline) -> dict[str, Any]:
        self.asked.append(material)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Nothing."""


def upstream(
    index: FakeIndex, model: FakeModel | None = None, *, must: Any = None, embedder: Any = fake_embedder, **config: Any
) -> GraphUpstream:
    chain = Chain(replace(stages(index), embedder=embedder), ChainConfig())
    redactor = Redactor(RedactionConfig())
    reader = Reader(index, index, index, ReaderConfig(), redactor)
    settings = GraphUpstreamConfig(**config)
    language_model: Any = model
    return GraphUpstream(Walk(chain, reader, redactor, settings.candidates), settings, language_model, must)


async def search(
    records: Sequence[dict[str, Any]] | FakeIndex,
    query: str = "green tea",
    *,
    on: Any = None,
    seconds: float = 10,
    **changes: Any,
) -> UpstreamAnswer:
    index = records if isinstance(records, FakeIndex) else FakeIndex(records)
    fields: dict[str, Any] = {
        "owner": Owner("user_id", "Ann!"),
        "query": query,
        "method": "hybrid",
        "top_k": 8,
        "radius": None,
        "include_profile": False,
        "enable_llm_rerank": False,
        "app_id": "default",
        "project_id": "default",
    }
    asked = UpstreamQuery(
        **fields | {name: changes.pop(name) for name in list(changes) if name in fields or name == "filters"}
    )
    return await (on or upstream(index, **changes)).search(ANN, Deadline.after(seconds), asked)


def ids(answer: UpstreamAnswer, array: str = "episodes") -> list[str]:
    return [item["id"] for item in getattr(answer, array)]


async def no_embedder(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
    raise StageFailed("Down.")


WORDS, MEANING = memory("words", "green tea", vector=FAR), memory("meaning", "a hot drink", vector=at(0.9))
BOTH = memory("both", "green leaves", vector=at(0.8))


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

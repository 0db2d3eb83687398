"""The memory and web corpora through the core, on both backends; with real dialogues and pages where there are any."""

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.errors import MissingDimension, TargetForbidden
from contracts.ports import WritableIndex
from corpora.rag.registry import RegistryConfig, load_adapters
from evaluation.datasets import Dataset, load
from tests.support.small_corpora import SmallCorpora, small_corpora

EVAL = Path(__file__).parents[3] / "shared" / "eval"
ALICE = RequestContext("acme", user_space="user:alice", agent_space="agent:helper")
AGENT = RequestContext("acme", "agent", "user:alice", "agent:helper")
WHERE = {"user_id": "alice", "assistant_id": "helper", "conversation_id": "c1"}
TEA = "Alice drinks green tea."


@pytest.fixture
def corpora(index: WritableIndex) -> SmallCorpora:
    return small_corpora(index, load_adapters(RegistryConfig()))


def dataset(name: str, limit: int | None = None) -> Dataset:
    if not (EVAL / name / "corpus.jsonl").is_file():
        pytest.skip(f"there is no {EVAL / name}")
    return load(EVAL / name, limit)


async def memories(corpora: SmallCorpora, ctx: RequestContext = ALICE, query: str = "tea", **options: Any) -> list[str]:
    return [hit.text for hit in await corpora.hits(ctx, "memory", query, dimensions=WHERE, options=options)]


async def test_a_memory_is_found_under_its_three_dimensions_and_under_no_others(corpora: SmallCorpora) -> None:
    """R4, R6."""
    await corpora.ingest(ALICE, "memory", {**WHERE, "items": [{"text": TEA, "source_id": "m1"}]})
    (found,) = await corpora.hits(ALICE, "memory", "tea", dimensions=WHERE)
    assert (found.source_id, found.text, found.attrs["memory_type"]) == ("m1", TEA, ("fact",))
    for name in WHERE:
        with pytest.raises(MissingDimension, match=name):
            await corpora.hits(ALICE, "memory", "tea", dimensions={key: WHERE[key] for key in WHERE if key != name})
    for other in ({"assistant_id": "x"}, {"conversation_id": "x"}):
        assert not await corpora.hits(ALICE, "memory", "tea", dimensions=WHERE | other)
    with pytest.raises(TargetForbidden):
        await corpora.hits(ALICE, "memory", "tea", dimensions=WHERE | {"user_id": "bob"})
    assert not await corpora.hits(RequestContext("rival", user_space="user:alice"), "memory", "tea", dimensions=WHERE)


async def test_what_a_caller_is_not_cleared_for_never_shows(corpora: SmallCorpora) -> None:
    """R4."""
    levels = ("public", "internal", "private", "secret")
    items = [{"text": f"{TEA} That is {level}.", "sensitivity_level": level} for level in levels]
    await corpora.ingest(ALICE, "memory", {**WHERE, "items": items})
    admin = RequestContext("acme", "admin")
    assert [len(await memories(corpora, ctx)) for ctx in (AGENT, ALICE, admin)] == [2, 3, 4]
    assert [len(await memories(corpora, ALICE, max_sensitivity=level)) for level in levels] == [1, 2, 3, 3]


async def test_a_memory_whose_level_is_raised_is_gone_for_those_not_cleared(corpora: SmallCorpora) -> None:
    for level, shown in (("public", [TEA]), ("secret", [])):
        item = {"text": TEA, "source_id": "m1", "sensitivity_level": level}
        await corpora.ingest(ALICE, "memory", {**WHERE, "items": [item]})
        assert await memories(corpora) == shown


async def test_a_memory_whose_time_is_over_does_not_show(corpora: SmallCorpora) -> None:
    now = int(time.time() * 1000)
    items = [{"text": f"{TEA} {word}", "ttl_at": now + hours * 3_600_000} for word, hours in (("Old", -1), ("New", 1))]
    await corpora.ingest(ALICE, "memory", {**WHERE, "items": items})
    assert await memories(corpora) == [f"{TEA} New"]


async def test_options_narrow_by_confidence_and_type_and_constraints_come_first(corpora: SmallCorpora) -> None:
    """R4."""
    items: list[dict[str, Any]] = [
        {"text": "Tea, tea, green tea.", "memory_type": "fact", "confidence": 0.4},
        {"text": "No milk in the tea of the user, whatever else is said.", "memory_type": "constraint"},
    ]
    await corpora.ingest(ALICE, "memory", {**WHERE, "items": items})
    fact, constraint = (item["text"] for item in items)
    assert await memories(corpora) == [constraint, fact]
    assert await memories(corpora, min_confidence=0.5) == [constraint]
    assert await memories(corpora, memory_types=["fact"]) == [fact]


async def test_a_page_is_found_in_its_session_or_by_its_query_and_nowhere_else(corpora: SmallCorpora) -> None:
    """R5, R6."""
    page = {"url": "https://example.com/tea", "content": "Green tea comes from China."}
    await corpora.ingest(ALICE, "web", {"session_id": "s1", "query_id": "q1", "pages": [page]})
    await corpora.ingest(ALICE, "web", {"session_id": "s2", "pages": [page | {"content": "Black tea."}]})

    async def texts(ctx: RequestContext = ALICE, **dimensions: str) -> list[str]:
        return [hit.text for hit in await corpora.hits(ctx, "web", "tea", dimensions=dimensions)]

    assert await texts(session_id="s1") == await texts(query_id="q1") == [page["content"]]
    assert await texts(session_id="s2") == ["Black tea."]
    assert await texts(session_id="s2", query_id="q1") == await texts(session_id="s3") == []
    assert await texts(RequestContext("acme", user_space="user:bob"), session_id="s1") == []
    with pytest.raises(MissingDimension):
        await texts()


async def test_a_copy_of_a_page_shows_once_from_the_more_trusted_address(corpora: SmallCorpora) -> None:
    """R5."""
    content = "Green tea comes from China."
    pages = [{"url": url, "content": content} for url in ("https://blog.example.com/a", "https://tea.gov.cn/b")]
    await corpora.ingest(ALICE, "web", {"session_id": "s1", "pages": pages})
    (found,) = await corpora.hits(ALICE, "web", "tea", dimensions={"session_id": "s1"})
    assert found.attrs["url"] == ("https://tea.gov.cn/b",)


def dialogues(data: Dataset, conversation: str) -> Iterator[dict[str, Any]]:
    """The sessions of a conversation as bodies; a turn's text is ``Speaker: words``, its id ``conv/D1:3``."""
    own = [passage for passage in data.passages if passage.conv == conversation]
    for session, turns in groupby(own, key=lambda passage: passage.id.rpartition(":")[0]):
        said = list(turns)
        spoken = [(turn.id, *turn.text.partition(": ")) for turn in said]
        yield {
            "session_id": session,
            "date": said[0].title,
            "turns": [{"id": name, "speaker": speaker, "text": text or "…"} for name, speaker, _, text in spoken],
        }


async def test_questions_about_real_dialogues_find_their_turns(corpora: SmallCorpora) -> None:
    """R4 on LoCoMo, by words alone."""
    data = dataset("locomo")
    conversation = data.passages[0].conv
    where = WHERE | {"conversation_id": conversation}
    sources = await corpora.ingest(ALICE, "memory", {**where, "dialogues": list(dialogues(data, conversation))})
    turns = sum(len(source.passages) for source in sources)
    assert turns == sum(passage.conv == conversation for passage in data.passages)
    asked = [question for question in data.questions if question.conv == conversation][:40]
    found = 0
    for question in asked:
        hits = await corpora.hits(ALICE, "memory", question.text, dimensions=where, top_k=10)
        ids = {hit.attrs["id"][0] for hit in hits}
        found += bool(ids & data.qrels[question.id].keys())
    assert found > 0.6 * len(asked)
    assert not await corpora.hits(ALICE, "memory", asked[0].text, dimensions=WHERE)


async def test_questions_about_real_pages_find_them_in_their_session(corpora: SmallCorpora) -> None:
    """R5 on rgb_zh, by words alone."""
    data = dataset("rgb_zh", limit=30)
    wanted = {name for question in data.questions for name in data.qrels[question.id]}
    own = [passage for passage in data.passages if passage.id in wanted]
    others = [passage for passage in data.passages if passage.id not in wanted][:300]
    for session, passages in (("s1", own + others[:150]), ("s2", others[150:])):
        pages = [{"url": f"https://example.com/{each.id}", "content": each.text} for each in passages]
        await corpora.ingest(ALICE, "web", {"session_id": session, "pages": pages})
    found = 0
    for question in data.questions:
        hits = await corpora.hits(ALICE, "web", question.text, dimensions={"session_id": "s1"})
        assert all(hit.attrs["session_id"] == ("s1",) for hit in hits)
        ids = {hit.attrs["url"][0].rpartition("/")[2] for hit in hits}
        found += bool(ids & data.qrels[question.id].keys())
    assert found > 0.9 * len(data.questions)

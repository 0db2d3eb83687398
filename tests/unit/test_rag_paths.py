"""What is remembered of rankings, and until when (R9)."""

import asyncio
from typing import Any

import pytest

from contracts.errors import RecallFailed, StageTimeout
from contracts.trace import Degradation
from corpora.rag.cache import CacheConfig
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import Decision, Ranking, Retrieved
from tests.support.corpora import CTX, World, node, ranking, uri


async def retrieve(world: World, query: str = "tea", ctx: Any = CTX, **fields: Any) -> Retrieved:
    return await world.core.retrieve(ctx, "notes", RetrieveRequest(query=query, dimensions={"session": "s1"}, **fields))


def uses(world: World) -> list[str]:
    return [event.cache for event in world.events.retrievals]


async def test_the_same_question_again_is_answered_by_one_read_and_no_search() -> None:
    world = World("a", "b")
    world.graph.result = ranking("a", "b", below_threshold=4)
    first = await retrieve(world)
    reads = len(world.reader.asked)
    again = await retrieve(world, " tea\n")
    assert (len(world.graph.asked), len(world.reader.asked) - reads) == (1, 1)
    assert (again.hits, again.below_threshold, again.cached) == (first.hits, 4, True)
    assert (first.cached, uses(world)) == (False, ["miss", "hit"])


@pytest.mark.parametrize(
    "change",
    [
        {"query": "Tea"},
        {"query": "te a"},
        {"top_k": 50, "query": "coffee"},
        {"threshold": 0.6},
        {"rerank": False},
        {"filter": {"eq": {"tags": "x"}}},
    ],
)
async def test_another_question_is_searched_for(change: dict[str, Any]) -> None:
    world = World("a", candidates=20)
    await retrieve(world)
    await retrieve(world, **change)
    assert uses(world) == ["miss", "miss"]


async def test_a_write_makes_the_next_one_search_anew_and_the_one_after_remember() -> None:
    world = World("a", "b")
    world.graph.result = ranking("a")
    await retrieve(world)
    world.reader.revision, world.graph.result = "2", ranking("b", "a")
    answer = await retrieve(world)
    assert [hit.source_id for hit in answer.hits] == ["b", "a"]
    assert [hit.source_id for hit in (await retrieve(world)).hits] == ["b", "a"]
    assert uses(world) == ["miss", "miss", "hit"]


async def test_what_was_written_while_a_search_was_under_way_is_not_missed_by_the_next() -> None:
    world = World("a", "b")
    world.graph.result = ranking("a")

    async def overtaken() -> Ranking:
        world.reader.revision = "2"
        return ranking("a")

    world.graph.act = overtaken
    await retrieve(world)
    world.graph.act, world.graph.result = world.graph.answer, ranking("b")
    assert [hit.source_id for hit in (await retrieve(world)).hits] == ["b"]
    assert uses(world) == ["miss", "miss"]


async def test_a_record_that_may_no_longer_show_does_not_though_its_ranking_is_remembered() -> None:
    world = World("a", "b", "c")
    await retrieve(world)
    del world.reader.nodes[uri("a")]
    world.reader.nodes[uri("b")] = node("b", attrs={"session": ("s2",), "source": ("b",)})
    answer = await retrieve(world)
    assert (answer.cached, [hit.source_id for hit in answer.hits]) == (True, ["c"])


async def test_a_degraded_answer_is_not_remembered() -> None:
    world = World("a")
    world.graph.result = ranking("a", degraded=(Degradation("embedder", "RET-5041: late", 250),))
    await retrieve(world)
    world.graph.result = ranking("a")
    await retrieve(world)
    await retrieve(world)
    assert uses(world) == ["miss", "miss", "hit"]


async def test_an_answer_emptied_by_a_failure_is_not_remembered_and_an_honestly_empty_one_is() -> None:
    world = World()
    world.graph.fail(RecallFailed("x"))
    assert (await retrieve(world)).retryable and len(world.cache) == 0
    world.graph.act = world.graph.answer
    await retrieve(world)
    assert (await retrieve(world)).cached
    world.reader.revision = "2"
    assert not (await retrieve(world)).cached


async def test_the_two_paths_do_not_share_what_they_found() -> None:
    world = World("a", "b")
    world.keyword.result = ranking("b")
    await retrieve(world)
    world.switch.decision = Decision("keyword")
    assert [hit.source_id for hit in (await retrieve(world)).hits] == ["b"]
    assert uses(world) == ["miss", "miss"]


async def test_where_the_revision_can_not_be_had_an_answer_comes_all_the_same_and_is_not_remembered() -> None:
    world = World("a")
    reader, failing = world.reader, True

    async def read(*args: Any) -> Any:
        if failing and not args[2].uris:
            raise StageTimeout("late")
        return await reader(*args)

    world.core._paths._texts._reader = read
    assert (await retrieve(world)).hits and len(world.cache) == 0
    failing = False
    await retrieve(world)
    assert (await retrieve(world)).cached


async def test_a_cache_that_is_off_asks_for_no_revision() -> None:
    world = World("a", cache=CacheConfig(entries=0))
    await retrieve(world)
    await retrieve(world)
    assert (uses(world), len(world.reader.asked)) == (["off", "off"], 2)


async def test_one_question_of_many_at_once_is_searched_for_once() -> None:
    world = World("a")
    go = asyncio.Event()

    async def wait() -> Ranking:
        await go.wait()
        return ranking("a")

    world.graph.act = wait
    tasks = [asyncio.create_task(retrieve(world)) for _ in range(5)]
    while not world.graph.asked:  # noqa: ASYNC110 -- the tasks only have to be let run
        await asyncio.sleep(0)
    go.set()
    answers = await asyncio.gather(*tasks)
    assert all(answer.hits == answers[0].hits for answer in answers) and len(world.graph.asked) == 1


async def test_one_who_had_more_time_is_not_failed_by_the_one_it_waited_for() -> None:
    world = World("a")
    hurried = asyncio.create_task(retrieve(world, timeout_ms=30))
    world.graph.act = world.keyword.act = world.graph.hang
    while not world.graph.asked:  # noqa: ASYNC110 -- the task only has to be let run
        await asyncio.sleep(0)
    patient = asyncio.create_task(retrieve(world))
    await asyncio.sleep(0)
    world.graph.act = world.graph.answer
    with pytest.raises(StageTimeout):
        await hurried
    assert (await patient).path == "rag"

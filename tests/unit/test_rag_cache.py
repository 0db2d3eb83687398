"""The hot-query cache (R9): bounded, aged, and never across tenants; and work that several want at once."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.filters import And, Eq, Filter
from contracts.hits import ScoreBreakdown
from contracts.scope import narrowed
from contracts.trace import Degradation
from corpora.rag.cache import CacheConfig, Entry, Flights, RankingCache, key
from corpora.rag.types import CorpusQuery, Path, Ranked, Ranking, Scope

ALL = And(())


class FakeClock:
    """A clock that stands until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def ranking(uri: str = "strata://shared/a", **changes: Any) -> Ranking:
    return Ranking((Ranked(uri, 0.9, 0.9, ScoreBreakdown()),), **changes)


def query(space: str = "user:ann", must: Filter = ALL, text: str = "tea", **changes: Any) -> CorpusQuery:
    scope = Scope(space, must, "memory")
    made = CorpusQuery(text, scope, And((Eq("owner_space", space), must)), 50, 0.55, rerank=True)
    return msgspec.structs.replace(made, **changes)


def test_what_was_kept_is_there_until_it_is_too_old() -> None:
    clock = FakeClock()
    cache = RankingCache(CacheConfig(entries=2, max_age_s=10), clock)
    entry = Entry(ranking(), "1")
    cache.put(b"a", entry)
    clock.now = 9.9
    assert cache.get(b"a") is entry and cache.get(b"b") is None
    clock.now = 10.0
    assert cache.get(b"a") is None and len(cache) == 0


def test_a_full_cache_forgets_what_was_unused_for_longest() -> None:
    cache = RankingCache(CacheConfig(entries=2))
    for name in (b"a", b"b"):
        cache.put(name, Entry(ranking(), "1"))
    assert cache.get(b"a")
    cache.put(b"c", Entry(ranking(), "1"))
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


def test_a_degraded_ranking_is_not_kept_and_a_cache_of_no_entries_keeps_none() -> None:
    cache = RankingCache(CacheConfig())
    cache.put(b"a", Entry(ranking(degraded=(Degradation("reranker", "RET-5041: late", 1),)), "1"))
    off = RankingCache(CacheConfig(entries=0))
    off.put(b"a", Entry(ranking(), "1"))
    assert (len(cache), len(off), cache.on, off.on) == (0, 0, True, False)


names = st.sampled_from(["acme", "acme ", "rival", "a", ""])
spaces = st.sampled_from(["user:ann", "user:bob", "shared", "web.user_ann"])
contexts = st.builds(
    RequestContext,
    account_id=names,
    role=st.sampled_from(["user", "agent", "admin"]),
    user_space=spaces,
    agent_space=spaces,
    spaces=st.lists(spaces, max_size=2).map(tuple),
    request_id=st.text(max_size=3),
)
paths: st.SearchStrategy[Path] = st.sampled_from(["rag", "keyword"])
asks = st.builds(
    query,
    space=spaces,
    must=st.sampled_from([ALL, Eq("attrs.session", "s1"), Eq("attrs.session", "s2")]),
    text=st.sampled_from(["tea", "Tea", "te a", "茶"]),
    candidates=st.integers(1, 50),
    threshold=st.sampled_from([0.0, 0.55]),
    rerank=st.booleans(),
)
calls = st.tuples(contexts, st.sampled_from(["memory", "web"]), paths, asks, st.sampled_from(["m1", "m2"]))


def named(ctx: RequestContext, corpus: str, path: Path, asked: CorpusQuery, settings: str) -> bytes:
    return key(narrowed(ctx, asked.scope.space), corpus, path, asked, settings)


@given(calls, calls)
def test_two_retrievals_share_an_entry_when_and_only_when_all_that_changes_the_answer_is_the_same(
    one: tuple[Any, ...], other: tuple[Any, ...]
) -> None:
    """R9: two contexts that differ in account or space never share one."""
    same = one[0].account_id == other[0].account_id and one[1:] == other[1:]
    assert (named(*one) == named(*other)) is same


@given(contexts, contexts, asks)
def test_who_else_may_see_a_space_does_not_matter(
    one: RequestContext, other: RequestContext, asked: CorpusQuery
) -> None:
    """The corpus has decided who may search a space; what is found there is the same for all of them."""
    other = msgspec.structs.replace(other, account_id=one.account_id)
    assert named(one, "memory", "rag", asked, "m") == named(other, "memory", "rag", asked, "m")


class FakeWork:
    """Work that takes until the test lets it go on, and counts."""

    def __init__(self, *results: Any) -> None:
        self.begun = self.cancelled = 0
        self.go = asyncio.Event()
        self._results = list(results)

    async def __call__(self) -> Any:
        self.begun += 1
        result = self._results.pop(0)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(result, Exception):
            raise result
        return result


async def begun(*tasks: "asyncio.Task[Any]") -> None:
    """Let tasks run until they wait."""
    for _ in range(5 * len(tasks)):
        await asyncio.sleep(0)


def flights() -> Flights[str]:
    return Flights(lambda result: result != "degraded")


async def test_the_same_work_is_done_once_for_all_that_want_it_at_once() -> None:
    work, flight = FakeWork("found"), flights()
    tasks = [asyncio.create_task(flight.run(b"a", work)) for _ in range(5)]
    await begun(*tasks)
    work.go.set()
    assert await asyncio.gather(*tasks) == ["found"] * 5
    assert work.begun == 1


async def test_other_work_and_later_work_is_done_anew() -> None:
    work, flight = FakeWork("1", "2", "3"), flights()
    work.go.set()
    assert await asyncio.gather(flight.run(b"a", work), flight.run(b"b", work)) == ["1", "2"]
    assert await flight.run(b"a", work) == "3"


async def test_one_who_began_it_and_gives_up_leaves_the_others_theirs() -> None:
    work, flight = FakeWork("found"), flights()
    leader, follower = (asyncio.create_task(flight.run(b"a", work)) for _ in range(2))
    await begun(leader, follower)
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    work.go.set()
    assert (await follower, work.begun, work.cancelled) == ("found", 1, 0)


async def test_work_that_nobody_waits_for_any_more_is_cancelled_and_none_joins_it() -> None:
    work, flight = FakeWork("lost", "found"), flights()
    tasks = [asyncio.create_task(flight.run(b"a", work)) for _ in range(2)]
    await begun(*tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    work.go.set()
    assert await flight.run(b"a", work) == "found"
    assert (work.begun, work.cancelled) == (2, 1)


@pytest.mark.parametrize("first", [RuntimeError("with a secret"), "degraded"])
async def test_a_failure_is_not_shared_each_who_waited_tries_by_itself(first: Any) -> None:
    work, flight = FakeWork(first, "2", "3"), flights()
    tasks = [asyncio.create_task(flight.run(b"a", work)) for _ in range(3)]
    await begun(*tasks)
    work.go.set()
    leader, *followers = await asyncio.gather(*tasks, return_exceptions=True)
    assert (str(leader), sorted(map(str, followers)), work.begun) == (str(first), ["2", "3"], 3)

"""Who gets which path (R8): property tests of the buckets, and the view that never waits for the database."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import DatabaseDown, InvalidInput
from corpora.rag.rollout import Rollout, Switches, SwitchState, sticky, switch_corpus
from corpora.rag.rollout_config import RolloutConfig, SwitchConfig
from corpora.rag.types import Decision
from tests.support.waiting import until

users = st.text(min_size=1)
percents = st.integers(0, 100)


class FakeSwitches:
    """A store that answers when the test lets it."""

    def __init__(self) -> None:
        self.answer: dict[str, SwitchState] | Exception = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0

    async def all(self) -> dict[str, SwitchState]:
        self.asked += 1
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class FakeClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FakeSwitches:
    fake = FakeSwitches()
    monkeypatch.setattr(Switches, "all", lambda _: fake.all())
    return fake


def rollout(clock: FakeClock, config: RolloutConfig | None = None) -> Rollout:
    return Rollout(None, config or RolloutConfig(), clock)  # type: ignore[arg-type]  # the fake store needs none


def state(percent: int = 100, *, enabled: bool = True, shadow: bool = False) -> SwitchState:
    return SwitchState(enabled, percent, shadow, 1)


@given(users, percents, percents)
def test_whoever_is_in_at_a_small_share_is_in_at_any_larger(user: str, one: int, other: int) -> None:
    small, large = sorted((one, other))
    if state(small).decide("web.rag", user).path == "rag":
        assert state(large).decide("web.rag", user).path == "rag"


@given(users)
def test_nobody_is_in_at_0_or_off_and_everybody_at_100(user: str) -> None:
    assert state(0).decide("web.rag", user).path == "keyword"
    assert state(enabled=False).decide("web.rag", user).path == "keyword"
    assert state(100).decide("web.rag", user).path == "rag"


@given(users, st.booleans(), percents, st.booleans())
def test_a_shadow_runs_for_everybody_or_nobody(user: str, enabled: bool, percent: int, shadow: bool) -> None:
    assert SwitchState(enabled, percent, shadow).decide("web.rag", user).shadow is shadow


@pytest.mark.parametrize("percent", [1, 25, 50, 90])
def test_about_the_right_share_is_in(percent: int) -> None:
    """Of 20,000 users; four standard deviations are at most 1.5 of a hundred."""
    found = sum(state(percent).decide("web.rag", f"acme/user:{n}").path == "rag" for n in range(20_000)) / 200
    assert abs(found - percent) < 1.5


def test_switches_pick_different_users() -> None:
    """The users of one experiment are not those of the next."""
    both = sum(sticky(f"user:{n}", "web.rag") < 50 and sticky(f"user:{n}", "memory.rag") < 50 for n in range(20_000))
    assert abs(both / 200 - 25) < 1.5


def test_a_user_has_the_same_bucket_in_every_process() -> None:
    """Python's own hash would not: it is salted."""
    names = ["acme/user:alice", "", "用户", "a\0b"]
    program = f"from corpora.rag.rollout import sticky; print([sticky(user, 'web.rag') for user in {names!r}])"
    root = Path(__file__).parents[2]
    found = {
        subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, cwd=root, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{[sticky(user, 'web.rag') for user in names]}\n".encode()}


async def test_before_anything_is_known_the_settings_hold(clock: FakeClock, store: FakeSwitches) -> None:
    config = RolloutConfig(corpora={"web": SwitchConfig(enabled=False, shadow=True)})
    store.gate.clear()
    live = rollout(clock, config)
    assert await live.decide("web", "alice") == Decision("keyword", True)
    assert await live.decide("memory", "alice") == Decision("rag")
    await live.close()


async def test_a_process_that_starts_follows_the_switches_from_its_first_request(
    clock: FakeClock, store: FakeSwitches
) -> None:
    """A path that was switched off does not come back with a restart."""
    store.answer = {"web.rag": state(enabled=False)}
    live = rollout(clock)
    await live.start()
    assert (await live.decide("web", "alice")).path == "keyword"
    assert (await live.decide("memory", "alice")).path == "rag"


async def test_a_change_holds_without_a_restart_and_is_looked_for_once_a_second(
    clock: FakeClock, store: FakeSwitches
) -> None:
    live = rollout(clock)
    await live.start()
    store.answer = {"web.rag": state(enabled=False)}
    for _ in range(100):
        assert (await live.decide("web", "alice")).path == "rag"
    assert store.asked == 1
    clock.now += 1
    await live.decide("web", "alice")

    async def followed() -> bool:
        return (await live.decide("web", "alice")).path == "keyword"

    await until(followed)
    assert store.asked == 2


async def test_the_first_request_after_a_quiet_time_follows_what_was_set_meanwhile(
    clock: FakeClock, store: FakeSwitches
) -> None:
    live = rollout(clock)
    await live.start()
    store.answer = {"web.rag": state(enabled=False)}
    clock.now += 3600
    assert (await live.decide("web", "alice")).path == "keyword"


async def test_requests_do_not_wait_for_a_slow_database_and_ask_it_once(clock: FakeClock, store: FakeSwitches) -> None:
    live = rollout(clock)
    store.answer = {"web.rag": state(enabled=False)}
    await live.start()
    store.gate.clear()
    for _ in range(10):
        clock.now += 5
        assert (await live.decide("web", "alice")).path == "keyword"
        await asyncio.sleep(0)
    assert store.asked == 2
    await live.close()


async def test_while_the_database_is_down_the_last_known_holds_and_is_said_once(
    clock: FakeClock, store: FakeSwitches, caplog: pytest.LogCaptureFixture
) -> None:
    live = rollout(clock)
    store.answer = {"web.rag": state(enabled=False)}
    await live.start()
    store.answer = DatabaseDown("gone")
    for asked in (2, 3, 4):
        clock.now += 1
        assert (await live.decide("web", "alice")).path == "keyword"
        await until(lambda asked=asked: store.asked == asked and live._reading.done())
    assert len(caplog.records) == 1
    store.answer = {}
    clock.now += 1

    async def followed() -> bool:
        return (await live.decide("web", "alice")).path == "rag"

    await until(followed)


async def test_a_process_starts_without_its_database(clock: FakeClock, store: FakeSwitches) -> None:
    store.answer = DatabaseDown("gone")
    live = rollout(clock)
    await live.start()
    assert await live.decide("web", "alice") == Decision("rag")


def test_an_unknown_switch_is_refused_with_those_that_there_are() -> None:
    assert switch_corpus("web.rag", ["web", "memory"]) == "web"
    for name in ("web", "wiki.rag", "", "x" * 1000):
        with pytest.raises(InvalidInput) as caught:
            switch_corpus(name, ["web", "memory"])
        assert "memory.rag, web.rag" in caught.value.remedy
        assert len(str(caught.value)) < 300

"""The ingress's side of the limits, over a real ledger in this process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RateLimited, StageFailed
from deployments.identity.caller import Caller
from deployments.limits.config import Limit, LimitsSettings
from deployments.limits.ledger import Ledger
from deployments.limits.limiter import Limiter, unlimited
from deployments.limits.messages import LeaseReply, LeaseRequest
from tests.support.waiting import until

ALICE = Caller(RequestContext("acme"), "key-1")
BOB = Caller(RequestContext("acme"), "key-2")
DOWN = StageFailed("Down.", stage="limits")
RIVAL = Caller(RequestContext("rival"), "key-3")


class FakeHop:
    """The way to the ledger: counts calls, and fails or waits when the test says so."""

    def __init__(self, settings: LimitsSettings) -> None:
        ahead = 0.0
        self.ledger = Ledger(settings, lambda: time.monotonic() + ahead)
        ahead = 1e9  # It has run for long, and its buckets are full.
        self.calls = 0
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: LeaseRequest, /) -> LeaseReply:
        self.calls += 1
        if self.error:
            raise self.error
        if self.gate:
            await self.gate.wait()
        await asyncio.sleep(0)
        return self.ledger.lease(request)


class FakeIngress:
    """A limiter with its hop and what it counted."""

    def __init__(self, settings: LimitsSettings, hop: FakeHop | None = None) -> None:
        self.hop = hop or FakeHop(settings)
        self.refused: list[str] = []
        self.alone: list[str] = []
        self.limiter = Limiter(settings, self.hop, 2, self.refused.append, self.alone.append)
        self.open = asyncio.Event()

    async def request(self, caller: Caller = ALICE) -> bool:
        """One that is done at once; whether it was admitted."""
        try:
            async with self.limiter.admitted(caller):
                return True
        except RateLimited:
            return False

    async def hold(self, caller: Caller = ALICE) -> bool:
        """One that runs until the test opens."""
        try:
            async with self.limiter.admitted(caller):
                await self.open.wait()
                return True
        except RateLimited:
            return False


@pytest.fixture
async def ingress() -> AsyncIterator[Callable[..., FakeIngress]]:
    made = []

    def make(hop: FakeHop | None = None, lease_s: float = 60.0, **limits: Limit) -> FakeIngress:
        made.append(FakeIngress(LimitsSettings.model_validate({"lease_s": lease_s, **limits}), hop))
        return made[-1]

    yield make
    for each in made:
        await each.limiter.close()


async def settled(ingress: FakeIngress) -> None:
    """No call to the ledger is under way or due."""
    await until(lambda: ingress.limiter._calls is None)


async def test_a_burst_is_admitted_and_no_more(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=0.001, burst=10))
    assert sum([await one.request() for _ in range(30)]) == 10
    assert one.refused == ["account_rate"] * 20
    assert await one.request(RIVAL)


async def test_requests_that_come_at_once_share_calls(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=0.001, burst=50))
    assert sum(await asyncio.gather(*(one.request() for _ in range(200)))) == 50
    assert one.hop.calls < 10


async def test_far_from_its_limit_a_request_costs_no_call(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=1000, burst=1000, concurrent=100), key=Limit(rate_per_s=500, burst=900))
    assert all([await one.request() for _ in range(100)])
    assert one.hop.calls == 1


async def test_two_ingresses_share_one_limit(ingress: Callable[..., FakeIngress]) -> None:
    limit = Limit(rate_per_s=0.001, burst=20)
    one = ingress(account=limit)
    other = ingress(one.hop, account=limit)
    admitted = await asyncio.gather(*(each.request() for _ in range(40) for each in (one, other)))
    assert sum(admitted) == 20


async def test_requests_at_once_are_limited_and_a_place_is_free_again_when_one_is_done(
    ingress: Callable[..., FakeIngress],
) -> None:
    limit = Limit(concurrent=3)
    one = ingress(account=limit)
    other = ingress(one.hop, account=limit)
    waiting = [asyncio.create_task(each.hold()) for _ in range(3) for each in (one, other)]
    done, running = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 3:
        more, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert not any(task.result() for task in done)
    one.open.set()
    other.open.set()
    assert all(await asyncio.gather(*running))
    for each in (one, other):
        await settled(each)
    assert {*one.refused, *other.refused} == {"account_concurrent"}
    for each in (one, other):
        await until(each.request)
        await settled(each)


async def test_a_key_is_limited_within_its_account(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=0.001, burst=8), key=Limit(rate_per_s=0.001, burst=5))
    assert sum([await one.request(ALICE) for _ in range(9)]) == 5
    assert set(one.refused) == {"key_rate"}
    assert sum([await one.request(BOB) for _ in range(9)]) == 3
    assert one.refused[-1] == "account_rate"


async def test_an_account_with_a_limit_of_its_own_goes_by_that(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=0.001, burst=2), accounts={"rival": Limit()})
    assert sum([await one.request(ALICE) for _ in range(9)]) == 2
    assert all([await one.request(RIVAL) for _ in range(9)])


async def test_a_refusal_says_when_to_come_again_and_whose_limit_it_was(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=0.1, burst=1))
    assert await one.request()
    with pytest.raises(RateLimited) as caught:
        async with one.limiter.admitted(ALICE):
            pass
    assert 9 < caught.value.retry_after <= 10
    assert "account" in caught.value.message
    assert "acme" not in str(caught.value)


async def test_refused_ones_ask_no_more_than_it_takes(ingress: Callable[..., FakeIngress]) -> None:
    """Who is far over the limit costs the ledger nothing."""
    one = ingress(account=Limit(rate_per_s=0.001, burst=1))
    assert await one.request()
    await settled(one)
    before = one.hop.calls
    assert not any([await one.request() for _ in range(100)])
    assert one.hop.calls <= before + 2


async def test_without_the_ledger_it_goes_on_with_what_it_holds_and_then_with_an_equal_part(
    ingress: Callable[..., FakeIngress],
) -> None:
    """Each is counted; the second ingress is counted in, too."""
    one = ingress(account=Limit(rate_per_s=0.001, burst=80))
    assert await one.request()
    one.hop.error = DOWN
    assert all([await one.request() for _ in range(80 // 4 - 1)])
    assert not one.alone
    assert sum([await one.request() for _ in range(80)]) == 80 // 2 - 80 // 4
    assert one.alone == ["RET-5004"] * 80


async def test_when_the_ledger_is_back_it_is_asked_again(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(rate_per_s=0.001, burst=40), lease_s=0.05)
    one.hop.error = DOWN
    assert await one.request()
    assert one.alone
    one.hop.error = None
    await until(lambda: not one.limiter._failing)
    counted = len(one.alone)
    assert await one.request()
    assert len(one.alone) == counted


async def test_an_unexpected_failure_is_no_other_than_an_expected_one(
    ingress: Callable[..., FakeIngress], caplog: pytest.LogCaptureFixture
) -> None:
    one = ingress(account=Limit(rate_per_s=0.001, burst=40))
    one.hop.error = RuntimeError("hunter2")
    assert await one.request()
    assert one.alone == ["RET-5000"]
    assert "RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_nobody_is_left_waiting_when_it_closes(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(concurrent=2))
    one.hop.gate = asyncio.Event()
    waiting = [asyncio.create_task(one.request()) for _ in range(5)]
    await until(lambda: one.hop.calls)
    await one.limiter.close()
    assert any(await asyncio.gather(*waiting))


async def test_a_client_that_hangs_up_while_it_waits_takes_nothing(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(account=Limit(concurrent=1))
    one.hop.gate = asyncio.Event()
    waiting = asyncio.create_task(one.request())
    await until(lambda: one.hop.calls)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    one.hop.gate.set()
    await settled(one)
    assert await one.request()


async def test_slots_of_requests_that_run_for_long_are_kept(ingress: Callable[..., FakeIngress]) -> None:
    """The ingress reports them every half lease."""
    limit = Limit(concurrent=1)
    one = ingress(account=limit, lease_s=0.05)
    other = ingress(one.hop, account=limit, lease_s=0.05)
    running = asyncio.create_task(one.hold())
    before = one.hop.calls
    while one.hop.calls < before + 20:
        await asyncio.sleep(0.01)
        assert not await other.request()
    one.open.set()
    assert await running


async def test_where_nothing_is_limited_nothing_is_asked(ingress: Callable[..., FakeIngress]) -> None:
    one = ingress(key=Limit(rate_per_s=1), accounts={"acme": Limit()})
    async with unlimited(ALICE):
        pass
    assert await one.request(ALICE)
    assert one.limiter._wallet._shares.keys() == {"key:key-1"}

"""The ledger and the wallets of several ingresses, in one process and under a clock of the test."""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.limits.config import Limit, LimitsSettings
from deployments.limits.ledger import Ledger
from deployments.limits.messages import Ask, LeaseReply, LeaseRequest
from deployments.limits.wallet import Wallet

NAME = "account:acme"


class FakeClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeIngress:
    """A wallet whose calls take as long, and get lost, as the test says."""

    def __init__(self, limits: LimitsSettings, clock: FakeClock) -> None:
        self.wallet = Wallet(limits, clock=clock)
        self.running = 0
        self.call: LeaseRequest | None = None
        self.reply: LeaseReply | None = None

    def admit(self) -> bool:
        if not self.wallet.admits(NAME):
            return False
        self.wallet.take(NAME)
        self.running += 1
        return True

    def send(self, want: int) -> None:
        if self.call is None and (want or self.wallet.owes):
            self.call = self.wallet.request({NAME: want} if want else {})

    def serve(self, ledger: Ledger) -> None:
        if self.call and self.reply is None:
            self.reply = ledger.lease(self.call)

    def deliver(self) -> None:
        if self.call and self.reply:
            self.wallet.receive(self.call, self.reply)
            self.call = self.reply = None

    def ask(self, ledger: Ledger, want: int) -> None:
        """One call, at once."""
        self.send(want)
        self.serve(ledger)
        self.deliver()

    def settle(self, ledger: Ledger) -> None:
        """The call under way, and giving back what is to be given back."""
        self.ask(ledger, 0)
        self.ask(ledger, 0)

    def request(self, ledger: Ledger) -> bool:
        """What the limiter does for one request."""
        admitted = self.admit()
        if not admitted and not self.wallet.refusal(NAME):
            self.ask(ledger, 1)
            admitted = self.admit()
        self.settle(ledger)
        return admitted

    def finish(self) -> None:
        self.running -= 1
        self.wallet.put(NAME)


class FakeGraph:
    """A ledger and its ingresses."""

    def __init__(self, limit: Limit, ingresses: int, *, beats: bool) -> None:
        self.limits = LimitsSettings(account=limit, lease_s=1.0)
        self.clock = FakeClock()
        self.ledger = Ledger(self.limits, self.clock)
        self.ingresses = [FakeIngress(self.limits, self.clock) for _ in range(ingresses)]
        self.late: list[LeaseRequest] = []
        self.admitted: list[float] = []
        self.beats = beats
        self.clock.now += 100_000.0  # Buckets are full by now.

    def do(self, what: str, which: int, count: int, seconds: float) -> None:  # noqa: PLR0912 - one a step
        ingress = self.ingresses[which % len(self.ingresses)]
        match what:
            case "spend":
                # All of them all they have: the worst moment is when everything comes at once.
                for each in self.ingresses:
                    while each.admit():
                        self.admitted.append(self.clock())
            case "send":
                ingress.send(count)
            case "ask":
                ingress.ask(self.ledger, count)
            case "serve":
                ingress.serve(self.ledger)
            case "deliver":
                ingress.deliver()
            case "lose" if ingress.call:
                ingress.wallet.lost(ingress.call)
                self.late.append(ingress.call)
                ingress.call = ingress.reply = None
            case "late" if self.late:
                self.ledger.lease(self.late.pop(0))
            case "finish":
                for _ in range(min(count, ingress.running)):
                    ingress.finish()
            case "return":
                ingress.send(0)
            case "die":
                if ingress.call:
                    self.late.append(ingress.call)
                self.ingresses[self.ingresses.index(ingress)] = FakeIngress(self.limits, self.clock)
            case "wait":
                self.wait(seconds)

    def wait(self, seconds: float) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.now = min(end, self.clock() + self.limits.lease_s / 2)
            for ingress in self.ingresses if self.beats else ():
                ingress.settle(self.ledger)
                ingress.wallet.renew()
                ingress.settle(self.ledger)

    @property
    def running(self) -> int:
        return sum(ingress.running for ingress in self.ingresses)


def steps(*often: str) -> st.SearchStrategy[list[tuple[str, int, int, float]]]:
    """Steps for ``FakeGraph.do``: calls whole and in pieces, lost and late ones, and what else there is."""
    what = [*["ask", "wait"] * 4, "send", "serve", "deliver", "lose", "late", "return", *often]
    which, count = st.integers(0, 2), st.sampled_from([1, 4, 12])
    return st.lists(
        st.tuples(st.sampled_from(what), which, count, st.sampled_from([0.1, 0.4, 0.5, 1.2, 4.0])),
        min_size=20,
        max_size=60,
    )


def windows(times: list[float]) -> Iterator[tuple[int, float]]:
    """Admissions and length of every window that begins and ends with an admission."""
    for first, last in combinations_with_replacement(range(len(times)), 2):
        yield last - first + 1, times[last] - times[first]


@pytest.mark.parametrize(
    "limit", [Limit(rate_per_s=20, burst=20), Limit(rate_per_s=2, burst=3), Limit(rate_per_s=20, concurrent=12)]
)
@settings(max_examples=100, deadline=None)
@given(beats=st.booleans(), steps=steps(*["spend"] * 4))
def test_no_window_has_more_than_its_rate_and_the_burst(
    limit: Limit, beats: bool, steps: list[tuple[str, int, int, float]]
) -> None:
    """Whatever the interleaving, and whatever is lost or late."""
    graph = FakeGraph(limit, 3, beats=beats)
    for step in steps:
        graph.do(*step)
    for count, seconds in windows(graph.admitted):
        assert count <= limit.capacity + (limit.rate_per_s or 0) * seconds + 1e-6


@pytest.mark.parametrize("limit", [Limit(concurrent=3), Limit(concurrent=16), Limit(concurrent=12, rate_per_s=20)])
@settings(max_examples=100, deadline=None)
@given(steps=steps(*["spend", "finish"] * 4, "die"))
def test_no_more_requests_run_at_once_than_may(limit: Limit, steps: list[tuple[str, int, int, float]]) -> None:
    """Those of an ingress that died do not run."""
    graph = FakeGraph(limit, 3, beats=True)
    for step in steps:
        graph.do(*step)
        assert graph.running <= (limit.concurrent or 0)


@settings(max_examples=100, deadline=None)
@given(steps=steps("spend", "finish", "die"), which=st.integers(0, 2), die=st.booleans())
def test_after_a_quiet_time_one_ingress_has_the_whole_limit(
    steps: list[tuple[str, int, int, float]], which: int, die: bool
) -> None:
    """Nothing is lost for good; the slots of a dead ingress come back, too."""
    limit = Limit(rate_per_s=10, burst=20, concurrent=20)
    graph = FakeGraph(limit, 3, beats=True)
    for step in steps:
        graph.do(*step)
    for number, ingress in enumerate(graph.ingresses):
        if die:
            graph.do("die", number, 0, 0)
        while ingress.running and not die:
            ingress.finish()
    graph.late.clear()
    graph.wait(6.0)
    ingress = graph.ingresses[which]
    assert [ingress.request(graph.ledger) for _ in range(21)] == [True] * 20 + [False]


def test_a_busy_account_far_from_its_limit_asks_rarely() -> None:
    graph = FakeGraph(Limit(rate_per_s=1000, burst=2000, concurrent=400), 2, beats=True)
    graph.wait(5.0)
    first = graph.ingresses[0]
    calls = 0
    for _ in range(200):
        if not first.wallet.admits(NAME):
            calls += 1
        assert first.request(graph.ledger)
        first.finish()
    assert calls <= 2


def ledger_of(limit: Limit) -> tuple[Ledger, FakeClock]:
    """With full buckets."""
    clock = FakeClock()
    ledger = Ledger(LimitsSettings(account=limit, lease_s=1.0), clock)
    clock.now += 100_000
    return ledger, clock


def leased(ledger: Ledger, ingress: str, number: int, want: int, unused: int = 0) -> int:
    """Tokens that one call got."""
    (grant,) = ledger.lease(LeaseRequest(ingress, number, (Ask(NAME, want, unused, 0),))).grants
    return grant.tokens


def test_a_call_that_comes_late_changes_nothing() -> None:
    """It would give back what belongs to the lease of the call that overtook it."""
    ledger, _ = ledger_of(Limit(rate_per_s=0.01, burst=10))
    assert leased(ledger, "a", 2, want=8) == 8
    assert ledger.lease(LeaseRequest("a", 1, (Ask(NAME, 0, 8, 0),))).grants == ()
    assert leased(ledger, "b", 1, want=10) == 2


def test_no_more_is_taken_back_than_was_leased() -> None:
    ledger, clock = ledger_of(Limit(rate_per_s=0.01, burst=10))
    assert leased(ledger, "a", 1, want=8) == 8
    assert leased(ledger, "a", 2, want=0, unused=9) == 0
    assert leased(ledger, "b", 1, want=20) == 10
    clock.now += 3.5
    assert leased(ledger, "b", 2, want=20, unused=10) == 0


def test_a_lease_takes_its_room_in_the_bucket_until_it_runs_out() -> None:
    """Its tokens may be spent up to then; the bucket must not have filled up behind them."""
    ledger, clock = ledger_of(Limit(rate_per_s=10, burst=10))
    assert leased(ledger, "a", 1, want=10) == 10
    clock.now += 3.25
    assert leased(ledger, "b", 1, want=10) == 2


def test_tokens_in_a_call_that_got_lost_are_not_given_back_twice() -> None:
    graph = FakeGraph(Limit(rate_per_s=0.01, burst=40), 2, beats=False)
    first, _ = graph.ingresses
    first.ask(graph.ledger, 4)
    assert first.admit()
    call = first.wallet.request({NAME: 1})
    first.wallet.lost(call)
    assert call.asks[0].unused > 0
    assert first.wallet.request({NAME: 1}).asks[0].unused == 0


def test_what_nobody_took_is_given_back_at_once_when_others_are_short_of_it() -> None:
    """For instance because the client had hung up."""
    graph = FakeGraph(Limit(rate_per_s=0.01, burst=3, concurrent=3), 2, beats=False)
    first, second = graph.ingresses
    first.ask(graph.ledger, 3)
    first.settle(graph.ledger)
    assert [second.request(graph.ledger) for _ in range(4)] == [True] * 3 + [False]


def test_one_short_of_its_limit_takes_nothing_from_another() -> None:
    limits = LimitsSettings(account=Limit(rate_per_s=1, burst=5), accounts={"vip": Limit(rate_per_s=100, burst=50)})
    clock = FakeClock()
    ledger = Ledger(limits, clock)
    clock.now += 10
    reply = ledger.lease(LeaseRequest("a", 1, (Ask("account:acme", 9, 0, 0), Ask("account:vip", 9, 0, 0))))
    assert [grant.tokens for grant in reply.grants] == [5, 50 // 4]
    assert [grant.retry_after for grant in reply.grants] == [pytest.approx(1.0), 0.0]


def test_what_is_refused_names_the_time_until_it_is_worth_asking_again() -> None:
    graph = FakeGraph(Limit(rate_per_s=2, burst=1), 1, beats=False)
    graph.wait(1.0)
    (ingress,) = graph.ingresses
    assert ingress.request(graph.ledger)
    assert not ingress.request(graph.ledger)
    assert ingress.wallet.refusal(NAME) == ("rate", pytest.approx(0.5))
    graph.wait(0.5)
    assert ingress.request(graph.ledger)


def test_a_new_ledger_hands_out_no_second_burst() -> None:
    """After a crash it starts with empty buckets; what was leased before counts on."""
    graph = FakeGraph(Limit(rate_per_s=1, burst=10), 2, beats=False)
    graph.wait(20.0)
    while graph.ingresses[0].request(graph.ledger):
        pass
    graph.ledger = Ledger(graph.limits, graph.clock)
    assert not graph.ingresses[1].request(graph.ledger)
    graph.wait(1.0)
    assert graph.ingresses[1].request(graph.ledger)
    assert not graph.ingresses[1].request(graph.ledger)


def test_a_new_ledger_learns_what_is_running() -> None:
    graph = FakeGraph(Limit(concurrent=2), 2, beats=True)
    first, second = graph.ingresses
    assert first.request(graph.ledger)
    assert first.request(graph.ledger)
    graph.ledger = Ledger(graph.limits, graph.clock)
    graph.wait(1.5)
    assert not second.request(graph.ledger)
    first.finish()
    first.settle(graph.ledger)
    graph.wait(0.1)
    assert second.request(graph.ledger)


def test_books_that_say_nothing_are_forgotten() -> None:
    clock = FakeClock()
    ledger = Ledger(LimitsSettings(account=Limit(rate_per_s=1, burst=5, concurrent=2)), clock)
    for number in range(1, 1000):
        clock.now += 1
        ledger.lease(LeaseRequest("a", number, (Ask(f"account:{number}", 1, 0, 0),)))
    assert len(ledger._books) < 100


def test_alone_an_ingress_goes_by_an_equal_part_of_the_limit() -> None:
    clock = FakeClock()
    wallet = Wallet(LimitsSettings(account=Limit(rate_per_s=10, burst=20, concurrent=4)), ingresses=2, clock=clock)
    for _ in range(2):
        assert wallet.missing_alone(NAME) is None
        wallet.take(NAME)
    assert wallet.missing_alone(NAME) == "concurrent"
    for _ in range(8):
        wallet.put(NAME)
        wallet.take(NAME)
    wallet.put(NAME)
    assert wallet.missing_alone(NAME) == "rate"
    clock.now += 0.2
    assert wallet.missing_alone(NAME) is None


def test_a_wallet_forgets_who_has_not_asked_for_a_while() -> None:
    graph = FakeGraph(Limit(rate_per_s=10, burst=20), 1, beats=True)
    graph.wait(2.0)
    (ingress,) = graph.ingresses
    assert ingress.request(graph.ledger)
    ingress.finish()
    graph.wait(5.0)
    assert not ingress.wallet._shares

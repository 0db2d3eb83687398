"""Figures, saturation and verdict of a load test, from samples made by hand."""

from pathlib import Path

import pytest
import yaml

from contracts.errors import InvalidInput
from contracts.trace import Degradation, Trace
from evaluation.load import picture
from evaluation.load.config import SEARCH, LoadConfig
from evaluation.load.generator import OK, TIMEOUT, Reply, Sample
from evaluation.load.quantiles import Quantiles
from evaluation.load.queries import BUILT_IN, mixed, read
from evaluation.load.report import Inside, Missed, Report, StageTimes, Step, doubts, missed, saturation, step
from evaluation.load.run import Plan, run

LIMITS = LoadConfig()
RULES = Path(__file__).parents[2] / "k8s" / "components" / "monitoring" / "rules.yaml"


def sample(at: float, ms: float, code: str = OK, *lacking: str, **trace: int) -> Sample:
    degraded = tuple(Degradation(stage, "RET-5041: The stage did not answer in time.", 30) for stage in lacking)
    return Sample(0.1, ms, at + ms / 1000, Reply(code, Trace(**trace) if code == OK else None, degraded))


def steady(rate: float = 20, ms: float = 50, count: int = 200, **trace: int) -> list[Sample]:
    return [sample(number / rate, ms, **trace) for number in range(count)]


def made(samples: list[Sample], rate: float = 20, seconds: float = 10, inside: Inside | None = None) -> Step:
    return step(rate, seconds, samples, inside or Inside(), 0.1, LIMITS)


def test_the_budgets_are_those_of_c40_and_of_the_alerts() -> None:
    """C40; the recording rules hold the same figures."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    alerting = {
        rule["labels"]["stage"]: float(rule["expr"])
        for rule in rules
        if rule.get("record") == "retrieval:stage:budget_ms"
    }
    whole = next(rule for rule in rules if rule.get("record") == "retrieval:search_memory:budget_ms")
    assert LIMITS.p95_ms == alerting | {SEARCH: float(whole["expr"])}
    assert LIMITS.p95_ms[SEARCH] == 300


def test_a_step_within_its_limits_misses_none() -> None:
    good = made(steady(planner_ms=2, seed_ms=20))
    assert (good.arrivals, good.answered, good.failed, good.degraded) == (200, 200, {}, {})
    assert good.throughput == pytest.approx(20, rel=0.01)
    assert not good.saturated
    assert good.latency == Quantiles(200, 50, 50, 50)
    assert missed([good], LIMITS) == ()


@pytest.mark.parametrize(
    ("samples", "what"),
    [
        ([sample(i / 20, 400 if i % 10 == 0 else 50) for i in range(200)], SEARCH),
        (steady(planner_ms=31), "planner"),
        (steady(recheck_ms=51), "rechecker"),
        ([sample(i / 20, 1, *(["429 RET-4291"] if i % 20 == 0 else [])) for i in range(200)], "failed"),
        ([sample(i / 20, 50, OK, *(["expander"] if i % 20 == 0 else [])) for i in range(200)], "degraded"),
    ],
)
def test_each_limit_can_be_missed(samples: list[Sample], what: str) -> None:
    """C40."""
    assert [each.what for each in missed([made(samples)], LIMITS)] == [what]


def test_five_in_a_hundred_may_be_over_the_budget() -> None:
    slow = [sample(i / 20, 400 if i % 25 == 0 else 50) for i in range(200)]
    assert missed([made(slow)], LIMITS) == ()


def test_a_budget_without_any_figure_is_not_kept() -> None:
    nothing = made([sample(i / 20, 1, "503 RET-5001") for i in range(200)])
    found = {each.what: each.value for each in missed([nothing], LIMITS)}
    assert found == dict.fromkeys(LIMITS.p95_ms) | {"failed": 1.0}


def test_a_caller_that_gave_up_counts_with_its_wait_and_a_refusal_does_not() -> None:
    waited = made([*steady(count=90), *[sample(1, 10_000, TIMEOUT) for _ in range(10)]])
    refused = made([*steady(count=90), *[sample(1, 1, "429 RET-4291") for _ in range(10)]])
    assert waited.latency == Quantiles(100, 50, 10_000, 10_000)
    assert refused.latency == Quantiles(90, 50, 50, 50)
    assert (waited.failed, refused.failed) == ({"timeout": 10}, {"429 RET-4291": 10})


def test_degradations_are_counted_by_stage_and_code() -> None:
    lacking = made([*steady(count=3), sample(0, 50, OK, "expander", "rechecker"), sample(0, 50, OK, "expander")])
    assert lacking.degraded == {"expander RET-5041": 2, "rechecker RET-5041": 1}
    assert lacking.degraded_share == pytest.approx(0.4)


def test_a_service_that_falls_behind_is_saturated() -> None:
    """Arrivals at 40/s for 10 s, answered at 25/s: the last answer comes after 16 s."""
    behind = made([sample(i / 40, 50 + i * 15.0) for i in range(400)], rate=40)
    assert behind.saturated
    assert behind.throughput == pytest.approx(25, rel=0.02)
    found = saturation([made(steady()), behind])
    assert (found.sustained, found.reached, found.capacity) == (20, 40, behind.whole)
    assert saturation([made(steady())]).capacity is None
    assert saturation([behind]).sustained is None


def test_quick_answers_that_lack_something_are_no_capacity() -> None:
    """An open circuit makes answers quick; they are not what was asked for."""
    lacking = made([sample(i / 20, 5, OK, *(["seed_search"] if i % 2 else [])) for i in range(200)])
    assert lacking.throughput == pytest.approx(20, rel=0.01)
    assert lacking.whole == pytest.approx(10, rel=0.01)
    assert lacking.saturated


def test_histograms_count_before_answers_and_a_disagreement_is_told() -> None:
    seen = StageTimes(Quantiles(200, 60, 90, 99), (75.0, 100.0), Quantiles(200, 55, 85, 95))
    inside = Inside(stages={"expander": seen}, notes=("The metrics came late.",))
    agreeing, other = (made(steady(hierarchical_ms=ms), inside=inside) for ms in (101, 40))
    stage = next(each for each in other.stages if each.name == "expander")
    assert stage.times == seen.times
    assert stage.work == seen.work
    assert list(doubts(agreeing, inside)) == ["At 20/s: The metrics came late."]
    assert "expander is 40 ms in answers, but between 75 and 100" in list(doubts(other, inside))[1]


class FakeWatch:
    """Counts steps, and knows nothing of the service."""

    def __init__(self) -> None:
        self.steps = 0

    async def begin(self) -> None:
        self.steps += 1

    async def end(self, answered: int) -> Inside:
        return Inside()


async def ran(watch: FakeWatch, asked: list[str]) -> Report:
    async def ask(query: str) -> Reply:
        asked.append(query)
        return Reply(OK, Trace())

    plan = Plan(rates=[200, 100], seconds=0.1, warm_up=0.1, queries=BUILT_IN)
    return await run("a fake", plan, ask, watch, LIMITS, lambda said: None)


async def test_a_run_warms_up_and_takes_its_steps_by_rising_load() -> None:
    watch, asked = FakeWatch(), list[str]()
    report = await ran(watch, asked)
    assert [each.rate for each in report.steps] == [100, 200]
    assert [each.arrivals for each in report.steps] == [10, 20]
    assert watch.steps == 3
    # Those of the warm-up are not asked again: their vectors would be in a cache.
    assert len(asked) == len(set(asked)) == 40
    assert report.missed == ()


async def test_the_picture_shows_the_stages_and_the_budget(tmp_path: Path) -> None:
    report, path = await ran(FakeWatch(), []), tmp_path / "load.svg"
    picture.draw(report, 300, path)
    drawn = path.read_text(encoding="utf-8")
    assert all(name in drawn for name in ("planner", "seed_search", SEARCH, "budget of P95, 300 ms"))
    again = tmp_path / "again.svg"
    picture.draw(report, 300, again)
    assert again.read_bytes() == path.read_bytes()


def test_the_mix_is_of_both_languages_and_repeats_nothing_before_all_was_asked() -> None:
    order = mixed(BUILT_IN, seed=3)
    first, second = ([next(order) for _ in BUILT_IN] for _ in range(2))
    assert sorted(first) == sorted(second) == sorted(set(BUILT_IN))
    assert first != second
    assert sum(query.isascii() for query in BUILT_IN) == len(BUILT_IN) / 2


def test_queries_come_from_a_collections_folder_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"id": "1", "text": "茶", "conv": "c"}\n{"id": "2", "text": "tea"}\n', encoding="utf-8")
    assert read(tmp_path) == read(file) == ("茶", "tea")


@pytest.mark.parametrize("text", ["", "no json", '{"id": "1"}'])
def test_a_file_that_holds_no_queries_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "queries.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput):
        read(tmp_path)
    with pytest.raises(InvalidInput):
        read(tmp_path / "absent.jsonl")


def test_a_missed_limit_names_its_step_and_figures() -> None:
    assert missed([made(steady(planner_ms=31))], LIMITS) == (Missed(20, "planner", 31, 30),)

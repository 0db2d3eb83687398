"""How a load test looks on a terminal."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from deployments.cli import render
from evaluation.load.config import SEARCH, LoadConfig
from evaluation.load.quantiles import Quantiles
from evaluation.load.report import Missed, Report, Saturation, Step

_SHARES = {"failed", "degraded"}


def shown(report: Report, limits: LoadConfig) -> RenderableType:
    """The steps, the stages in each, where the service was saturated, and which limits it missed."""
    title = (
        f"{report.target}: {report.arrivals} arrivals, {report.seconds:g} s a step, "
        f"{report.queries:,} different queries, seed {report.seed}"
    )
    parts: list[RenderableType] = [Text(title, "bold"), _steps(report), Text(), _stages(report, limits), Text()]
    parts += [Text(line, "yellow") for step in report.steps for line in _lacking(step)]
    parts.append(Text(_saturated(report.saturation)))
    parts += [Text(f"⚠ {note}", "yellow") for note in report.notes]
    for rate, misses in groupby(report.missed, lambda each: each.rate):
        parts.append(Text(f"✗ {rate:g}/s: {', '.join(map(_said, misses))}", "red"))
    if not report.missed:
        parts.append(Text("✓ Every budget holds.", "green"))
    return Group(*parts)


def _steps(report: Report) -> RenderableType:
    columns = (
        *("rate/s", "answers/s", "P50 ms", "P95", "P99", "inside", "late"),
        *("failed", "degraded", "cache", "cores", "MB", "client"),
    )
    return render.table(columns, (tuple(_cells(step)) for step in report.steps))


def _cells(step: Step) -> Iterator[RenderableType]:
    yield f"{step.rate:g}"
    yield Text(f"{step.throughput:g}", "yellow" if step.saturated else "")
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        yield "-" if step.latency is None else f"{getattr(step.latency, name):.1f}"
    yield from (_p95(step.service), _p95(step.late))
    yield from (f"{share:.1%}" for share in (step.failed_share, step.degraded_share))
    yield "-" if step.cache_hits is None else f"{step.cache_hits:.0%}"
    yield "-" if step.usage is None else f"{step.usage.cores:.2f}"
    yield "-" if step.usage is None else f"{step.usage.memory_mb:,.0f}"
    yield "-" if step.client_cores is None else f"{step.client_cores:.2f}"


def _p95(found: Quantiles | None) -> str:
    return "-" if found is None else f"{found.p95_ms:.1f}"


def _stages(report: Report, limits: LoadConfig) -> RenderableType:
    """P50, P95 and P99 by stage and rate, the work without the hop beside them."""
    columns = ("P50 · P95 · P99 ms (work P95)", "budget", *(f"{step.rate:g}/s" for step in report.steps))
    names = [stage.name for stage in report.steps[0].stages]
    rows = [
        (name, _budget(limits, name), *(_stage(step, at) for step in report.steps)) for at, name in enumerate(names)
    ]
    whole = (SEARCH, _budget(limits, SEARCH), *(_times(step.latency) for step in report.steps))
    return render.table(columns, [*rows, whole])


def _budget(limits: LoadConfig, name: str) -> str:
    return f"{limits.p95_ms[name]:g}" if name in limits.p95_ms else "-"


def _stage(step: Step, at: int) -> str:
    stage = step.stages[at]
    work = f" ({stage.work.p95_ms:.1f})" if stage.work else ""
    return f"{_times(stage.times)}{work}"


def _times(found: Quantiles | None) -> str:
    return "-" if found is None else f"{found.p50_ms:.1f} · {found.p95_ms:.1f} · {found.p99_ms:.1f}"


def _lacking(step: Step) -> Iterator[str]:
    kinds: Mapping[str, Mapping[str, int]] = {"failed": step.failed, "degraded": step.degraded}
    for kind, counts in kinds.items():
        if counts:
            yield f"{step.rate:g}/s {kind}: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def _saturated(found: Saturation) -> str:
    if found.reached is None:
        return f"Not saturated at {found.sustained:g}/s, the most that was tried."
    kept_up = "nothing less was tried" if found.sustained is None else f"{found.sustained:g}/s was kept up with"
    return f"Saturated at {found.reached:g}/s; {kept_up}. Most answers that lack nothing: {found.capacity:g}/s."


def _said(missed: Missed) -> str:
    if missed.what in _SHARES:
        return f"{missed.what} {missed.value:.1%} > {missed.limit:.1%}"
    return f"P95 of {missed.what} " + (
        "unknown" if missed.value is None else f"{missed.value:.1f} > {missed.limit:g} ms"
    )

"""How overload and long load look on a terminal."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from deployments.cli import render
from evaluation.load.overload import Overload
from evaluation.load.phases import Check, Phase
from evaluation.load.soak import Soak

_SHOWN_PROCESSES = 12


def overload(report: Overload) -> RenderableType:
    """The phases, how soon all was as before, memory, and the verdict."""
    how = "found" if report.found else "told"
    parts: list[RenderableType] = [
        Text(f"{report.target}: saturated at {report.saturation:g} searches a second ({how})", "bold"),
        _phases(report.phases),
    ]
    parts += [Text(line, "yellow") for each in report.phases for line in _lacking(each)]
    seconds = " ".join("-" if each is None else f"{each:.0f}" for each in report.seconds_after)
    parts.append(Text(f"Median ms of each second after the burst: {seconds}"))
    if report.memory_before:
        before, after = (sum(each.values()) for each in (report.memory_before, report.memory_after))
        parts.append(Text(f"Memory of the service: {before:,.0f} MB before, {after:,.0f} MB after."))
    return Group(*parts, *_verdict(report.checks))


def soak(report: Soak) -> RenderableType:
    """The quarters, the processes that grew most, and the verdict."""
    grown = sorted(report.growth, key=lambda each: (each.flat, -each.slope_mb_per_h))
    rows = (
        (
            *(each.name, f"{each.first_mb:,.0f}", f"{each.last_mb:,.0f}", f"{each.slope_mb_per_h:+.1f}"),
            Text(f"{each.growth:+.1%}", "" if each.flat else "red"),
        )
        for each in grown[:_SHOWN_PROCESSES]
    )
    return Group(
        Text(f"{report.target}: {report.rate:g} searches a second for {report.seconds / 60:g} min", "bold"),
        _phases(report.quarters),
        Text(),
        render.table(("process", "MB first", "last", "MB/h", "growth"), rows),
        *_verdict(report.checks),
    )


def _phases(phases: Sequence[Phase]) -> RenderableType:
    columns = (
        *("phase", "rate/s", "answers/s", "P50 ms", "P95", "P99"),
        *("refused", "P95 ms", "Retry-After s", "lost", "degraded"),
    )
    return render.table(columns, (tuple(_cells(each)) for each in phases))


def _cells(phase: Phase) -> Iterator[str]:
    yield from (phase.name, f"{phase.rate:g}", f"{phase.answers_per_s:g}")
    for name in ("p50_ms", "p95_ms", "p99_ms"):
        yield "-" if phase.admitted is None else f"{getattr(phase.admitted, name):.1f}"
    yield str(sum(phase.refused.values()))
    yield "-" if phase.refusal is None else f"{phase.refusal.p95_ms:.1f}"
    yield "-" if phase.retry_after is None else f"{phase.retry_after[0]:g}–{phase.retry_after[1]:g}"
    yield from (str(sum(phase.lost.values())), str(phase.degraded))


def _lacking(phase: Phase) -> Iterator[str]:
    kinds: Mapping[str, Mapping[str, int]] = {"refused": phase.refused, "lost": phase.lost}
    for kind, counts in kinds.items():
        if counts:
            yield f"{phase.name} {kind}: " + ", ".join(f"{count} {name}" for name, count in counts.items())


def _verdict(checks: Sequence[Check]) -> Iterator[Text]:
    for check in checks:
        found = "unknown" if check.value is None else f"{check.value:g}"
        line = f"{'✓' if check.kept else '✗'} {check.what}: {found} (limit {check.limit:g})"
        yield Text(line, "green" if check.kept else "red")

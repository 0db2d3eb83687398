"""The picture of a load test: latency over load, and where the time of a search goes."""

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from contracts.errors import ConfigError
from evaluation.load.config import SEARCH
from evaluation.load.report import Report, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE, _ROOM = (12, 4.5), 1.6
# From light to dark by how rare such a time is.
_LINES = {"p50_ms": ("P50", "#9ecae1"), "p95_ms": ("P95", "#3182bd"), "p99_ms": ("P99", "#08306b")}
_BAR, _TAIL, _LIMIT = "#3182bd", "#c6dbef", "#cb181d"


def draw(report: Report, budget_ms: float | None, path: Path) -> None:
    """Write the picture.

    Args:
        report: What was found.
        budget_ms: For the 95th percentile of a whole search; ``None`` shows none.
        path: A file that ends in ``.svg``, or any other format of matplotlib.

    Raises:
        ConfigError: There is no matplotlib, or it can't write that file.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - of an extra
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "Pictures need matplotlib.", field="plot", remedy="Install the extra bench: make setup-all"
        ) from None
    # Text stays text, and the same figures make the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "strata", "font.size": 9}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        over_load, waterfall = figure.subplots(1, 2)
        _latency(over_load, report, budget_ms)
        _waterfall(waterfall, _telling(report), budget_ms)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} can't be written: {error}.", field="plot") from None


def _telling(report: Report) -> Step:
    """The highest load that the service kept up with; else the lowest."""
    kept_up = [step for step in report.steps if step.rate == report.saturation.sustained]
    return (kept_up or report.steps)[0]


def _latency(axes: "Axes", report: Report, budget_ms: float | None) -> None:
    steps = [step for step in report.steps if step.latency]
    rates = [step.rate for step in steps]
    for field, (label, colour) in _LINES.items():
        axes.plot(rates, [getattr(step.latency, field) for step in steps], "o-", label=label, color=colour)
    if budget_ms:
        axes.axhline(budget_ms, color=_LIMIT, linestyle="--", linewidth=1, label=f"budget of P95, {budget_ms:g} ms")
    axes.set_xlim(left=0)
    if (reached := report.saturation.reached) is not None:
        axes.axvspan(reached, axes.get_xlim()[1], color=_LIMIT, alpha=0.08, label="saturated", linewidth=0)
    axes.set(title="Latency over load", xlabel="searches a second", ylabel="ms, from when a search was due")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend()


def _waterfall(axes: "Axes", step: Step, budget_ms: float | None) -> None:
    """Medians one after the other, with what 95% stay within as a tail; medians need not add up to that of the sum."""
    rows = [(stage.name, stage.times, stage.budget_ms) for stage in step.stages if stage.times]
    starts = [*accumulate((found.p50_ms for _, found, _ in rows), initial=0.0)]
    if step.latency:
        rows.append((SEARCH, step.latency, budget_ms))
        starts[-1] = 0.0
    for row, ((_, found, budget), start) in enumerate(zip(rows, starts, strict=False)):
        axes.barh(row, found.p95_ms, left=start, color=_TAIL, height=0.5)
        axes.barh(row, found.p50_ms, left=start, color=_BAR, height=0.5)
        limit = f" of {budget:g}" if budget else ""
        axes.text(start + found.p95_ms, row, f"  {found.p50_ms:.1f}, P95 {found.p95_ms:.1f}{limit} ms", va="center")
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.invert_yaxis()
    # Room for what is written beside the longest bar.
    axes.set_xlim(0, _ROOM * axes.dataLim.x1)
    axes.set(title=f"Stages at {step.rate:g} searches a second: P50, and P95 behind it", xlabel="ms")

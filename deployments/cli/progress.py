"""How far an ingest or an evaluation is, on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_PHASES = {
    "read": "documents read",
    "embed": "texts embedded",
    "write": "nodes written",
    "remove": "documents removed",
    "clear": "outdated nodes removed",
    "optimize": "index optimised",
    "search": "queries asked",
}


@contextmanager
def counters(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a line a phase while the block runs; yields what is told phase, count and total."""
    columns = (SpinnerColumn(), TextColumn("{task.completed:>9,.0f} {task.description}"), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as bars:

        def told(phase: str, done: int, total: int | None, /) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(_PHASES[phase], total=None)
            bars.update(tasks[phase], completed=done, total=total)

        yield told

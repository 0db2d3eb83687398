"""How far an ingest is, on the terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from index.ingest import Phase
from index.ingest import Progress as Told

_PHASES: dict[Phase, str] = {
    "read": "documents read",
    "embed": "texts embedded",
    "write": "nodes written",
    "remove": "documents removed",
    "optimize": "index optimised",
}


@contextmanager
def counters(console: Console) -> Iterator[Told]:
    """Show a line a phase while the block runs; yields what the ingest tells."""
    columns = (SpinnerColumn(), TextColumn("{task.completed:>9,.0f} {task.description}"), TimeElapsedColumn())
    tasks: dict[Phase, TaskID] = {}
    with Progress(*columns, console=console) as bars:

        def told(phase: Phase, done: int, total: int | None, /) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(_PHASES[phase], total=None)
            bars.update(tasks[phase], completed=done, total=total)

        yield told

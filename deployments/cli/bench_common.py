"""What the commands of ``strata bench`` share: options, the service that they ask, and how they end."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer
from rich.console import Console, RenderableType

from deployments.cli import common

if TYPE_CHECKING:
    from deployments.lifecycle import Run
    from deployments.settings import Settings
    from evaluation.load.generator import Ask
    from evaluation.load.run import Plan

Report = TypeVar("Report")
_MISSED = 1
# One socket each, and select() takes no more than 1024.
_MOST_CONNECTIONS = 900


class ArrivalsName(StrEnum):
    """How arrivals are spread."""

    POISSON = "poisson"
    CONSTANT = "constant"


QueriesOption = Annotated[
    Path | None,
    typer.Option(
        "--queries", help="A folder with queries.jsonl, or such a file; by default a mix for the demo's index."
    ),
]
ArrivalsOption = Annotated[
    ArrivalsName, typer.Option(help="poisson: as independent callers come; constant: evenly apart.")
]
TopKOption = Annotated[int, typer.Option("--top-k", "-k", min=1, max=50, help="Hits wanted.")]
ConnectionsOption = Annotated[int, typer.Option(min=1, max=_MOST_CONNECTIONS, help="Requests at once, at most.")]
PatienceOption = Annotated[float, typer.Option(min=0.1, help="Seconds after which a caller gives up.")]
SeedOption = Annotated[int, typer.Option(min=0, help="The same seed asks the same at the same moments.")]
JsonFileOption = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file; - prints them.")]


class Target(NamedTuple):
    """A service to put load on.

    Args:
        url: Where it answers.
        ask: Sends it a query.
        run: Its processes, where it was started on this machine.
    """

    url: str
    ask: "Ask"
    run: "Run | None"


@asynccontextmanager
async def target(settings: "Settings", token: str, plan: "Plan", top_k: int) -> AsyncIterator[Target]:
    """The service of the settings, or that of STRATA_URL.

    Raises:
        StrataError: It does not answer the first query.
    """
    from deployments.cli.bench_targets import over_http  # noqa: PLC0415

    url, run = whereabouts(settings)
    async with over_http(url, token, plan.connections, top_k, plan.queries[0]) as ask:
        yield Target(url, ask, run)


def whereabouts(settings: "Settings") -> "tuple[str, Run | None]":
    """Where the service answers, and its processes where it was started on this machine."""
    from deployments.lifecycle import Service  # noqa: PLC0415

    url = common.service_url(settings)
    here = Service(common.run_folder(settings)).current()
    return url, here if here and here.url == url else None


def queries(given: Path | None) -> tuple[str, ...]:
    """Those of a collection, or the built-in mix.

    Raises:
        InvalidInput: The file can't be read, or holds no queries.
    """
    from evaluation.load import queries as asking  # noqa: PLC0415

    return asking.read(given) if given else asking.BUILT_IN


def measured(work: Callable[[Callable[[str], None]], Coroutine[None, None, Report]]) -> Report:
    """Run it in an event loop fit for keeping time, and show what it says it is doing.

    Args:
        work: Takes a function to say it with.
    """
    # Timers of epoll are a millisecond late; those of select() are not.
    with (
        Console(stderr=True).status("") as status,
        asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner,
    ):
        return runner.run(work(lambda said: status.update(f"{said} …")))


def finish(report: object, shown: Callable[[], RenderableType], json_out: Path | None, *, missed: bool) -> None:
    """Show a report and write its JSON; exit code 1 when it missed what it was held against."""
    from deployments.cli import render  # noqa: PLC0415

    if json_out is None or str(json_out) != "-":
        Console(highlight=False).print(shown())
    if json_out:
        text = render.as_json(report)
        print(text) if str(json_out) == "-" else json_out.write_text(text + "\n", encoding="utf-8")
    if missed:
        raise typer.Exit(_MISSED)

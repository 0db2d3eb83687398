"""``strata eval growth``: latency, CPU and memory as records, tenants and trees grow."""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from rich.console import Console

from contracts.errors import StageFailed
from deployments.cli import common, render
from deployments.cli.common import ConfigOption
from deployments.cli.eval_index import Backend, cluster
from deployments.cli.service import stopping_on_sigterm

if TYPE_CHECKING:
    from contracts.ports import ReadableIndex
    from deployments.settings import Settings
    from evaluation.contestants import Contestant
    from evaluation.growth.forest import Forest
    from evaluation.growth.grid import Measured, Point, Report
    from evaluation.growth.searches import Searches
    from evaluation.timed_search import Told

T = TypeVar("T")
# Accounts, or parts of large ones, written between two optimisations of the index.
_OPTIMIZE_AFTER = 50
_KEEP_S = 0.1
# Between two lines that say what goes on, where they are not shown in place.
_TELL_S = 30.0
_BACKENDS = list(Backend)


class Asked(NamedTuple):
    """Searches that are timed, and how many come before."""

    queries: int
    warm_up: int


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter("write whole numbers above 0, for instance 1,10,100", param_hint=option)
    return numbers


def growth(
    records: Annotated[str, typer.Option(metavar="N[,N…]", help="In all.")] = "10000,100000,300000",
    tenants: Annotated[str, typer.Option(metavar="N[,N…]", help="Accounts that share them evenly.")] = "1,10,1000",
    fan_out: Annotated[str, typer.Option(metavar="N[,N…]", help="Children of a node that has any.")] = "5,50,500",
    depth: Annotated[str, typer.Option(metavar="N[,N…]", help="Levels of a tree.")] = "2,4,8",
    backends: Annotated[list[Backend], typer.Option("--backend", help="Each measured by itself.")] = _BACKENDS,
    dimensions: Annotated[int, typer.Option(min=2, max=4096, help="Of the vectors.")] = 384,
    queries: Annotated[int, typer.Option(min=1, help="Timed searches behind each figure.")] = 200,
    warm_up: Annotated[
        int, typer.Option(min=0, help="Searches before them; a JVM just started compiles during thousands.")
    ] = 500,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same records and questions.")] = 0,
    json_out: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file after every point; - prints them.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Measure ingest, whole searches, each stage and memory on synthetic notes, varying one dimension at a time.

    The middle value of each list is the base point's; every other value is measured with the base point's for the rest.
    All that is made is removed again. strata eval cost makes prices of the figures.
    """
    from deployments.cli import eval_growth_show  # noqa: PLC0415
    from evaluation.growth.grid import Grid, Report  # noqa: PLC0415

    settings = common.load_settings(config)
    grid = Grid(
        records=_numbers("--records", records),
        tenants=_numbers("--tenants", tenants),
        fan_out=_numbers("--fan-out", fan_out),
        depth=_numbers("--depth", depth),
    )
    stdout = json_out is not None and str(json_out) == "-"
    todo = [(point, backend) for point in grid.points(dimensions, seed) for backend in dict.fromkeys(backends)]
    report = Report((), left=len(todo))
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with stopping_on_sigterm(), _telling(console) as tell:
        for number, (point, backend) in enumerate(todo, start=1):
            place = f"{number} of {len(todo)}"

            def told(said: str, place: str = place) -> None:
                tell(f"{place}: {said} …")

            measured = asyncio.run(_measure(settings, backend, point, Asked(queries, warm_up), told))
            report = Report((*report.measured, measured), left=len(todo) - number)
            if json_out and not stdout:
                _write(json_out, report)
            console.print(f"{place}: {eval_growth_show.line(measured)}")
    if stdout:
        print(render.as_json(report))
    else:
        Console(highlight=False).print(eval_growth_show.tables(report))


@contextmanager
def _telling(console: Console) -> Iterator["Told"]:
    """Says what goes on: in place on a terminal, else in a line every now and then."""
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    last = time.monotonic()

    def tell(said: str) -> None:
        nonlocal last
        if time.monotonic() - last > _TELL_S:
            console.print(said)
            last = time.monotonic()

    yield tell


async def _measure(settings: "Settings", backend: Backend, point: "Point", asked: Asked, told: "Told") -> "Measured":
    from evaluation.filling import fill  # noqa: PLC0415
    from evaluation.growth.forest import SOURCE  # noqa: PLC0415
    from evaluation.growth.grid import Measured  # noqa: PLC0415

    forest = point.forest
    async with _filling(settings, backend) as (contestant, folder, here):
        parts, model = forest.parts(), forest.model
        ingest = await fill(contestant, contestant.name, SOURCE, parts, model, told, optimize_after=_OPTIMIZE_AFTER)
        told(f"Searching {contestant.name}")
        search = await _apart(_searched, here, folder, forest, asked)
    return Measured(point, contestant.name, ingest, search)


async def _apart(work: Callable[..., T], *arguments: Any) -> T:
    """Do it in a process of its own, so that its memory is that of searching, and of this point alone."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
        except BrokenProcessPool:
            raise StageFailed(
                "The process that searched was killed.", remedy="See whether there is enough memory.", stage="eval"
            ) from None


@asynccontextmanager
async def _filling(
    settings: "Settings", backend: Backend
) -> AsyncIterator[tuple["Contestant", Path | None, "Settings"]]:
    """An empty index that is gone afterwards, its folder where it has one, and settings under which it is found."""
    from evaluation.contestants import Elastic, Embedded  # noqa: PLC0415

    if backend is Backend.EMBEDDED:
        # Nobody reads while it is filled; the versions kept for readers would count as the index's size.
        config = settings.index.embedded.model_copy(update={"keep_seconds": _KEEP_S})
        async with Embedded.open(config) as embedded:
            yield embedded, embedded.folder, settings
    else:
        async with Elastic.open(cluster(settings)) as elastic:
            changes = {"backend": "elasticsearch", "elastic": elastic.cluster.config}
            index = settings.index.model_copy(update=changes)
            yield elastic, None, settings.model_copy(update={"index": index})


def _searched(settings: "Settings", folder: Path | None, forest: "Forest", asked: Asked) -> "Searches":
    return asyncio.run(_search(settings, folder, forest, asked))


async def _search(settings: "Settings", folder: Path | None, forest: "Forest", asked: Asked) -> "Searches":
    """Open the index that was filled, and search it through the whole chain."""
    from deployments.backends import open_reader  # noqa: PLC0415
    from deployments.local import open_local  # noqa: PLC0415
    from evaluation.growth.nodes import ElasticWatch  # noqa: PLC0415
    from evaluation.growth.searches import KnownTexts, NoCluster, StageTimes, rss_mb, search  # noqa: PLC0415
    from index.elastic.index import ElasticIndex  # noqa: PLC0415
    from index.embedded.index import EmbeddedIndex  # noqa: PLC0415

    stages, questions = StageTimes(), forest.questions(asked.warm_up + asked.queries)
    before = rss_mb()
    index: ReadableIndex = (
        await EmbeddedIndex.open(folder, settings.index.embedded)
        if folder
        else await open_reader(settings.data_dir, settings.index)
    )
    service = await open_local(settings, stages, embedder=KnownTexts(forest.model, questions), index=index)
    try:
        watch = ElasticWatch(index.client) if isinstance(index, ElasticIndex) else NoCluster()
        return await search(service.search, questions, asked.warm_up, stages, watch, before)
    finally:
        await service.close()


def _write(path: Path, report: "Report") -> None:
    """Replace the file as a whole, so that whatever interrupts leaves the figures so far."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(render.as_json(report) + "\n", encoding="utf-8")
    fresh.replace(path)

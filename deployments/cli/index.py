"""``strata index``: the versions of an Elasticsearch index, each with the vectors of one model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, cast

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from contracts.errors import ConfigError
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

if TYPE_CHECKING:
    from contracts.records import ModelRef
    from deployments.settings import Settings
    from index.elastic.index import ElasticIndex
    from index.elastic.swap import Swapped
    from index.elastic.versions import Version

app = typer.Typer(help="Versions of an Elasticsearch index, each with the vectors of one model.", no_args_is_help=True)

EmbedderOption = Annotated[
    str | None, typer.Option("--embedder", help="Name of the model. By default that of the settings.")
]
VersionArgument = Annotated[int, typer.Argument(help="As strata index list shows it.", min=1)]
_MB = 1e6


class Row(msgspec.Struct, frozen=True):
    """A version as it is listed.

    Args:
        version: Its number.
        model: Whose vectors it holds.
        model_version: Of the model.
        dimensions: Of the vectors.
        records: Nodes in it, staged ones and those just replaced among them.
        bytes: Size on all nodes.
        health: ``green``, ``yellow`` or ``red``.
        serving: Whether searches and writes go to it.
        closed: Whether it takes no writes.
    """

    version: int
    model: str
    model_version: str
    dimensions: int
    records: int
    bytes: int
    health: str
    serving: bool
    closed: bool


class Listing(msgspec.Struct, frozen=True):
    """All versions, and which process changes them now; empty for none."""

    versions: tuple[Row, ...]
    busy: str = ""

    def warning(self) -> str:
        """What somebody has to do something about."""
        stuck = [row.version for row in self.versions if row.serving and row.closed and not self.busy]
        if not stuck:
            return ""
        return (
            f"Version {stuck[0]} takes no writes: a process that was to replace it has died. "
            f"strata index swap {stuck[0]} lets them in again; strata reindex does so too, and goes on."
        )


@app.command()
def create(embedder: EmbedderOption = None, config: ConfigOption = None) -> None:
    """Make an empty version, which serves if no other one does; strata reindex makes one by itself."""
    from models.load import load_embedder  # noqa: PLC0415

    settings = common.load_settings(config)
    check_backend(settings)
    with Console(stderr=True).status("Loading the model …") as status:
        model = load_embedder(common.embedder_config(settings, embedder), status.update).model

    async def made() -> "Version":
        async with elastic_index(settings) as index:
            return await index.versions.create(model, serve=await index.versions.serving() is None)

    version = asyncio.run(made())
    _say(f"Made version {version.number} for {described(model)}.", " It serves." if version.serving else "")


@app.command("list")
def list_versions(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """List the versions: model, size, health, which one serves, and whether it takes writes."""
    from deployments.cli import render  # noqa: PLC0415

    found = asyncio.run(_list(common.load_settings(config)))
    if as_json:
        print(render.as_json(found))
        return
    columns = ("version", "model", "dimensions", "records", "size", "health", "serves", "writes")
    Console().print(render.table(columns, map(_cells, found.versions)) if found.versions else "No versions.")
    for said in filter(None, (found.busy, found.warning())):
        Console(stderr=True, soft_wrap=True, highlight=False).print(Text(said, "yellow"))


@app.command()
def swap(
    version: VersionArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Swap even to a version that lacks records.")] = False,
    config: ConfigOption = None,
) -> None:
    """Let a version serve as it is. One that lacks records is brought up to date by strata reindex first."""
    settings = common.load_settings(config)
    swapped, model = asyncio.run(_swap(settings, version, force=yes))
    if not swapped.done:
        warning = (
            f"Version {version} lacks {swapped.missing:,} records of the one that serves, and holds "
            f"{swapped.outdated:,} that were replaced or removed since. No ingest mends that: it takes those documents "
            "for stored.\n"
            f"strata reindex --embedder {model.name} brings the version up to date and then swaps."
        )
        Console(stderr=True, soft_wrap=True, highlight=False).print(Text(warning, "yellow"))
        typer.confirm("Swap all the same?", abort=True)
        swapped, _ = asyncio.run(_swap(settings, version, force=True))
    _say(f"Version {version} serves: {described(model)}.", other_model(settings, model))


@app.command()
def drop(
    version: VersionArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """Remove a version with all its records; the one that serves is refused."""
    settings = common.load_settings(config)
    rows = {row.version: row for row in asyncio.run(_list(settings)).versions}
    if version in rows and not rows[version].serving and not yes:
        row = rows[version]
        typer.confirm(f"Remove version {version} ({row.model}, {row.records:,} records)?", abort=True)
    asyncio.run(_drop(settings, version))
    _say(f"Removed version {version}.")


@asynccontextmanager
async def elastic_index(settings: "Settings") -> "AsyncIterator[ElasticIndex]":
    """The Elasticsearch index of the settings, open for writing.

    Raises:
        ConfigError: The settings name another backend, or the cluster can't be asked.
    """
    from elasticsearch import ApiError, TransportError  # noqa: PLC0415

    from deployments.backends import open_writer  # noqa: PLC0415
    from index.elastic.client import reason  # noqa: PLC0415

    check_backend(settings)
    index = cast("ElasticIndex", await open_writer(settings.data_dir, settings.index))
    try:
        yield index
    except (ApiError, TransportError) as error:
        raise ConfigError(
            f"Elasticsearch: {reason(error)}.", field="index.elastic", remedy="Check the cluster: strata doctor."
        ) from None
    finally:
        await index.close()


def check_backend(settings: "Settings") -> None:
    """Refuse settings that name another backend.

    Raises:
        ConfigError: They do.
    """
    if settings.index.backend != "elasticsearch":
        raise ConfigError(
            f"Index versions are for index.backend: elasticsearch; the settings say {settings.index.backend}.",
            field="index.backend",
            remedy="Name other settings with --config. The embedded index is brought to another model by an ingest "
            "into another data_dir.",
        )


def described(model: "ModelRef") -> str:
    """A model in a few words."""
    return f"{model.name} {model.version}, {model.dimensions} dimensions"


def other_model(settings: "Settings", model: "ModelRef") -> str:
    """What to do when the index has vectors of another model than the settings name; empty when it has not."""
    from models.deterministic import NAME  # noqa: PLC0415

    named = NAME if settings.embedder.backend == "deterministic" else settings.embedder.name
    if model.name == named:
        return ""
    return (
        f"\nThe settings name {named}: services with that embedder answer by keywords only, and ingests are refused. "
        f"Set embedder.name to {model.name} and start them anew."
    )


async def _list(settings: "Settings") -> Listing:
    from index.elastic.turn import Turn  # noqa: PLC0415

    async with elastic_index(settings) as index:
        rows = [
            Row(
                version=version.number,
                model=version.meta.model.name,
                model_version=version.meta.model.version,
                dimensions=version.meta.model.dimensions,
                records=size.records,
                bytes=size.bytes,
                health=size.health,
                serving=version.serving,
                closed=version.closed,
            )
            for size in await index.versions.sizes()
            for version in (size.version,)
        ]
        holder = await Turn(index.client, index.versions.ledger, settings.index.elastic.write).holder()
    return Listing(tuple(rows), str(holder) if holder else "")


async def _swap(settings: "Settings", number: int, *, force: bool) -> "tuple[Swapped, ModelRef]":
    from index.elastic.swap import swap  # noqa: PLC0415

    async with elastic_index(settings) as index:
        model = (await index.versions.get(number)).meta.model
        write = settings.index.elastic.write
        return await swap(index.client, index.versions, write, number, force=force), model


async def _drop(settings: "Settings", number: int) -> None:
    from index.elastic.turn import Turn  # noqa: PLC0415

    async with elastic_index(settings) as index:
        version = await index.versions.get(number)
        turn = Turn(index.client, index.versions.ledger, settings.index.elastic.write)
        async with turn.taken("dropping an index version"):
            await index.versions.drop(version)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        str(row.version),
        f"{row.model} {row.model_version}",
        str(row.dimensions),
        f"{row.records:,}",
        f"{row.bytes / _MB:.1f} MB",
        row.health,
        "yes" if row.serving else "",
        "stopped" if row.closed and row.serving else "closed" if row.closed else "open",
    )


def _say(*parts: str) -> None:
    Console(highlight=False).print("".join(parts), soft_wrap=True, markup=False)

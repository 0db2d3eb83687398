"""``strata kb``: the knowledge base, in this process: import, publish, search, gaps, re-embedding."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from contracts.errors import InvalidInput
from deployments.cli import common, kb_gaps
from deployments.cli.common import ACCOUNT, AccountOption, ConfigOption, JsonOption
from deployments.cli.kb_access import in_process

if TYPE_CHECKING:
    from corpora.knowledge_base.importing import ImportReport
    from corpora.knowledge_base.reembed import Reembedded
    from corpora.knowledge_base.types import EntityStatus, SearchOutcome
    from deployments.knowledge_base.opening import LocalKnowledgeBase

app = typer.Typer(help="The knowledge base: entities under hard filters.", no_args_is_help=True)
app.add_typer(kb_gaps.app, name="gaps")

NOTHING_WRITTEN = 3
_SHOWN = 20


class Kind(StrEnum):
    """What a file holds."""

    ENTITIES = "entities"
    CHUNKS = "chunks"
    ASSETS = "assets"


class Status(StrEnum):
    """Of an entity; only published ones show."""

    DRAFT = "draft"
    PUBLISHED = "published"
    ARCHIVED = "archived"


@app.command("import")
def import_file(
    kind: Annotated[Kind, typer.Argument(help="What the file holds.", show_default=False)],
    path: Annotated[Path, typer.Argument(help="A .csv, or JSON Lines.", show_default=False)],
    account: AccountOption = ACCOUNT,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Import entities, chunks or assets. Rows that are refused are listed by line, and the rest goes on.

    The exit code is 3 when nothing could be written.
    """
    from deployments.cli import render  # noqa: PLC0415

    async def run(local: "LocalKnowledgeBase") -> "ImportReport":
        from corpora.knowledge_base.importing import Importer  # noqa: PLC0415

        importer = Importer(local.kb.store, local.kb.model, local.kb.config)
        return await importer.run(account, kind.value, path)

    report = in_process(config, run, sync=kind is not Kind.ASSETS)
    if as_json:
        print(render.as_json(report))
    else:
        _show_import(report)
    if not report.written:
        raise typer.Exit(NOTHING_WRITTEN)


@app.command()
def status(
    entity_ids: Annotated[
        list[str] | None, typer.Argument(help="Entities to set; none shows how far the index is.")
    ] = None,
    to: Annotated[Status | None, typer.Option("--set", help="Publish or withdraw these entities.")] = None,
    account: AccountOption = ACCOUNT,
    config: ConfigOption = None,
) -> None:
    """Publish or withdraw entities; without any, show how far the index is behind, for all accounts."""
    from contracts.context import RequestContext  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    if bool(entity_ids) != (to is not None):
        raise InvalidInput("Entities and --set belong together.", field="set", remedy="strata kb status ID --set draft")
    if entity_ids and to:
        ids, chosen = entity_ids, _status(to)
        in_process(config, lambda local: local.kb.set_status(RequestContext(account), ids, chosen), sync=True)
        print(f"{len(ids):,} {chosen}.")
        return

    async def behind(local: "LocalKnowledgeBase") -> object:
        from corpora.knowledge_base.outbox import behind  # noqa: PLC0415

        return await behind(local.database)

    print(render.as_json(in_process(config, behind)))


@app.command()
def sync(config: ConfigOption = None) -> None:
    """Bring the index up to date now; a running service does so by itself."""
    print(f"{in_process(config, lambda local: local.worker.drain()):,} entities brought up to date.")


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in Chinese or English.", show_default=False)],
    types: Annotated[list[str] | None, typer.Option("--type", help="Only entities of this type; repeatable.")] = None,
    occasion: Annotated[str | None, typer.Option(help="Only entities for this occasion.")] = None,
    body_shape: Annotated[str | None, typer.Option(help="No entity that this body shape should avoid.")] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="NAME=VALUE of a hard filter; repeatable.")
    ] = None,
    boosts: Annotated[list[str] | None, typer.Option("--boost", help="CHUNK=0.5, what rules say; repeatable.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", "-k", help="Results wanted, 1 to 200.")] = None,
    account: AccountOption = ACCOUNT,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Search, in this process; nothing that fails a hard filter is ever shown."""
    from contracts.context import RequestContext  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    wanted: dict[str, list[str]] = {}
    for name, value in (_pair(each, "filter") for each in filters or ()):
        wanted.setdefault(name, []).append(value)
    rules = {name: _number(value) for name, value in (_pair(each, "boost") for each in boosts or ())}
    outcome = in_process(
        config,
        lambda local: local.kb.search(
            query, RequestContext(account), types or (), occasion, body_shape, rules, top_k, filters=wanted
        ),
    )
    if as_json:
        print(render.as_json(outcome))
    else:
        _show_outcome(outcome)


@app.command()
def assets(
    entity_id: Annotated[str, typer.Argument(help="Of which entity.", show_default=False)],
    tryon_ready: Annotated[bool | None, typer.Option(help="Those alone that can be tried on, or can't.")] = None,
    account: AccountOption = ACCOUNT,
    config: ConfigOption = None,
) -> None:
    """List the assets of an entity, as JSON."""
    from contracts.context import RequestContext  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    found = in_process(config, lambda local: local.kb.assets(RequestContext(account), entity_id, tryon_ready))
    print(render.as_json(found))


@app.command()
def reembed(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Give all chunks vectors of the model in the settings, while services with the old one go on.

    It can be stopped at any time: the next run goes on where it was. Then restart the services with the new settings.
    """
    from deployments.cli import render  # noqa: PLC0415
    from deployments.knowledge_base.reembedding import reembed as run  # noqa: PLC0415

    settings = common.load_settings(config)
    console = Console(stderr=True, quiet=as_json)
    with console.status("Embedding …") as shown:
        report: Reembedded = asyncio.run(run(settings, lambda done: shown.update(f"Embedding … {done:,} done")))
    if as_json:
        print(render.as_json(report))
        return
    model = report.model
    print(
        f"{model.name} {model.version}: {report.entities:,} entities embedded anew, {report.removed:,} removed, "
        f"{report.chunks:,} chunks noted."
    )


def _show_import(report: "ImportReport") -> None:
    print(f"{report.read:,} rows read, {report.written:,} written, {report.refused_count:,} refused.")
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for row in report.refused[:_SHOWN]:
        field = f" [{row.field}]" if row.field else ""
        errors.print(Text.assemble((f"line {row.line}{field}: ", "yellow"), row.reason))
    if more := report.refused_count - min(_SHOWN, len(report.refused)):
        errors.print(f"… and {more:,} more; --json lists {len(report.refused):,}.", style="dim")


def _show_outcome(outcome: "SearchOutcome") -> None:
    console = Console(highlight=False)
    for rank, each in enumerate(outcome.results, start=1):
        parts = {"vector": each.vec_score, "keyword": each.kw_score, "rule": each.rule_score, "fresh": each.freshness}
        scores = " · ".join(f"{name} {value:.2f}" for name, value in parts.items() if value)
        score = (f"{each.final_score:.3f}  ", "bold green")
        ids = (f"{each.entity_id} / {each.chunk_id}", "bold cyan")
        console.print(Text.assemble((f"{rank:>2}  ", "bold"), score, ids), soft_wrap=True)
        console.print(Padding(Text(" ".join(each.text.split()), overflow="ellipsis", no_wrap=True), (0, 0, 0, 11)))
        console.print(Padding(Text(scores, "dim"), (0, 0, 0, 11)))
    for part in outcome.reasons:
        console.print(Text(f"⚠ {part.stage}: {part.reason}", "yellow"))


def _status(given: Status) -> "EntityStatus":
    return given.value


def _pair(text: str, option: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInput(f"--{option} {text[:64]!r} is no NAME=VALUE.", field=option)
    return name, value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--boost has {text[:64]!r}, which is no number.", field="boost") from None

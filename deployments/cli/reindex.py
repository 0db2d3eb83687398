"""``strata reindex``: bring an Elasticsearch index to another embedding model while it serves."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption
from deployments.cli.index import EmbedderOption, check_backend, described, elastic_index, other_model

if TYPE_CHECKING:
    from deployments.settings import Settings
    from index.elastic.reindex import ReindexReport


def reindex(
    embedder: EmbedderOption = None,
    swap: Annotated[
        bool,
        typer.Option("--swap/--no-swap", help="Without, the new version is filled and the old one goes on serving."),
    ] = True,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Embed the index anew with another model into a new version, while the old one serves, and swap the two.

    What is written meanwhile is caught up. It can be stopped at any time: the next run goes on where it was.
    """
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    check_backend(settings)
    try:
        with _sigterm_like_ctrl_c():
            report = asyncio.run(_run(settings, embedder, swap=swap, quiet=as_json))
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped; the old version serves. Run it again: it goes on where it was.")
        raise
    if as_json:
        print(render.as_json(report))
    else:
        _show(settings, report)


async def _run(settings: "Settings", name: str | None, *, swap: bool, quiet: bool) -> "ReindexReport":
    from deployments.cli.progress import counters  # noqa: PLC0415
    from index.elastic.reindex import Reindex  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    console = Console(stderr=True, quiet=quiet)
    with console.status("Loading the model …") as status:
        embedder = load_embedder(common.embedder_config(settings, name), status.update)
    async with elastic_index(settings) as index:
        write, batch = settings.index.elastic.write, settings.ingest.embed_texts
        job = Reindex(index.client, index.versions, embedder, write, batch)
        with counters(console) as progress:
            return await job.run(progress, swap=swap)


@contextmanager
def _sigterm_like_ctrl_c() -> Iterator[None]:
    """Within the block SIGTERM does what Ctrl-C does: it lets the event loop end its work, and cuts nothing off."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(settings: "Settings", report: "ReindexReport") -> None:
    old, new = report.source, report.target
    lines = []
    if report.reopened:
        lines.append(f"An earlier run had died and left version {old} closed to writes; it was opened again.")
    done = f"{report.nodes:,} nodes embedded, {report.removed:,} removed, in {report.seconds:.1f} s"
    lines.append(f"Version {new}{' went on' if report.resumed else ''}: {described(report.model)}; {done}.")
    if report.truncated:
        lines.append(f"{report.truncated:,} texts were cut at the model's limit.")
    if report.swapped:
        stopped, warning = f"{report.stopped_seconds:.2f} s", other_model(settings, report.model)
        lines.append(f"It serves now; writes were stopped for {stopped}.{warning}")
        lines.append(f"Version {old} stays as it was at the swap: strata index drop {old} frees its space.")
    else:
        lines.append(
            f"Version {old} goes on serving. strata reindex brings over what is written until then, and swaps."
        )
    Console(highlight=False).print("\n".join(lines), soft_wrap=True, markup=False)

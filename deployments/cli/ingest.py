"""``strata ingest``: bring documents into the index, or into a corpus."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from deployments.cli import common
from deployments.cli.common import ACCOUNT, AccountOption, ConfigOption, JsonOption, KeyOption
from deployments.cli.corpus_access import (
    AssistantOption,
    ConversationOption,
    DimOption,
    InProcessOption,
    UserOption,
    dimensions,
)
from deployments.cli.corpus_ingest import failures, ingest_files, receipt
from deployments.cli.corpus_ingest import show as show_summary

if TYPE_CHECKING:
    from deployments.settings import Settings
    from index.ingest import IngestReport, Source

NOTHING_INGESTED = 3
_SHOWN_PROBLEMS = 20
_PATH = "path"


class Kind(StrEnum):
    """What a path holds."""

    MARKDOWN = "markdown"
    RECORDS = "records"
    DIALOGUE = "dialogue"
    PYTHON = "python"


class _PathGroup(TyperGroup):
    """A group whose first word is a path unless it names a command; ``./failures`` is always a path."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command for paths before what names no other."""
        if args and args[0] not in self.commands:
            args = [_PATH, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Show no name for the command for paths."""
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == _PATH else name), command, rest


app = typer.Typer(cls=_PathGroup, no_args_is_help=True)
app.add_typer(failures, name="failures")
app.command("receipt")(receipt)


@app.command(_PATH, hidden=True, epilog="Further: strata ingest receipt ID, strata ingest failures list|retry|drop")
def ingest(
    path: Annotated[str, typer.Argument(help="A folder or file; the word python for the standard library.")],
    corpus: Annotated[
        str | None,
        typer.Option(help="Into this corpus, under the identity of the key: .json and .jsonl files, or a folder."),
    ] = None,
    dim: DimOption = None,
    user: UserOption = None,
    assistant: AssistantOption = None,
    conversation: ConversationOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="With --corpus: until all of it shows.")] = True,
    kind: Annotated[
        Kind | None, typer.Option(help="By default told from the path and, for .jsonl, from its first line.")
    ] = None,
    account: AccountOption = ACCOUNT,
    space: Annotated[str, typer.Option(help="Owner space of what is ingested.")] = "shared",
    source_id: Annotated[
        str, typer.Option(help="Name of the source; ingesting it again replaces what changed. Default: from the path.")
    ] = "",
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Ingest Markdown, records, dialogues or the Python standard library, writing only what changed.

    With --corpus, items, dialogues or pages go into a corpus, through the service where one is up.

    Problems are listed by file and line and the rest goes on; the exit code is 3 when nothing could be ingested.
    """
    from corpora.context.detect import source_for  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    if corpus:
        place, named = Path(path).expanduser(), dimensions(dim, user, assistant, conversation)
        summary = asyncio.run(ingest_files(settings, place, corpus, named, key, in_process=in_process, wait=wait))
        if as_json:
            print(render.as_json(summary))
        else:
            show_summary(summary)
        if not summary.receipts:
            raise typer.Exit(NOTHING_INGESTED)
        return
    source = source_for(path, kind.value if kind else None, space=space, name=source_id, config=settings.ingest)
    report = asyncio.run(run(settings, account, source, quiet=as_json))
    if as_json:
        print(render.as_json(report))
    else:
        show(report)
    if not report.added + report.changed + report.unchanged:
        raise typer.Exit(NOTHING_INGESTED)


async def run(settings: "Settings", account: str, source: "Source", *, quiet: bool = False) -> "IngestReport":
    """Ingest a source into the settings' index, showing how far it is."""
    from deployments.backends import open_writer  # noqa: PLC0415
    from deployments.cli.progress import counters  # noqa: PLC0415
    from index.ingest import Ingest  # noqa: PLC0415
    from models.load import load_embedder  # noqa: PLC0415

    console = Console(stderr=True, quiet=quiet)
    with console.status("Loading the model …") as status:
        embedder = load_embedder(settings.embedder, status.update)
    index = await open_writer(settings.data_dir, settings.index)
    try:
        ingest = Ingest(index, index, embedder, settings.ingest)
        with counters(console) as progress:
            return await ingest.run(account, source, progress)
    finally:
        await index.close()


def show(report: "IngestReport") -> None:
    """Print what an ingest did, and its problems on standard error."""
    counts = {
        "added": report.added,
        "changed": report.changed,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "failed": report.failed,
        "skipped": report.skipped,
    }
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing found"
    seconds = sum(report.seconds.values())
    line = Text.assemble((report.source_id, "bold"), f": {said}; {report.nodes:,} nodes in {seconds:.1f} s")
    Console(highlight=False).print(line, soft_wrap=True)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in report.problems[:_SHOWN_PROBLEMS]:
        where = f"{problem.file}, line {problem.line}" if problem.line else problem.file
        errors.print(Text.assemble((f"{where}: ", "dim" if problem.skipped else "yellow"), problem.message))
    if more := report.failed + report.skipped - min(len(report.problems), _SHOWN_PROBLEMS):
        errors.print(f"… and {more:,} more; --json lists {len(report.problems):,}.", style="dim")

"""``strata ingest PATH --corpus NAME``: files into a corpus, and what became of them."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption, KeyOption
from deployments.cli.corpus_access import InProcessOption, access, find_receipt

if TYPE_CHECKING:
    from corpora.files import Part
    from corpora.rag.failures import Failures
    from corpora.rag.types import Receipt
    from deployments.cli.corpus_access import Access
    from deployments.settings import Settings
    from index.ingest import Problem

failures = typer.Typer(help="What was given up: look, try again, or drop it.", no_args_is_help=True)

Result = TypeVar("Result")

# What is sent together at most.
_BODIES, _BYTES = 64, 1 << 20
_SHOWN = 20

IdsArgument = Annotated[list[int] | None, typer.Argument(help="Ids, as the list shows them.", show_default=False)]
CorpusFilter = Annotated[str | None, typer.Option("--corpus", help="Only of this corpus.")]
AccountFilter = Annotated[str | None, typer.Option("--account", "-a", help="Only of this account.")]
AllOption = Annotated[bool, typer.Option("--all", help="All that the other options leave.")]


class Summary(msgspec.Struct):
    """What an ingest into a corpus did.

    Args:
        corpus: Its name.
        stored: Sources that show.
        pending: Sources that are recorded durably and do not show yet.
        failed: Sources that were given up; strata ingest failures lists them.
        refused: Bodies of which nothing was stored.
        problems: Why, by file and line.
        receipts: To ask again with.
        seconds: How long it took.
    """

    corpus: str
    stored: int = 0
    pending: int = 0
    failed: int = 0
    refused: int = 0
    problems: list[str] = []
    receipts: list[str] = []
    seconds: float = 0.0


async def ingest_files(
    settings: "Settings",
    path: Path,
    corpus: str,
    dimensions: Mapping[str, str],
    key: str | None,
    *,
    in_process: bool,
    wait: bool,
) -> Summary:
    """Send a file or folder into a corpus.

    Args:
        settings: Where the service or the index is.
        path: See ``corpora.files.parts``.
        corpus: Name of the corpus.
        dimensions: Fill in what the file leaves out.
        key: The API key.
        in_process: Leave a running service alone.
        wait: Until all of it shows.

    Raises:
        StrataError: Nothing could be sent, or no more.
    """
    from corpora.files import parts  # noqa: PLC0415

    started, summary = time.monotonic(), Summary(corpus)
    console = Console(stderr=True)
    async with access(settings, key, in_process=in_process) as corpora:
        receipts: list[Receipt] = []
        with console.status("Sending …") as status:
            for group in _groups(parts(path, corpus, dimensions), summary):
                if receipt := await _send(corpora, corpus, group, summary):
                    receipts.append(receipt)
                status.update(f"{sum(len(each.sources) for each in receipts):,} sources sent …")
            if wait and receipts:
                status.update("Waiting until they show …")
                receipts = await corpora.settled(receipts)
    states = Counter(source.state for receipt in receipts for source in receipt.sources)
    summary.stored, summary.pending, summary.failed = (states[state] for state in ("stored", "pending", "failed"))
    reasons = (s for receipt in receipts for s in receipt.sources if s.state == "failed")
    summary.problems += [f"{source.source_id}: {source.reason}" for source in reasons]
    summary.receipts = [receipt.receipt_id for receipt in receipts]
    summary.seconds = round(time.monotonic() - started, 2)
    return summary


async def _send(corpora: "Access", corpus: str, group: "list[Part]", summary: Summary) -> "Receipt | None":
    answer = await corpora.ingest(corpus, [part.body for part in group])
    summary.refused += len(answer.refused)
    for refused in answer.refused:
        part = group[refused.index]
        where = f" [{refused.field}]" if refused.field else ""
        summary.problems.append(f"{part.file}, line {part.line}: {refused.message}{where} {refused.remedy}".rstrip())
    return answer.receipt


def _groups(found: "Iterable[Part | Problem]", summary: Summary) -> "Iterator[list[Part]]":
    """Bodies that are sent together; problems are noted."""
    from index.ingest import Problem  # noqa: PLC0415

    group: list[Part] = []
    size = 0
    for part in found:
        if isinstance(part, Problem):
            summary.refused += 1
            summary.problems.append(f"{part.file}, line {part.line}: {part.message}")
            continue
        length = len(msgspec.json.encode(part.body))
        if group and (len(group) == _BODIES or size + length > _BYTES):
            yield group
            group, size = [], 0
        group.append(part)
        size += length
    if group:
        yield group


def show(summary: Summary) -> None:
    """Print what an ingest did, and its problems on standard error."""
    counts = {name: getattr(summary, name) for name in ("stored", "pending", "failed", "refused")}
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing found"
    line = Text.assemble((summary.corpus, "bold"), f": {said} in {summary.seconds:.1f} s")
    Console(highlight=False).print(line, soft_wrap=True)
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in summary.problems[:_SHOWN]:
        errors.print(Text(problem, "yellow"))
    if (more := len(summary.problems) - _SHOWN) > 0:
        errors.print(f"… and {more:,} more; --json lists all.", style="dim")
    if summary.pending:
        errors.print(f"What is pending: strata ingest receipt {summary.receipts[-1]}")
    if summary.failed:
        errors.print("What failed: strata ingest failures list")


def receipt(
    receipt_id: Annotated[str, typer.Argument(help="As an ingest or a deletion gave it.", show_default=False)],
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what became of an ingest or a deletion."""
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)

    async def ask() -> "Receipt":
        async with access(settings, key, in_process=in_process) as corpora:
            return await find_receipt(corpora, receipt_id)

    found = asyncio.run(ask())
    if as_json:
        print(render.as_json(found))
        return
    rows = ((source.source_id, source.state, str(source.chunks), source.reason) for source in found.sources)
    Console().print(f"{found.corpus}: [bold]{found.state}[/]")
    Console().print(render.table(("source", "state", "chunks", "reason"), rows))


@failures.command("list")
def list_failures(
    corpus: CorpusFilter = None,
    account: AccountFilter = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the changes that were given up, with the step that failed and why."""
    from deployments.cli import render  # noqa: PLC0415

    found = _asked(config, lambda store: store.list(corpus, account, limit=limit))
    if as_json:
        print(render.as_json(found))
        return
    rows = (
        (str(each.id), each.account_id, each.corpus, each.source_id, each.step, str(each.attempts), each.reason)
        for each in found
    )
    columns = ("id", "account", "corpus", "source", "step", "tries", "reason")
    Console().print(render.table(columns, rows) if found else "Nothing has failed.")


@failures.command()
def retry(
    ids: IdsArgument = None,
    everything: AllOption = False,
    corpus: CorpusFilter = None,
    account: AccountFilter = None,
    config: ConfigOption = None,
) -> None:
    """Have them tried again, by the service or by the next ingest on this machine."""
    count = _changed("retry", ids, corpus, account, config, everything=everything)
    print(f"{count} will be tried again.")


@failures.command()
def drop(
    ids: IdsArgument = None,
    everything: AllOption = False,
    corpus: CorpusFilter = None,
    account: AccountFilter = None,
    config: ConfigOption = None,
) -> None:
    """Give them up for good; what is stored of their sources stays."""
    count = _changed("drop", ids, corpus, account, config, everything=everything)
    print(f"{count} dropped.")


def _changed(
    what: Literal["retry", "drop"],
    ids: list[int] | None,
    corpus: str | None,
    account: str | None,
    config: Path | None,
    *,
    everything: bool,
) -> int:
    from contracts.errors import InvalidInput  # noqa: PLC0415

    if not ids and not everything:
        raise InvalidInput("Nothing is named.", field="ids", remedy=f"strata ingest failures {what} ID… or --all")
    chosen = None if everything else ids
    if what == "retry":
        return _asked(config, lambda store: store.retry(chosen, corpus, account))
    return _asked(config, lambda store: store.drop(chosen, corpus, account))


def _asked(config: Path | None, work: "Callable[[Failures], Awaitable[Result]]") -> "Result":
    """What the failures of the settings' database say."""
    from corpora.rag.failures import Failures  # noqa: PLC0415
    from deployments.backends import open_database  # noqa: PLC0415

    settings = common.load_settings(config)

    async def run() -> Result:
        database = await open_database(settings)
        try:
            return await work(Failures(database))
        finally:
            await database.close()

    return asyncio.run(run())

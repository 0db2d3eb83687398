"""``strata kb gaps``: what was asked in vain."""

import csv
import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import msgspec
import typer
from rich.console import Console

from contracts.errors import InvalidInput
from deployments.cli.common import ACCOUNT, AccountOption, ConfigOption, JsonOption
from deployments.cli.kb_access import in_process

if TYPE_CHECKING:
    from corpora.knowledge_base.types import Gap

app = typer.Typer(help="Questions without an answer, asked most first.", no_args_is_help=True)

LimitOption = Annotated[int, typer.Option(min=1, help="At most as many.")]
ResolvedOption = Annotated[bool, typer.Option("--resolved", help="Those that were resolved, not the open ones.")]


class Format(StrEnum):
    """Of an export."""

    CSV = "csv"
    JSONL = "jsonl"


@app.command("list")
def list_gaps(
    clusters: Annotated[bool, typer.Option(help="Those that ask for the same together.")] = True,
    resolved: ResolvedOption = False,
    limit: LimitOption = 20,
    similarity: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Cosine from which two count as the same; by default the settings'."),
    ] = None,
    account: AccountOption = ACCOUNT,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """List the gaps, near-duplicates in one group, so that the real ones are seen."""
    from contracts.context import RequestContext  # noqa: PLC0415
    from deployments.cli import render  # noqa: PLC0415

    ctx = RequestContext(account)
    if clusters and not resolved:
        groups = in_process(config, lambda local: local.kb.gap_clusters(ctx, similarity))[:limit]
        if as_json:
            print(render.as_json(groups))
            return
        shown = [
            (
                f"{group.hit_count:,}",
                group.query_text,
                f"{len(group.gaps):,}",
                " ".join(gap.gap_id for gap in group.gaps),
            )
            for group in groups
        ]
        Console().print(render.table(("hits", "question", "ways", "gaps"), shown) if shown else "No gaps.")
        return
    gaps = in_process(config, lambda local: local.kb.list_gaps(ctx, resolved=resolved, limit=limit))
    if as_json:
        print(render.as_json(gaps))
        return
    rows = [(f"{gap.hit_count:,}", gap.query_text, _context(gap), _day(gap.last_seen_at), gap.gap_id) for gap in gaps]
    Console().print(render.table(("hits", "question", "filters", "last", "gap"), rows) if rows else "No gaps.")


@app.command()
def export(
    to: Annotated[Path | None, typer.Option("--to", help="A file; by default the standard output.")] = None,
    form: Annotated[Format, typer.Option("--format")] = Format.CSV,
    resolved: ResolvedOption = False,
    account: AccountOption = ACCOUNT,
    config: ConfigOption = None,
) -> None:
    """Write all gaps as CSV or JSON Lines."""
    from contracts.context import RequestContext  # noqa: PLC0415

    gaps = in_process(config, lambda local: local.kb.list_gaps(RequestContext(account), resolved=resolved))
    if to is None:
        _write(gaps, form, sys.stdout)
        return
    try:
        with to.open("w", encoding="utf-8", newline="") as file:
            _write(gaps, form, file)
    except OSError as error:
        raise InvalidInput(f"{to} can't be written: {error.strerror}.", field="to") from None
    print(f"{len(gaps):,} gaps written to {to}.")


@app.command()
def resolve(
    gap_ids: Annotated[list[str], typer.Argument(help="As strata kb gaps list shows them.", show_default=False)],
    note: Annotated[str, typer.Option(help="What was done.")] = "",
    account: AccountOption = ACCOUNT,
    config: ConfigOption = None,
) -> None:
    """Close gaps. Asked in vain again, one opens again."""
    from contracts.context import RequestContext  # noqa: PLC0415

    closed = in_process(config, lambda local: local.kb.resolve_gaps(RequestContext(account), gap_ids, note))
    print(f"{closed:,} resolved.")
    if not closed:
        raise InvalidInput("None of these gaps is open.", field="gap_ids", remedy="See: strata kb gaps list")


def _write(gaps: "list[Gap]", form: Format, file: TextIO) -> None:
    if form is Format.JSONL:
        file.writelines(f"{msgspec.json.encode(gap).decode()}\n" for gap in gaps)
        return
    writer = csv.writer(file)
    writer.writerow(("gap_id", "query_text", "filter_ctx", "hit_count", "first_seen_at", "last_seen_at", "note"))
    for gap in gaps:
        times = (_second(gap.first_seen_at), _second(gap.last_seen_at))
        writer.writerow((gap.gap_id, _plain(gap.query_text), _json(gap), gap.hit_count, *times, _plain(gap.note)))


def _plain(text: str) -> str:
    """A cell that no spreadsheet takes for a formula: a question is anybody's text."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _json(gap: "Gap") -> str:
    return msgspec.json.encode(gap.filter_ctx, order="sorted").decode()


def _context(gap: "Gap") -> str:
    return " ".join(f"{name}={','.join(values)}" for name, values in sorted(gap.filter_ctx.items())) or "-"


def _second(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, tz=UTC).isoformat(timespec="seconds")


def _day(millis: int) -> str:
    return _second(millis)[:10]

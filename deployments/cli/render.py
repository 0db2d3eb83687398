"""How answers look on a terminal."""

from collections.abc import Iterable

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from contracts.hits import RetrievedBlock, ScoreBreakdown
from contracts.responses import ReadMemoryResponse, SearchMemoryResponse
from contracts.trace import Trace

_STAGE_TIMES = {
    "plan": "planner_ms",
    "embed": "embed_ms",
    "seed": "seed_ms",
    "expand": "hierarchical_ms",
    "recheck": "recheck_ms",
    "rerank": "rerank_ms",
    "assemble": "assemble_ms",
}
_CODE = {"module", "class", "function"}
_PARTS = ("keyword", "vector", "relevance", "hierarchy", "category", "target", "rerank")


def as_json(answer: object) -> str:
    """An answer as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def answer(answer: SearchMemoryResponse | ReadMemoryResponse) -> RenderableType:
    """What a search or a read answered."""
    return search_answer(answer) if isinstance(answer, SearchMemoryResponse) else read_answer(answer)


def search_answer(answer: SearchMemoryResponse) -> RenderableType:
    """Hits with what their scores are made of, and the time each stage took."""
    parts: list[RenderableType] = [_hit(rank, block) for rank, block in enumerate(answer.hits, start=1)]
    if not answer.hits:
        parts.append(Text("No hits.", "yellow"))
    parts.append(times(answer.trace))
    parts.extend(Text(f"⚠ {warning}", "yellow") for warning in answer.trace.warnings)
    return Group(*parts)


def read_answer(answer: ReadMemoryResponse, max_lines: int | None = None) -> RenderableType:
    """One block at the level that was read, of a long text the first lines."""
    block = answer.block
    text = (block.overview if block.level_hit == "L1" else block.content_excerpt) or "(nothing at this level)"
    lines = text.splitlines()
    if max_lines and len(lines) > max_lines:
        text = "\n".join([*lines[:max_lines], f"# … {len(lines) - max_lines} more lines"])
    body: RenderableType = Text(text)
    if block.level_hit == "L2" and block.category in _CODE:
        body = Syntax(text, "python", theme="ansi_dark", background_color="default")
    parts: list[RenderableType] = [body]
    if block.relations:
        parts.append(Rule("relations", style="dim"))
        parts.extend(Text(f"{r.relation_type} → {r.to_uri} ({r.weight:.2f})", "dim") for r in block.relations)
    return Panel(Group(*parts), title=Text(f"{block.level_hit}  {block.uri}", "bold"), title_align="left")


def times(trace: Trace) -> Text:
    """Milliseconds of each stage in one line."""
    stages = (
        Text.assemble((f"{name} ", "dim"), (str(getattr(trace, field)), "cyan")) for name, field in _STAGE_TIMES.items()
    )
    return Text.assemble((f"{trace.total_ms} ms: ", "bold"), Text(", ", "dim").join(stages))


def table(columns: Iterable[str], rows: Iterable[Iterable[RenderableType]]) -> Table:
    """A plain table; text in it is shown as it is, so that brackets in it are no markup."""
    result = Table(*columns, header_style="bold", box=None)
    for row in rows:
        result.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return result


def _hit(rank: int, block: RetrievedBlock) -> RenderableType:
    line = Text.assemble((f"{rank:>2}  ", "bold"), (f"{block.score:.3f}  ", "bold green"), (block.uri, "bold cyan"))
    abstract = Text(" ".join((block.abstract or "").split()), overflow="ellipsis", no_wrap=True)
    return Group(line, Padding(Group(abstract, _scores(block.scores)), (0, 0, 0, 11)))


def _scores(scores: ScoreBreakdown | None) -> Text:
    values = ((name, getattr(scores, name, None)) for name in _PARTS)
    return Text(" · ").join(
        Text.assemble((f"{name} ", "dim"), (f"{value:.2f}", "dim cyan")) for name, value in values if value
    )

"""``strata retrieve``, ``strata delete`` and ``strata corpora``."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from contracts.errors import InvalidFilter
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption, KeyOption
from deployments.cli.corpus_access import (
    AssistantOption,
    ConversationOption,
    CorpusOption,
    DimOption,
    InProcessOption,
    UserOption,
    access,
    dimensions,
)

if TYPE_CHECKING:
    from corpora.rag.types import CorpusHit, Receipt, Retrieved
    from deployments.cli.corpus_access import Access

Result = TypeVar("Result")
_FAILED = 1
_LINES = 3


def retrieve(
    query: Annotated[str, typer.Argument(help="What to look for, in Chinese or English.", show_default=False)],
    corpus: CorpusOption,
    dim: DimOption = None,
    user: UserOption = None,
    assistant: AssistantOption = None,
    conversation: ConversationOption = None,
    top_k: Annotated[int | None, typer.Option("--top-k", "-k", help="Hits wanted, 1 to 50.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Least relevance, 0 to 1.")] = None,
    rerank: Annotated[bool | None, typer.Option("--rerank/--no-rerank", help="Have the reranker order them.")] = None,
    options: Annotated[str | None, typer.Option(help="The corpus's own options, as JSON.")] = None,
    filter_json: Annotated[str | None, typer.Option("--filter", help="A further filter, as JSON.")] = None,
    timeout_ms: Annotated[int | None, typer.Option(min=1, help="Answer within this time.")] = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Retrieve the chunks of a corpus that bear on a query, with their texts."""
    from deployments.cli import render  # noqa: PLC0415

    body = {
        "query": query,
        "dimensions": dimensions(dim, user, assistant, conversation),
        "options": _json(options, "options"),
        "top_k": top_k,
        "threshold": threshold,
        "rerank": rerank,
        "filter": _json(filter_json, "filter"),
        "timeout_ms": timeout_ms,
    }
    body = {name: value for name, value in body.items() if value is not None}
    answer: Retrieved = _run(config, key, in_process, lambda corpora: corpora.retrieve(corpus, body))
    if as_json:
        print(render.as_json(answer))
    else:
        Console().print(_shown(answer))


def delete(
    source: Annotated[list[str], typer.Option("--source", help="Id of a source; repeatable.")],
    corpus: CorpusOption,
    dim: DimOption = None,
    user: UserOption = None,
    assistant: AssistantOption = None,
    conversation: ConversationOption = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete sources from a corpus, where a retrieval with the same dimensions would look."""
    from deployments.cli import render  # noqa: PLC0415

    where = dimensions(dim, user, assistant, conversation)

    async def remove(corpora: "Access") -> "Receipt":
        return (await corpora.settled([await corpora.delete(corpus, source, where)]))[0]

    receipt = _run(config, key, in_process, remove)
    if as_json:
        print(render.as_json(receipt))
        return
    for each in receipt.sources:
        print(f"{each.source_id}: {'gone' if each.state == 'stored' else each.reason or each.state}")
    if receipt.state == "failed":
        raise typer.Exit(_FAILED)


def list_corpora(
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """List the corpora."""
    from deployments.cli import render  # noqa: PLC0415

    names = _run(config, key, in_process, lambda corpora: corpora.names())
    print(render.as_json(names) if as_json else "\n".join(names) or "No corpora.")


def _run(
    config: Path | None, key: str | None, in_process: bool, work: "Callable[[Access], Awaitable[Result]]"
) -> Result:
    settings = common.load_settings(config)

    async def run() -> Result:
        async with access(settings, key, in_process=in_process) as corpora:
            return await work(corpora)

    return asyncio.run(run())


def _json(text: str | None, field: str) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise InvalidFilter(f"--{field} is no JSON.", field=field, remedy="Write a JSON object.") from None


def _shown(answer: "Retrieved") -> RenderableType:
    parts: list[RenderableType] = [_hit(rank, hit) for rank, hit in enumerate(answer.hits, start=1)]
    if not answer.hits:
        parts.append(Text("No hits.", "yellow"))
    below = f", {answer.below_threshold} below the threshold" if answer.below_threshold else ""
    parts.append(Text(f"path {answer.path}{', from the cache' if answer.cached else ''}{below}", "dim"))
    parts.extend(Text(f"⚠ {part.stage}: {part.reason}", "yellow") for part in answer.degraded)
    return Group(*parts)


def _hit(rank: int, hit: "CorpusHit") -> RenderableType:
    title = f"  {hit.title}" if hit.title else ""
    line = Text.assemble((f"{rank:>2}  ", "bold"), (f"{hit.score:.3f}  ", "bold green"), (hit.source_id, "bold cyan"))
    lines = hit.text.strip().splitlines()
    text = Text("\n".join(lines[:_LINES] + (["…"] if len(lines) > _LINES else [])), overflow="ellipsis")
    attrs = " · ".join(f"{name} {', '.join(values)}" for name, values in sorted(hit.attrs.items()))
    return Group(
        line.append(title), Padding(Group(text, Text(attrs, "dim", overflow="ellipsis", no_wrap=True)), (0, 0, 0, 11))
    )

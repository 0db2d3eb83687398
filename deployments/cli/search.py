"""``strata search`` and ``strata read``: over HTTP, or with the stages in this process."""

import asyncio
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from contracts.errors import InvalidFilter
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption, KeyOption

if TYPE_CHECKING:
    from contracts.responses import ReadMemoryResponse, SearchMemoryResponse

InProcessOption = Annotated[
    bool, typer.Option("--in-process", help="Run the stages in this process, without the service.")
]


class LevelName(StrEnum):
    """What is read of a node."""

    L1 = "L1"
    L2 = "L2"


class ContextTypeName(StrEnum):
    """What is searched."""

    MEMORY = "memory"
    SKILL = "skill"
    RESOURCE = "resource"


def search(
    text: Annotated[str, typer.Argument(help="What to look for, in Chinese or English.", show_default=False)],
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Hits wanted, 1 to 50.")] = 10,
    target_uri: Annotated[str | None, typer.Option(help="Search only this subtree.")] = None,
    owner_space: Annotated[str | None, typer.Option(help="Search only this space.")] = None,
    category: Annotated[list[str] | None, typer.Option(help="Preferred category; repeatable.")] = None,
    context_type: Annotated[
        list[ContextTypeName] | None, typer.Option(help="Search this type only; repeatable.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Least score, 0 to 1.")] = None,
    filter_json: Annotated[
        str | None, typer.Option("--filter", help='For instance \'{"eq": {"kind": "function"}}\'.')
    ] = None,
    timeout_ms: Annotated[int | None, typer.Option(min=1, help="Answer within this time.")] = None,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Search L0 abstracts; show the hits, what their scores are made of, and the time of each stage."""
    body = {
        "query": text,
        "top_k": top_k,
        "target_uri": target_uri,
        "owner_space": owner_space,
        "categories": category or None,
        "planner_hints": {"context_types": [str(each) for each in context_type]} if context_type else None,
        "score_threshold": threshold,
        "filter": _filter(filter_json),
        "timeout_ms": timeout_ms,
    }
    _answer(
        "search", {name: value for name, value in body.items() if value is not None}, in_process, as_json, key, config
    )


def read(
    uri: Annotated[str, typer.Argument(help="As a search gives it.", show_default=False)],
    level: Annotated[LevelName, typer.Option(help="L1: the overview; L2: the content.")] = LevelName.L1,
    relations: Annotated[int, typer.Option(min=0, max=100, help="Relations to show, at most.")] = 0,
    in_process: InProcessOption = False,
    as_json: JsonOption = False,
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Read the overview (L1) or the content (L2) of a node."""
    body = {"uri": uri, "level": str(level), "expand_relations": relations > 0, "max_relations": relations}
    _answer("read", body, in_process, as_json, key, config)


def _answer(
    walk: Literal["search", "read"],
    body: dict[str, Any],
    in_process: bool,
    as_json: bool,
    key: str | None,
    config: Path | None,
) -> None:
    from deployments.cli import render  # noqa: PLC0415

    settings = common.load_settings(config)
    token = common.find_key(settings, key)
    answer: SearchMemoryResponse | ReadMemoryResponse
    if in_process:
        from deployments.cli import in_process as here  # noqa: PLC0415

        answer = asyncio.run(getattr(here, walk)(settings, token, body))
    else:
        from deployments.cli.client import Client  # noqa: PLC0415

        with Client(common.service_url(settings), token) as client:
            answer = getattr(client, walk)(**body)
    if as_json:
        print(render.as_json(answer))
    else:
        Console().print(render.answer(answer))


def _filter(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise InvalidFilter(
            "--filter is no JSON.", field="filter", remedy="""'{"eq": {"kind": "function"}}'"""
        ) from None

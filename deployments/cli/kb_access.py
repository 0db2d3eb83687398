"""How the commands of ``strata kb`` reach the knowledge base: in this process."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console

from contracts.errors import ConfigError
from deployments.cli import common

if TYPE_CHECKING:
    from deployments.knowledge_base.opening import LocalKnowledgeBase

Result = TypeVar("Result")


def in_process(
    config: Path | None, work: "Callable[[LocalKnowledgeBase], Awaitable[Result]]", *, sync: bool = False
) -> Result:
    """Do something with the knowledge base of the settings.

    Args:
        config: The settings file.
        work: What to do.
        sync: Whether the index is brought up to date after it, unless a service is at that.
    """
    from deployments.knowledge_base.opening import local_knowledge_base  # noqa: PLC0415

    settings = common.load_settings(config)

    async def run() -> Result:
        async with local_knowledge_base(settings) as local:
            result = await work(local)
            if sync:
                await _synced(local)
            return result

    return asyncio.run(run())


async def _synced(local: "LocalKnowledgeBase") -> None:
    try:
        await local.worker.drain()
    except ConfigError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"It is stored; the index follows once it can be written: {error.message}", markup=False
        )

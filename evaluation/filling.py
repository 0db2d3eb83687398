"""Filling an index, timed."""

import time
from collections.abc import Iterable, Sequence

import msgspec

from contracts.ports import Embeddable
from contracts.records import ModelRef
from evaluation.contestants import Contestant
from evaluation.timed_search import Told


class Ingested(msgspec.Struct, frozen=True):
    """How an index was filled.

    Args:
        index: Which.
        rows: Nodes written.
        documents: Documents written.
        put_s: Seconds of all ``put``; vectors were given.
        optimize_s: Seconds of ``optimize``, until nothing goes on in the background.
        bytes: On disk, afterwards.
        segments: Those that a search looks into one by one; ``None`` when they are not told.
    """

    index: str
    rows: int
    documents: int
    put_s: float
    optimize_s: float
    bytes: int
    segments: int | None


def silent(_: str) -> None:
    """Tell nobody."""


async def fill(
    contestant: Contestant,
    name: str,
    source: str,
    parts: Iterable[tuple[str, Sequence[Embeddable]]],
    model: ModelRef,
    told: Told = silent,
    optimize_after: int | None = None,
) -> Ingested:
    """Write documents, and wait until nothing goes on in the background any more.

    Args:
        contestant: What is filled.
        name: What the report calls it.
        source: Of the documents.
        parts: Account and documents of each ``put``; making them is not timed.
        model: Of their vectors.
        told: How many nodes are written.
        optimize_after: Optimise each time so many parts are written, besides at the end, as many ingests one after the
            other would; without it LanceDB slows down with every part of its own.
    """
    rows = documents = 0
    put_s = optimize_s = 0.0
    for number, (account, made) in enumerate(parts):
        if optimize_after and number and number % optimize_after == 0:
            started = time.perf_counter()
            await contestant.index.optimize()
            optimize_s += time.perf_counter() - started
        told(f"Filling {name}: {rows:,} nodes")
        started = time.perf_counter()
        await contestant.index.put(account, source, made, model)
        put_s += time.perf_counter() - started
        rows, documents = rows + sum(len(item.document.nodes) for item in made), documents + len(made)
    told(f"Optimising {name}")
    started = time.perf_counter()
    await contestant.index.optimize()
    await contestant.settle()
    optimize_s += time.perf_counter() - started
    size = await contestant.size()
    return Ingested(
        index=name,
        rows=rows,
        documents=documents,
        put_s=round(put_s, 2),
        optimize_s=round(optimize_s, 2),
        bytes=size.bytes,
        segments=size.segments,
    )

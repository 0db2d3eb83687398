"""What searches cost on a cluster of N nodes: a model that follows from CPU a search, memory, and a price.

With s CPU-seconds a search, and of N nodes with c cores each f spare, used up to the share u:

    searches a second   q = (N - f) · c · u / s
    price of a million  = N · c · p / (3600 · q) · 10⁶ = 10⁶ · s · p / (3600 · u) · N / (N - f)

for a price p of a core for an hour, its share of memory and disk in it. So a part of the search that takes a share of s
takes the same share of the price. Copies of the index add no CPU to a search; they take memory:

    memory a node       = records / 10⁶ · g · k / (N - f)

for k copies of g GB a million records; all of one copy where the index is not split over the nodes.
"""

from collections.abc import Mapping

import msgspec

from contracts.errors import ConfigError

_MILLION = 1_000_000
_HOUR_S = 3600


class Work(msgspec.Struct, frozen=True):
    """What is searched.

    Args:
        cpu_ms: CPU a search by part, milliseconds; above 0 together.
        records: In the index.
        gb_per_million: Memory that a million records need in one copy, GB; their bytes on disk where all of them are
            to stay in the page cache.
        copies: Of the index, at least 1.
        split: Whether the nodes share the copies; else each holds a whole one, and ``copies`` says nothing.
    """

    cpu_ms: Mapping[str, float]
    records: int
    gb_per_million: float
    copies: int = 1
    split: bool = True


class Nodes(msgspec.Struct, frozen=True):
    """What is searched on.

    Args:
        count: Nodes.
        cores: Of a node.
        memory_gb: Of a node, for the index.
        core_hour: Price of a core for an hour with its share of memory and disk, in whatever currency.
        utilisation: Share of the cores that searches may keep busy, 0 < u ≤ 1: below where the service saturates.
        spare: Nodes that may be lost without a search too many or a record lost; below both count and copies.
    """

    count: int
    cores: float
    memory_gb: float
    core_hour: float
    utilisation: float
    spare: int = 0


class Cost(msgspec.Struct, frozen=True):
    """What it comes to.

    Args:
        searches_per_second: That the nodes take.
        per_million: Price of a million searches at that rate; at a share of it the price is divided by that share.
        parts: The same by part.
        node_gb: Memory that each node needs for the index while the spare ones are lost.
        fits: Whether it has that.
    """

    searches_per_second: float
    per_million: float
    parts: dict[str, float]
    node_gb: float
    fits: bool


def cost(work: Work, nodes: Nodes) -> Cost:
    """Price a million searches; see the module.

    Raises:
        ConfigError: A number is out of its range.
    """
    cpu_s = sum(work.cpu_ms.values()) / 1000
    _check(cpu_s > 0, "cpu_ms", "No CPU time was measured, so no price follows from it.")
    _check(0 < nodes.utilisation <= 1, "utilisation", "utilisation must be above 0 and at most 1.")
    _check(0 <= nodes.spare < nodes.count, "spare", "spare must be 0 or more, and below the number of nodes.")
    _check(
        nodes.spare < work.copies or not work.split,
        "copies",
        "With no more copies than spare nodes, losing those loses records.",
    )
    _check(nodes.cores > 0 and nodes.core_hour >= 0, "cores", "cores must be above 0, and their price not below.")
    working = nodes.count - nodes.spare
    rate = working * nodes.cores * nodes.utilisation / cpu_s
    per_million = nodes.count * nodes.cores * nodes.core_hour / (_HOUR_S * rate) * _MILLION
    node_gb = work.records / _MILLION * work.gb_per_million * (work.copies / working if work.split else 1)
    return Cost(
        searches_per_second=rate,
        per_million=per_million,
        parts={name: per_million * ms / 1000 / cpu_s for name, ms in work.cpu_ms.items()},
        node_gb=node_gb,
        fits=node_gb <= nodes.memory_gb,
    )


def _check(holds: bool, field: str, message: str) -> None:
    if not holds:
        raise ConfigError(message, field=field)

"""What is varied, one dimension at a time around a base point, and what was measured at each point."""

from collections.abc import Iterator

import msgspec

from evaluation.filling import Ingested
from evaluation.growth.forest import Forest
from evaluation.growth.searches import Searches

BASE = "base"


class Grid(msgspec.Struct, frozen=True):
    """Values by dimension; the middle one of each, of two the first, is the base point's.

    Args:
        records: In all.
        tenants: That share them.
        fan_out: Children of a node that has any.
        depth: Levels of a tree.
    """

    records: tuple[int, ...]
    tenants: tuple[int, ...]
    fan_out: tuple[int, ...]
    depth: tuple[int, ...]

    def base(self, dimensions: int, seed: int) -> Forest:
        """The point around which is varied.

        Raises:
            ConfigError: It can't be made.
        """
        middle = {name: values[(len(values) - 1) // 2] for name, values in self._values()}
        return Forest(**middle, dimensions=dimensions, seed=seed)

    def points(self, dimensions: int, seed: int) -> list["Point"]:
        """The base point, and those that differ from it in one dimension.

        Args:
            dimensions: Of the vectors.
            seed: The same seed makes the same records and questions.

        Raises:
            ConfigError: One can't be made.
        """
        base = self.base(dimensions, seed)
        others = [
            Point(name, msgspec.structs.replace(base, **{name: value}))
            for name, values in self._values()
            for value in dict.fromkeys(values)
            if value != getattr(base, name)
        ]
        return [Point(BASE, base), *others]

    def _values(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        return ((name, getattr(self, name)) for name in self.__struct_fields__)


class Point(msgspec.Struct, frozen=True):
    """A point, and the dimension in which it differs from the base point; ``base`` for that one."""

    varied: str
    forest: Forest


class Measured(msgspec.Struct, frozen=True):
    """What was measured on a backend at a point."""

    point: Point
    backend: str
    ingest: Ingested
    search: Searches


class Report(msgspec.Struct, frozen=True):
    """All that was measured so far; ``left`` points and backends were not yet."""

    measured: tuple[Measured, ...]
    left: int

    def largest(self) -> dict[str, Measured]:
        """By backend what was measured with the most records, first of all at the base point."""
        found: dict[str, Measured] = {}
        for each in self.measured:
            held = found.get(each.backend)
            if held is None or each.point.forest.records > held.point.forest.records:
                found[each.backend] = each
        return found

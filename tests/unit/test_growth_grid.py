"""What ``strata eval growth`` varies."""

import pytest

from contracts.errors import ConfigError
from evaluation.growth.forest import Forest
from evaluation.growth.grid import Grid

GRID = Grid(records=(1_000, 10_000, 30_000), tenants=(1, 10, 100), fan_out=(5, 50, 500), depth=(2, 4, 8))


def test_each_point_differs_from_the_base_in_the_dimension_it_names_and_in_no_other() -> None:
    """Issue 9: growth in records, tenants, fan-out and depth."""
    base = Forest(10_000, 10, 50, 4, dimensions=384, seed=7)
    points = GRID.points(384, 7)
    assert (points[0].varied, points[0].forest) == ("base", base)
    assert len(points) == 9
    for point in points[1:]:
        assert [n for n in Forest.__struct_fields__ if getattr(point.forest, n) != getattr(base, n)] == [point.varied]
    assert [point.forest.records for point in points if point.varied == "records"] == [1_000, 30_000]


def test_the_base_is_the_middle_value_of_two_the_first_and_no_point_comes_twice() -> None:
    points = Grid(records=(300, 100), tenants=(2, 2, 2), fan_out=(5,), depth=(3, 4)).points(8, 0)
    assert [(point.varied, point.forest) for point in points] == [
        ("base", Forest(300, 2, 5, 3, 8)),
        ("records", Forest(100, 2, 5, 3, 8)),
        ("depth", Forest(300, 2, 5, 4, 8)),
    ]


def test_a_grid_with_a_point_that_cannot_be_made_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(ConfigError, match="fewer than 1000 tenants"):
        Grid(records=(100,), tenants=(1, 10, 1_000), fan_out=(5,), depth=(3,)).points(8, 0)

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from models.catalog import Pooling
from models.pooling import pool, unit

HIDDEN = np.array([[[1.0, 2.0], [3.0, 4.0], [90.0, 90.0]], [[5.0, 6.0], [7.0, 8.0], [9.0, 10.0]]], dtype=np.float32)
MASK = np.array([[1, 1, 0], [1, 1, 1]])
EXPECTED: dict[Pooling, list[list[float]]] = {
    "mean": [[2.0, 3.0], [7.0, 8.0]],
    "cls": [[1.0, 2.0], [5.0, 6.0]],
    "last": [[3.0, 4.0], [9.0, 10.0]],
}


def _tensor(array: Any) -> Any:
    return pytest.importorskip("torch").as_tensor(array)


@pytest.mark.parametrize("kind", [np.asarray, _tensor])
@pytest.mark.parametrize("how", EXPECTED)
def test_padding_has_no_part_in_the_pooled_vector(how: Pooling, kind: Callable[[Any], Any]) -> None:
    pooled = pool(kind(HIDDEN), kind(MASK), how)
    assert np.asarray(pooled).tolist() == EXPECTED[how]


def test_rows_are_scaled_to_length_one() -> None:
    rows = unit([[3.0, 4.0], [0.0, 2.0]])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.0, 1.0]], rtol=1e-6)


def test_a_zero_row_stays_zero() -> None:
    assert unit([[0.0, 0.0]]).tolist() == [[0.0, 0.0]]

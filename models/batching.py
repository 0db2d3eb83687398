"""Batches bounded by tokens, padding included; pure."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group texts of like length.

    Args:
        lengths: Tokens of each text, at least 1.
        budget: Tokens a batch may hold: its number of texts times the longest.

    Returns:
        Positions, each once, longest texts first so that memory peaks at the start. A text longer than the budget is a
        batch by itself.
    """
    groups: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        group = groups[-1] if groups else []
        if group and lengths[group[0]] * (len(group) + 1) <= budget:
            group.append(position)
        else:
            groups.append([position])
    return groups


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Ids, Ids]:
    """Token ids and attention mask of shape (rows, longest row), padded on the right."""
    ids = np.full((len(rows), max(map(len, rows))), pad_id, dtype=np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return ids, mask

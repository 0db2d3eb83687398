"""From token vectors to one vector a text; for numpy arrays and torch tensors alike."""

from typing import Any

import numpy as np

from contracts.ports import Vectors
from models.catalog import Pooling


def pool(hidden: Any, mask: Any, how: Pooling) -> Any:
    """Pool token vectors.

    Args:
        hidden: Shape (rows, tokens, dimensions).
        mask: Shape (rows, tokens), integers, 1 for a token and 0 for padding on its right; at least one 1 a row.
        how: mean of the tokens, the first token (cls), or the last one.

    Returns:
        Shape (rows, dimensions), of the kind of ``hidden``.
    """
    if how == "cls":
        return hidden[:, 0]
    if how == "last":
        return hidden[list(range(len(hidden))), mask.sum(1) - 1]
    weights = mask[..., None]
    return (hidden * weights).sum(1) / weights.sum(1)


def unit(vectors: Any) -> Vectors:
    """L2-normalised float32 rows."""
    rows = np.asarray(vectors, dtype=np.float32)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), dtype=np.float32)

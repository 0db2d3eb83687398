"""An embedder without a model: the same text always has the same vector, and no vector has a meaning (K3)."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from contracts.ports import Embedded, TextRole
from contracts.records import ModelRef
from models.pooling import unit

NAME = "deterministic-v1"


class DeterministicEmbedder:
    """Unit vectors from a text's sha256, the same on every machine; for tests, and to try out everything but quality.

    Args:
        dimensions: Length of the vectors.
    """

    def __init__(self, dimensions: int = 1024) -> None:
        self._model = ModelRef(NAME, "1", dimensions)

    @property
    def model(self) -> ModelRef:
        """Name, version and dimensions."""
        return self._model

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        """See ``contracts.ports.Embedder``; the role changes nothing."""
        rows = [self._vector(text) for text in texts]
        return Embedded(unit(np.reshape(rows, (len(texts), self._model.dimensions))))

    def _vector(self, text: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        seed = sha256(text.encode("utf-8", "surrogatepass")).digest()
        blocks = -(-self._model.dimensions * 4 // sha256().digest_size)
        noise = b"".join(sha256(seed + block.to_bytes(4, "big")).digest() for block in range(blocks))
        numbers = np.frombuffer(noise, dtype=">u4")[: self._model.dimensions]
        return numbers / 2**31 - 1

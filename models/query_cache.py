"""Remembers the vectors of recent queries: people ask the same things."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from contracts.ports import Embedded, Embedder, TextRole, Vectors
from contracts.records import ModelRef


class QueryCache:
    """An embedder that answers queries seen lately at once; passages pass through.

    A vector depends on nothing but its text, so tenants may share it; nobody can tell from an answer whether it did.

    Args:
        embedder: Asked for the rest.
        size: Texts kept; the one unused for longest goes first.
        told: How many texts of a call were known, and how many were not.
    """

    def __init__(
        self, embedder: Embedder, size: int, told: Callable[[int, int], None] = lambda hits, misses: None
    ) -> None:
        self._embedder = embedder
        self._size = size
        self._told = told
        self._known: OrderedDict[str, tuple[Vectors, bool]] = OrderedDict()

    @property
    def model(self) -> ModelRef:
        """Name, version and dimensions."""
        return self._embedder.model

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        """See ``contracts.ports.Embedder``."""
        if role != "query":
            return await self._embedder.embed(texts, role)
        known = {text: self._known[text] for text in texts if text in self._known}
        for text in known:
            self._known.move_to_end(text)
        missing = list(dict.fromkeys(text for text in texts if text not in known))
        self._told(len(known), len(missing))
        if missing:
            fresh = await self._embedder.embed(missing, role)
            cut = set(fresh.truncated)
            found = {text: (fresh.vectors[i].copy(), i in cut) for i, text in enumerate(missing)}
            known |= found
            self._known |= found
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        rows = [known[text][0] for text in texts]
        vectors = np.reshape(np.asarray(rows, dtype=np.float32), (len(texts), self.model.dimensions))
        return Embedded(vectors, tuple(i for i, text in enumerate(texts) if known[text][1]))

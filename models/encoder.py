"""An embedding model at work: prefix, tokens, batches, vectors in the order of the texts; the same for each engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np

from contracts.ports import Embedded, TextRole, Vectors
from contracts.records import ModelRef
from models.batching import batches
from models.tokens import TextTokenizer

In = TypeVar("In")
Out = TypeVar("Out")


class Engine(Protocol):
    """What runs the weights."""

    def encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """L2-normalised vectors of shape (rows, dimensions) for rows of token ids. Blocking; one call at a time."""
        ...


class EncoderEmbedder:
    """Embeds on a thread of its own, batch by batch.

    Batches of several callers take turns, so a query waits for one batch of an ingest, not for all of it; and when a
    caller is cancelled, its remaining batches are never started.

    Args:
        engine: Runs the weights.
        tokenizer: Cuts at the model's limit.
        model: Whose vectors these are.
        prefixes: Put before the texts of a role.
        batch_tokens: Tokens a batch, padding included.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: TextTokenizer,
        model: ModelRef,
        *,
        prefixes: Mapping[TextRole, str],
        batch_tokens: int,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._model = model
        self._prefixes = prefixes
        self._batch_tokens = batch_tokens
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")

    @property
    def model(self) -> ModelRef:
        """Name, version and dimensions."""
        return self._model

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        """See ``contracts.ports.Embedder``."""
        vectors = np.zeros((len(texts), self._model.dimensions), dtype=np.float32)
        if not texts:
            return Embedded(vectors)
        prefix = self._prefixes[role]
        rows, cut = await self._run(self._tokenizer.encode, [prefix + text for text in texts])
        for batch in batches([len(row) for row in rows], self._batch_tokens):
            vectors[batch] = await self._run(self._engine.encode, [rows[i] for i in batch])
        return Embedded(vectors, tuple(i for i, was_cut in enumerate(cut) if was_cut))

    async def _run(self, work: Callable[[In], Out], item: In) -> Out:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, item)

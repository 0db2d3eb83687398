"""The vector of a node: the mean of the embeddings of its texts; the same for an ingest and for a re-embedding."""

from collections.abc import Callable, Sequence

import numpy as np

from contracts.ports import Embedder, Vectors


def embedding_texts(name: str, abstract: str, vector_texts: Sequence[str]) -> tuple[str, ...]:
    """The texts whose mean embedding is a node's vector: its ``vector_texts``, else name and abstract together."""
    given = tuple(text for text in vector_texts if text.strip())
    return given or ("\n".join(part for part in (name, abstract) if part.strip()),)


def mean_vectors(vectors: Vectors, counts: Sequence[int]) -> Vectors:
    """The normalised means of consecutive rows.

    Args:
        vectors: Shape (sum of ``counts``, dimensions), unit rows.
        counts: Rows a mean, each at least 1.

    Returns:
        float32 of shape (number of counts, dimensions), unit rows.
    """
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.add.reduceat(vectors, starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)


async def embed_nodes(
    embedder: Embedder, texts: Sequence[Sequence[str]], size: int, told: Callable[[int], None]
) -> tuple[Vectors, int]:
    """The vectors of nodes.

    Args:
        embedder: Makes them.
        texts: The ``embedding_texts`` of each node, of one at least.
        size: Texts an embedder call.
        told: Told after each call how many texts it took.

    Returns:
        A unit vector a node, float32 of shape (nodes, dimensions), and how many texts the model cut.
    """
    flat = [text for own in texts for text in own]
    rows: list[Vectors] = []
    cut = 0
    for start in range(0, len(flat), size):
        part = flat[start : start + size]
        embedded = await embedder.embed(part, "passage")
        rows.append(embedded.vectors)
        cut += len(embedded.truncated)
        told(len(part))
    return mean_vectors(np.concatenate(rows), [len(own) for own in texts]), cut

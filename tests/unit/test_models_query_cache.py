from collections.abc import Sequence

import numpy as np

from contracts.ports import Embedded, TextRole
from contracts.records import ModelRef
from models.query_cache import QueryCache


class FakeEmbedder:
    """A text's vector is its length; texts over 5 characters count as cut."""

    model = ModelRef("fake", "1", 2)

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def embed(self, texts: Sequence[str], role: TextRole) -> Embedded:
        self.asked.append(list(texts))
        vectors = np.array([[len(text), 0] for text in texts], dtype=np.float32)
        return Embedded(vectors, tuple(i for i, text in enumerate(texts) if len(text) > 5))


async def test_a_known_query_is_answered_without_the_model() -> None:
    model, told = FakeEmbedder(), list[tuple[int, int]]()
    cache = QueryCache(model, 8, lambda hits, misses: told.append((hits, misses)))
    first = await cache.embed(["ab", "too long"], "query")
    second = await cache.embed(["too long", "ab", "abc"], "query")
    assert model.asked == [["ab", "too long"], ["abc"]]
    assert first.vectors[:, 0].tolist() == [2, 8]
    assert second.vectors[:, 0].tolist() == [8, 2, 3]
    assert (first.truncated, second.truncated) == ((1,), (0,))
    assert told == [(0, 2), (2, 1)]


async def test_passages_are_not_kept() -> None:
    model = FakeEmbedder()
    cache = QueryCache(model, 8)
    for _ in range(2):
        await cache.embed(["ab"], "passage")
    assert len(model.asked) == 2


async def test_the_query_unused_for_longest_goes_first() -> None:
    model = FakeEmbedder()
    cache = QueryCache(model, 2)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        await cache.embed([text], "query")
    assert model.asked == [["a"], ["bb"], ["ccc"], ["bb"]]


async def test_more_queries_at_once_than_the_cache_holds_are_all_answered() -> None:
    cache = QueryCache(FakeEmbedder(), 1)
    embedded = await cache.embed(["a", "bb", "ccc", "bb"], "query")
    assert embedded.vectors[:, 0].tolist() == [1, 2, 3, 2]


async def test_no_queries_make_no_rows() -> None:
    assert (await QueryCache(FakeEmbedder(), 1).embed([], "query")).vectors.shape == (0, 2)

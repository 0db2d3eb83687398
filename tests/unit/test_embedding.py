"""What is embedded of a node."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from index.embedding import embedding_texts, mean_vectors


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_mean_vectors_are_unit_means_of_their_own_rows(sizes: list[int], random: Random) -> None:
    rows = np.array([[random.uniform(0.1, 1) for _ in range(8)] for _ in range(sum(sizes))], dtype=np.float32)
    means = mean_vectors(rows, sizes)
    assert means.shape == (len(sizes), 8)
    start = 0
    for size, mean in zip(sizes, means, strict=True):
        expected = rows[start : start + size].mean(axis=0)
        assert np.allclose(mean, expected / np.linalg.norm(expected), atol=1e-6)
        start += size


def test_the_embedded_text_of_a_node_without_vector_texts_is_its_name_and_abstract() -> None:
    assert embedding_texts("a", "text", ()) == ("a\ntext",)
    assert embedding_texts("", "text", (" ",)) == ("text",)

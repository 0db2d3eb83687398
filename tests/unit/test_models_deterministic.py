import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.records import ModelRef
from models.config import EmbedderModelConfig
from models.deterministic import DeterministicEmbedder
from models.load import load_embedder


@given(st.lists(st.text(), min_size=1, max_size=4), st.integers(1, 70))
async def test_the_same_text_has_the_same_unit_vector(texts: list[str], dimensions: int) -> None:
    """K3: sha256 seeded, L2-normalised."""
    first = (await DeterministicEmbedder(dimensions).embed(texts, "query")).vectors
    second = (await DeterministicEmbedder(dimensions).embed(texts[::-1], "passage")).vectors[::-1]
    assert first.shape == (len(texts), dimensions)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-5)


async def test_different_texts_are_nearly_orthogonal() -> None:
    """K3."""
    vectors = (await DeterministicEmbedder().embed([f"text {i}" for i in range(20)], "query")).vectors
    cosines = vectors @ vectors.T - np.eye(20)
    assert np.abs(cosines).max() < 0.2


async def test_vectors_do_not_change_between_releases() -> None:
    """K3: an index made with it stays searchable."""
    vector = (await DeterministicEmbedder(4).embed(["strata"], "query")).vectors[0]
    np.testing.assert_allclose(vector, [-0.0899049, -0.3827343, -0.8019255, 0.4498298], atol=1e-6)


async def test_no_texts_make_no_rows() -> None:
    assert (await DeterministicEmbedder(8).embed([], "query")).vectors.shape == (0, 8)


@pytest.mark.parametrize(
    ("config", "dimensions"),
    [
        (EmbedderModelConfig(backend="deterministic"), 1024),
        (EmbedderModelConfig(backend="deterministic", dimensions=64), 64),
        (EmbedderModelConfig(name="deterministic-v1"), 1024),
    ],
)
def test_it_is_chosen_by_backend_or_name_and_has_1024_dimensions_by_default(
    config: EmbedderModelConfig, dimensions: int
) -> None:
    """K3."""
    assert load_embedder(config).model == ModelRef("deterministic-v1", "1", dimensions)

"""The real models, resolved as a user's machine resolves them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from contracts.ports import Embedder
from models.config import EmbedderModelConfig
from models.load import load_embedder
from models.resolve import installed, pull
from tests.support.models import model_cache

__all__ = ["model_cache"]

ENGLISH = [
    "Run a command and kill it when the timeout expires",
    "Write rows to a comma separated file",
    "The cat slept on the warm windowsill",
    "Parse arguments given on the command line",
    "Compute the median of a list of numbers",
]
CHINESE = ["如何重启数据库服务", "今天的天气非常晴朗", "用户的饮食偏好是素食", "把图片压缩到指定大小"]


def load(model_cache: Path, name: str = "all-MiniLM-L6-v2", **options: Any) -> Embedder:
    return load_embedder(EmbedderModelConfig(**{"name": name, "backend": "onnx", "cache_dir": model_cache} | options))


@pytest.fixture(scope="module")
def english(model_cache: Path) -> Embedder:
    return load(model_cache)


@pytest.fixture(scope="module")
def chinese(model_cache: Path) -> Embedder:
    return load(model_cache, "bge-small-zh-v1.5")


async def nearest(embedder: Embedder, query: str, passages: list[str]) -> str:
    texts = (await embedder.embed(passages, "passage")).vectors
    (asked,) = (await embedder.embed([query], "query")).vectors
    return passages[int(np.argmax(texts @ asked))]


@pytest.mark.parametrize(
    ("query", "best"),
    [("stop a subprocess after ten seconds", 0), ("save a spreadsheet as csv", 1), ("sleeping pet", 2)],
)
async def test_the_nearest_english_sentence_answers_the_query(english: Embedder, query: str, best: int) -> None:
    assert await nearest(english, query, ENGLISH) == ENGLISH[best]


@pytest.mark.parametrize(("query", "best"), [("数据库怎么重新启动", 0), ("外面出太阳了", 1), ("他不吃肉", 2)])
async def test_the_nearest_chinese_sentence_answers_the_query(chinese: Embedder, query: str, best: int) -> None:
    assert await nearest(chinese, query, CHINESE) == CHINESE[best]


async def test_int8_on_onnx_is_near_to_fp32_on_torch(model_cache: Path, english: Embedder) -> None:
    pytest.importorskip("torch")
    full = load(model_cache, backend="torch", device="cpu")
    quick = (await english.embed(ENGLISH, "passage")).vectors
    exact = (await full.embed(ENGLISH, "passage")).vectors
    assert ((quick * exact).sum(axis=1) > 0.97).all()
    assert full.model.name == english.model.name
    assert full.model.version != english.model.version


@pytest.mark.parametrize(("name", "dimensions"), [("all-MiniLM-L6-v2", 384), ("bge-small-zh-v1.5", 512)])
async def test_vectors_have_the_dimensions_of_the_model_and_length_one(
    model_cache: Path, name: str, dimensions: int
) -> None:
    """K3: L2-normalised."""
    embedder = load(model_cache, name)
    vectors = (await embedder.embed([*ENGLISH, *CHINESE], "passage")).vectors
    assert embedder.model.dimensions == vectors.shape[1] == dimensions
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_a_texts_int8_vector_does_not_depend_on_its_neighbours(chinese: Embedder) -> None:
    """Dynamic quantisation scales by batch; the engine runs such models one text at a time."""
    together = (await chinese.embed([*CHINESE, CHINESE[0] * 20], "passage")).vectors
    for text, vector in zip(CHINESE, together[:-1], strict=True):
        np.testing.assert_array_equal((await chinese.embed([text], "passage")).vectors[0], vector)


async def test_capital_letters_are_not_lost_by_the_chinese_tokenizer(model_cache: Path, chinese: Embedder) -> None:
    """Its files say lowercase: false over a vocabulary without capitals, so that RayService became [UNK]."""
    found, _ = pull(EmbedderModelConfig(name="bge-small-zh-v1.5", backend="onnx", cache_dir=model_cache))
    as_shipped = Tokenizer.from_file(str(found.folder / "tokenizer.json"))
    assert as_shipped.encode("RayService", add_special_tokens=False).tokens == ["[UNK]"]
    names = ["RayService", "rayservice", "Elasticsearch"]
    upper, lower, other = (await chinese.embed(names, "passage")).vectors
    np.testing.assert_array_equal(upper, lower)
    assert float(upper @ other) < 0.95


@pytest.mark.parametrize(("name", "limit"), [("all-MiniLM-L6-v2", 256), ("bge-small-zh-v1.5", 512)])
async def test_a_text_over_the_models_limit_is_cut_and_reported(model_cache: Path, name: str, limit: int) -> None:
    embedder = load(model_cache, name)
    fits, too_long = "word " * (limit - 2), "word " * (limit - 1)
    embedded = await embedder.embed([too_long, "word", fits], "passage")
    assert embedded.truncated == (0,)
    np.testing.assert_array_equal(embedded.vectors[0], embedded.vectors[2])


def test_a_pulled_model_is_listed_as_installed(model_cache: Path, english: Embedder) -> None:
    rows = {(row.model.name, row.artefact.backend, row.artefact.precision): row.found for row in installed(model_cache)}
    found = rows[english.model.name, "onnx", "int8"]
    assert found is not None
    assert found.size() > 20_000_000

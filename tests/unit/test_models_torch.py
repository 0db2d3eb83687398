"""The real code of torch and transformers, on tiny models with random weights."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.errors import ConfigError
from models.config import CrossEncoderConfig, EmbedderModelConfig
from models.load import load_embedder, load_pair_scorer
from tests.support.models import save_tiny_bert

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PAIRS = [
    ("how to stop a command", "run a command after timeout"),
    ("stop", "b"),
    ("timeout", "how to stop a command after a timeout a b c"),
    ("run", "c c c"),
]


def direct_logits(folder: Path, pair: tuple[str, str]) -> Any:
    """What transformers itself computes for one pair without padding."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(**tokenizer(*pair, return_tensors="pt")).logits[0]


@pytest.mark.parametrize("batch_tokens", [1, 30, 8192])
def test_one_label_is_mapped_by_the_sigmoid_whatever_the_batch(tmp_path: Path, batch_tokens: int) -> None:
    """Design decision 7: logits to 0..1."""
    folder = save_tiny_bert(tmp_path, "classifier", labels=1)
    scorer = load_pair_scorer(CrossEncoderConfig(path=folder, device="cpu", batch_tokens=batch_tokens))
    expected = [float(torch.sigmoid(direct_logits(folder, pair))[0]) for pair in PAIRS]
    np.testing.assert_allclose(scorer.score(PAIRS), expected, atol=1e-5)
    assert np.ptp(expected) > 0.01


def test_of_two_labels_the_second_is_relevant(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path, "classifier", labels=2)
    scorer = load_pair_scorer(CrossEncoderConfig(path=folder, device="cpu"))
    expected = [float(torch.softmax(direct_logits(folder, pair), 0)[1]) for pair in PAIRS]
    np.testing.assert_allclose(scorer.score(PAIRS), expected, atol=1e-5)


def test_a_classifier_of_three_labels_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path, "classifier", labels=3)
    with pytest.raises(ConfigError, match="3 labels"):
        load_pair_scorer(CrossEncoderConfig(path=folder, device="cpu"))


def test_a_pair_longer_than_the_limit_is_cut(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path, "classifier")
    scorer = load_pair_scorer(CrossEncoderConfig(path=folder, device="cpu", max_tokens=16))
    long, longer = scorer.score([("stop", "run " * 40), ("stop", "run " * 90)])
    assert long == longer


def test_no_pairs_have_no_scores(tmp_path: Path) -> None:
    scorer = load_pair_scorer(CrossEncoderConfig(path=save_tiny_bert(tmp_path, "classifier"), device="cpu"))
    assert scorer.score([]).shape == (0,)


def tiny_embedder(folder: Path, **options: Any) -> Any:
    config = {"name": "tiny", "backend": "torch", "device": "cpu", "path": folder, "pooling": "mean"}
    return load_embedder(EmbedderModelConfig(**config | options))


async def embed(folder: Path, texts: list[str], **options: Any) -> Any:
    return (await tiny_embedder(folder, **options).embed(texts, "passage")).vectors


async def test_any_encoder_loads_and_padding_changes_nothing(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path)
    texts = ["run", "how to stop a command after a timeout", "b c"]
    together = await embed(folder, texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose((await embed(folder, [text]))[0], vector, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)


async def test_last_token_pooling_takes_the_last_token_of_each_text(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    texts = ["run", "how to stop a command"]
    vectors = await embed(folder, texts, pooling="last")
    for text, vector in zip(texts, vectors, strict=True):
        with torch.inference_mode():
            last = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, -1]
        np.testing.assert_allclose(vector, (last / last.norm()).numpy(), atol=1e-5)


async def test_bf16_on_a_cpu_is_near_to_fp32(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path)
    narrow, full = await embed(folder, ["how to run"], compute="bf16"), await embed(folder, ["how to run"])
    assert narrow.dtype == np.float32
    assert float(narrow[0] @ full[0]) > 0.98
    assert not np.array_equal(narrow, full)


def test_a_limit_the_model_can_not_hold_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        tiny_embedder(save_tiny_bert(tmp_path), max_tokens=1000)
    assert refused.value.field == "max_tokens"


def test_weights_that_can_not_be_read_are_refused_by_folder(tmp_path: Path) -> None:
    folder = save_tiny_bert(tmp_path)
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ConfigError, match="can't load"):
        tiny_embedder(folder)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_cuda_is_refused_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        tiny_embedder(save_tiny_bert(tmp_path), device="cuda")
    assert refused.value.field == "device"


def test_without_the_extra_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_tiny_bert(tmp_path)
    for module in ("models.torch_engine", "models.cross_encoder"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match=r"needs torch.*extra torch"):
        tiny_embedder(folder)
    with pytest.raises(ConfigError, match=r"extra torch"):
        load_pair_scorer(CrossEncoderConfig(path=folder))

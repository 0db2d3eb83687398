from pathlib import Path

import pytest

from contracts.errors import ConfigError
from models.config import EmbedderModelConfig
from models.load import load_embedder
from tests.support.models import word_tokenizer


def test_a_file_that_is_no_onnx_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"broken")
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ConfigError, match=r"model\.onnx"):
        load_embedder(EmbedderModelConfig(name="mine", backend="onnx", path=tmp_path, pooling="cls"))


def test_a_broken_tokenizer_is_refused_by_folder(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"broken")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        load_embedder(EmbedderModelConfig(name="mine", backend="onnx", path=tmp_path, pooling="cls"))

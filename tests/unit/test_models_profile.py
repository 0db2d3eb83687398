import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from models.config import EmbedderModelConfig
from models.profile import read_max_tokens, read_profile

CUSTOM = "someone/model"


def folder(path: Path, **files: Any) -> Path:
    """A model's folder; ``pooling__mode`` style keyword names are paths below."""
    names = {
        "pooling": "1_Pooling/config.json",
        "prompts": "config_sentence_transformers.json",
        "sentence": "sentence_bert_config.json",
        "tokenizer": "tokenizer_config.json",
        "config": "config.json",
        "modules": "modules.json",
    }
    for key, content in files.items():
        target = path / names[key]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(content))
    return path


MEAN = {"word_embedding_dimension": 8, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
LAST = {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True}


def test_a_catalog_model_needs_no_files_to_be_known(tmp_path: Path) -> None:
    profile = read_profile(EmbedderModelConfig(name="bge-small-zh-v1.5"), tmp_path)
    assert (profile.pooling, profile.max_tokens, profile.dimensions) == ("cls", 512, 512)


@pytest.mark.parametrize(("modes", "pooling"), [(MEAN, "mean"), (LAST, "last"), ({"pooling_mode": "cls"}, "cls")])
def test_pooling_is_read_from_the_model_when_the_config_does_not_say(
    tmp_path: Path, modes: dict[str, Any], pooling: str
) -> None:
    profile = read_profile(EmbedderModelConfig(name=CUSTOM), folder(tmp_path, pooling=modes))
    assert profile.pooling == pooling


@pytest.mark.parametrize(
    "modes",
    [
        None,
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "weightedmean"},
    ],
)
def test_a_pooling_that_is_not_known_is_refused(tmp_path: Path, modes: dict[str, Any] | None) -> None:
    files = {"pooling": modes} if modes else {}
    with pytest.raises(ConfigError) as refused:
        read_profile(EmbedderModelConfig(name=CUSTOM), folder(tmp_path, **files))
    assert refused.value.field == "pooling"


def test_the_config_wins_over_the_model(tmp_path: Path) -> None:
    config = EmbedderModelConfig(
        name=CUSTOM, pooling="cls", query_prefix="", passage_prefix="passage: ", max_tokens=64, version="7"
    )
    files = {"pooling": MEAN, "prompts": {"prompts": {"query": "query: "}}, "sentence": {"max_seq_length": 128}}
    profile = read_profile(config, folder(tmp_path, **files))
    assert (profile.pooling, profile.query_prefix, profile.passage_prefix) == ("cls", "", "passage: ")
    assert (profile.max_tokens, profile.version) == (64, "7")


def test_prefixes_are_read_from_the_models_prompts(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "Instruct: find\nQuery:", "document": "text: "}}
    profile = read_profile(EmbedderModelConfig(name=CUSTOM), folder(tmp_path, pooling=LAST, prompts=prompts))
    assert (profile.query_prefix, profile.passage_prefix) == ("Instruct: find\nQuery:", "text: ")


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sentence": {"max_seq_length": 256}, "tokenizer": {"model_max_length": 512}}, 256),
        ({"tokenizer": {"model_max_length": 512}, "config": {"max_position_embeddings": 514}}, 512),
        ({"tokenizer": {"model_max_length": 10**30}, "config": {"max_position_embeddings": 8194}}, 8194),
        ({}, 512),
    ],
)
def test_the_limit_is_what_the_model_was_trained_with_or_can_hold(
    tmp_path: Path, files: dict[str, Any], limit: int
) -> None:
    assert read_max_tokens(folder(tmp_path, **files)) == limit


def test_layers_after_the_pooling_are_refused_for_they_would_be_left_out(tmp_path: Path) -> None:
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Pooling", "Dense")]
    with pytest.raises(ConfigError, match="Dense"):
        read_profile(EmbedderModelConfig(name=CUSTOM), folder(tmp_path, pooling=MEAN, modules=modules))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(ConfigError, match=r"modules\.json is not JSON"):
        read_profile(EmbedderModelConfig(name=CUSTOM), tmp_path)


def version(path: Path, **settings: Any) -> str:
    profile = read_profile(EmbedderModelConfig(**{"name": "all-MiniLM-L6-v2"} | settings), path)
    return profile.ref("int8", 384).version


@pytest.mark.parametrize(
    "settings", [{"pooling": "cls"}, {"passage_prefix": "passage: "}, {"max_tokens": 128}, {"version": "3"}]
)
def test_what_changes_a_passages_vector_changes_the_version(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Design decision 9: vectors of two versions are never compared."""
    assert version(tmp_path, **settings) != version(tmp_path)


@pytest.mark.parametrize("settings", [{"query_prefix": "query: "}, {"threads": 9}, {"batch_tokens": 1}])
def test_what_leaves_passages_alone_leaves_the_version(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert version(tmp_path, **settings) == version(tmp_path)


def test_precision_is_part_of_the_version(tmp_path: Path) -> None:
    profile = read_profile(EmbedderModelConfig(), tmp_path)
    assert profile.ref("int8", 384).version != profile.ref("fp32", 384).version


def test_other_dimensions_than_asked_for_are_refused(tmp_path: Path) -> None:
    """K8: wrong dimensions fail at start with CONFIG_ERROR."""
    profile = read_profile(EmbedderModelConfig(dimensions=1024), tmp_path)
    with pytest.raises(ConfigError) as refused:
        profile.ref("int8", 384)
    assert (refused.value.code, refused.value.field) == ("CONFIG_ERROR", "dimensions")

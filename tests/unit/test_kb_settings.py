from pathlib import Path

import pytest

from contracts.errors import ConfigError
from contracts.records import ModelRef
from deployments.environment import Environment
from deployments.knowledge_base.opening import location
from deployments.settings import Settings, load, parse, resolved
from models.load import load_embedder


def settings_of(tmp_path: Path, text: str = "", **variables: str) -> Settings:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, Environment.read(variables))


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    """K8."""
    settings = settings_of(
        tmp_path,
        "knowledge_base: {top_k: 7, embedder: {batch_tokens: 99}}",
        KB_EMBEDDING_MODEL="all-MiniLM-L6-v2",
        KB_VECTOR_DIMENSIONS="384",
        KB_EMBEDDING_DEVICE="cuda",
        RETRIEVAL_TOP_K="20",
        RETRIEVAL_RERANK_WEIGHTS_JSON='{"vector": 0.5, "keyword": 0.3, "rule": 0.1, "freshness": 0.1}',
    ).knowledge_base
    embedder = settings.embedder
    assert (embedder.name, embedder.dimensions, embedder.device) == ("all-MiniLM-L6-v2", 384, "cuda")
    assert (embedder.batch_tokens, settings.top_k) == (99, 20)
    assert (settings.weights.vector, settings.weights.rule) == (0.5, 0.1)
    assert embedder.cache_dir == settings_of(tmp_path).data_dir / "models"


def test_without_any_of_it_the_defaults_of_the_seed_hold(tmp_path: Path) -> None:
    """K3, K8: 1024 dimensions of the deterministic model."""
    settings = settings_of(tmp_path).knowledge_base
    assert load_embedder(settings.embedder).model == ModelRef("deterministic-v1", "1", 1024)
    assert (settings.top_k, settings.enabled, settings.http) == (50, False, False)
    only = settings_of(tmp_path, KB_VECTOR_DIMENSIONS="256").knowledge_base
    assert load_embedder(only.embedder).model == ModelRef("deterministic-v1", "1", 256)


def test_a_part_of_the_embedder_in_the_file_leaves_the_model_as_it_is() -> None:
    assert (
        parse({"knowledge_base": {"embedder": {"device": "auto"}}}).knowledge_base.embedder.name == "deterministic-v1"
    )


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("KB_EMBEDDING_MODEL", "bge-m4", "there is no model 'bge-m4'"),
        ("KB_VECTOR_DIMENSIONS", "many", "integer"),
        ("KB_VECTOR_DIMENSIONS", "0", "greater than or equal"),
        ("KB_EMBEDDING_DEVICE", "tpu", "'auto', 'cpu' or 'cuda'"),
        ("RETRIEVAL_TOP_K", "0", "greater than or equal"),
        ("RETRIEVAL_TOP_K", "fifty", "integer"),
        ("RETRIEVAL_RERANK_WEIGHTS_JSON", '{"vector": 0.5}', "add up to 1.05"),
        ("RETRIEVAL_RERANK_WEIGHTS_JSON", '{"vectors": 0.45}', "Extra inputs"),
        ("RETRIEVAL_RERANK_WEIGHTS_JSON", "0.45", "valid dictionary"),
        ("RETRIEVAL_RERANK_WEIGHTS_JSON", "{vector", "no JSON"),
    ],
)
def test_a_wrong_variable_is_refused_at_the_start_by_name(tmp_path: Path, variable: str, value: str, why: str) -> None:
    """K8: CONFIG_ERROR."""
    with pytest.raises(ConfigError, match=why) as caught:
        settings_of(tmp_path, **{variable: value})
    assert (caught.value.code, caught.value.field) == ("CONFIG_ERROR", variable)


def test_dimensions_that_the_model_has_not_are_refused_at_the_start(tmp_path: Path) -> None:
    """K8."""
    with pytest.raises(ConfigError, match="384 dimensions, not 1024") as caught:
        settings_of(tmp_path, KB_EMBEDDING_MODEL="all-MiniLM-L6-v2", KB_VECTOR_DIMENSIONS="1024")
    assert caught.value.code == "CONFIG_ERROR"


def test_each_model_has_a_folder_of_its_own_and_what_changes_no_vector_changes_no_folder() -> None:
    """K4."""

    def folder(**embedder: object) -> Path:
        return location(resolved(parse({"data_dir": "/x", "knowledge_base": {"embedder": embedder}}), Environment()))[0]

    one = folder()
    assert one.parent == Path("/x/kb")
    assert one.name.startswith("deterministic-v1-")
    assert folder(device="auto", threads=7, query_prefix="q: ") == one
    others = [folder(dimensions=64), folder(name="all-MiniLM-L6-v2"), folder(version="2"), folder(passage_prefix="p: ")]
    assert len({one, *others}) == 5


def test_on_elasticsearch_it_has_a_prefix_of_its_own() -> None:
    settings = parse({"data_dir": "/x", "index": {"backend": "elasticsearch", "elastic": {"prefix": "shop"}}})
    folder, index = location(settings)
    assert (folder, index.elastic.prefix) == (Path("/x"), "shop-kb")

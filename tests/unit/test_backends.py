"""From settings and environment to an index, before anything is asked of it."""

from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deployments.backends import cluster_health, open_reader, open_writer
from deployments.settings import IndexSettings, parse
from index.elastic.index import ElasticIndex

NOBODY = "http://127.0.0.1:1"


def elastic(**connection: object) -> IndexSettings:
    return parse({"index": {"backend": "elasticsearch", "elastic": {"connection": connection}}}).index


async def test_the_embedded_index_lies_in_the_data_folder(tmp_path: Path) -> None:
    index = await open_writer(tmp_path, IndexSettings())
    await index.close()
    assert (tmp_path / "index").is_dir()


async def test_without_hosts_the_development_cluster_of_the_data_folder_is_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="development Elasticsearch") as caught:
        await open_reader(tmp_path, elastic())
    assert "strata es start" in caught.value.remedy


async def test_secrets_come_from_the_environment_of_the_process_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K8: no secret is in the settings, which travel."""
    monkeypatch.delenv("STRATA_ELASTIC_API_KEY", raising=False)
    path = tmp_path / "password"
    path.write_text("hush\n")
    monkeypatch.setenv("STRATA_ELASTIC_PASSWORD_FILE", str(path))
    index = await open_writer(tmp_path, elastic(hosts=[NOBODY], username="strata"))
    assert isinstance(index, ElasticIndex)
    assert index.client._headers["authorization"] == "Basic c3RyYXRhOmh1c2g="
    await index.close()


async def test_a_cluster_that_does_not_answer_is_a_config_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no connection") as caught:
        await cluster_health(tmp_path, elastic(hosts=[NOBODY]).elastic)
    assert "index.elastic.connection.hosts" in caught.value.remedy

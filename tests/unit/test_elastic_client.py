"""The client without a cluster: settings and secrets in, errors out. Answers come from a stand-in for HTTP."""

import json
import logging
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import elastic_transport
import numpy as np
import pytest
from elastic_transport import (
    ApiResponseMeta,
    BaseAsyncNode,
    ConnectionTimeout,
    HttpHeaders,
    SerializationError,
    TlsError,
)
from elasticsearch import ApiError, AsyncElasticsearch

from contracts.errors import ConfigError
from index.elastic.client import OrjsonLines, Secrets, connect, error_type, reason, unavailable
from index.elastic.config import ConnectionConfig

HOST = "http://es-1:9200"
QUESTION = "where is the treasure"


def api_error(status: int, body: Any = None) -> ApiError:
    meta = ApiResponseMeta(status, "1.1", HttpHeaders(), 0.0, None)  # type: ignore[arg-type]
    return ApiError(QUESTION, meta, body)


def nodes(client: AsyncElasticsearch) -> list[elastic_transport.NodeConfig]:
    return [node.config for node in client.transport.node_pool.all()]


@pytest.mark.parametrize(
    ("config", "secrets", "field"),
    [
        ({}, Secrets(), "hosts"),
        ({"hosts": [HOST], "username": "strata"}, Secrets(), "username"),
        ({"hosts": [HOST]}, Secrets(password="hush"), "username"),
        ({"hosts": [HOST]}, Secrets(api_key="hush", password="hush"), "username"),
        ({"hosts": [HOST], "username": "strata"}, Secrets(api_key="hush"), "username"),
        ({"hosts": [HOST]}, Secrets(api_key="hush\n"), "api_key"),
        ({"hosts": ["https://es-1:9200"], "ca_file": "/nowhere.pem"}, Secrets(), "ca_file"),
        ({"hosts": ["https://es-1:9200"], "ca_file": __file__}, Secrets(), "ca_file"),
        ({"cloud_id": "no cloud"}, Secrets(), "cloud_id"),
        ({"hosts": ["http://es-1:port"]}, Secrets(), "hosts"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_by_name(
    config: dict[str, Any], secrets: Secrets, field: str
) -> None:
    """K8: refused at start, and never with a secret in the words."""
    settings = ConnectionConfig(**config)
    with pytest.raises(ConfigError) as caught:
        connect(settings, secrets, settings.hosts)
    assert caught.value.field == f"index.elastic.connection.{field}"
    assert caught.value.remedy
    assert "hush" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(Secrets("hush", "hush"))


@pytest.mark.parametrize(
    ("config", "secrets", "header"),
    [
        ({}, Secrets(api_key="aWQ6a2V5"), "ApiKey aWQ6a2V5"),
        ({"username": "strata"}, Secrets(password="hush"), "Basic c3RyYXRhOmh1c2g="),
        ({}, Secrets(), None),
    ],
)
async def test_a_request_says_who_it_is_from(config: dict[str, Any], secrets: Secrets, header: str | None) -> None:
    client = connect(ConnectionConfig(**config), secrets, [HOST])
    assert client._headers.get("authorization") == header
    await client.close()


async def test_settings_reach_every_node() -> None:
    config = ConnectionConfig(connections=3, verify=False, compress=True)
    client = connect(config, Secrets(), ["https://es-1:9200", "https://es-2:9200"])
    assert len(nodes(client)) == 2
    for node in nodes(client):
        assert (node.connections_per_node, node.verify_certs, node.http_compress) == (3, False, True)
    await client.close()


async def test_a_cloud_id_stands_for_the_host_it_names() -> None:
    cloud = "strata:" + "ZXhhbXBsZS5vcmckYWJj"  # example.org$abc
    client = connect(ConnectionConfig(cloud_id=cloud), Secrets(), [])
    assert [(node.scheme, node.host, node.port) for node in nodes(client)] == [("https", "abc.example.org", 443)]
    await client.close()


class FakeResponse(NamedTuple):
    meta: ApiResponseMeta
    body: bytes


class FakeNode(BaseAsyncNode):
    """Answers what its host name says: a status, or an error of the connection."""

    asked: ClassVar[list[str]] = []

    async def perform_request(self, *args: Any, **kwargs: Any) -> FakeResponse:
        self.asked.append(self.host)
        match self.host:
            case "refused":
                raise elastic_transport.ConnectionError(QUESTION, errors=(OSError(QUESTION),))
            case "silent":
                raise ConnectionTimeout(QUESTION)
        headers = HttpHeaders({"content-type": "application/json", "x-elastic-product": "Elasticsearch"})
        status = int(self.host.removeprefix("answers-"))
        body = {"took": 1} if status == 200 else {"error": {"type": "busy", "reason": QUESTION}}
        return FakeResponse(ApiResponseMeta(status, "1.1", headers, 0.0, self.config), json.dumps(body).encode())

    async def close(self) -> None:
        """Holds nothing."""


def faked(*hosts: str) -> AsyncElasticsearch:
    """A client of fake nodes, asked in this order."""
    client = connect(ConnectionConfig(), Secrets(), [f"http://{host}:9200" for host in hosts])
    pool = client.transport.node_pool
    order = sorted(pool._all_nodes, key=lambda node: hosts.index(node.host))
    pool._all_nodes = {config: FakeNode(config) for config in order}
    pool._alive_nodes = dict(pool._all_nodes)
    pool._node_selector.select = lambda alive: alive[0]  # type: ignore[method-assign]
    FakeNode.asked = []
    return client


async def test_a_node_that_can_not_be_reached_is_passed_over_and_left_out_for_a_while() -> None:
    client = faked("refused", "answers-200")
    for _ in range(2):
        assert (await client.search())["took"] == 1
    assert FakeNode.asked == ["refused", "answers-200", "answers-200"]


@pytest.mark.parametrize("first", ["silent", "answers-429", "answers-503", "answers-400"])
async def test_a_time_out_or_a_refusal_is_final(first: str) -> None:
    client = faked(first, "answers-200")
    with pytest.raises((ApiError, ConnectionTimeout)):
        await client.search()
    assert FakeNode.asked == [first]


async def test_nothing_of_a_request_reaches_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    """C42: logs hold no query text, not even at the level of debugging."""
    caplog.set_level(logging.DEBUG)
    client = faked("refused", "answers-200", "answers-503")
    await client.search(index=QUESTION, q=QUESTION, query={"match": {"words": QUESTION}})
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("error", "down", "words"),
    [
        (elastic_transport.ConnectionError(QUESTION), True, "no connection"),
        (TlsError(QUESTION), True, "no trusted connection (TLS)"),
        (ConnectionTimeout(QUESTION), True, "no answer in time"),
        (TimeoutError(QUESTION), True, "no answer in time"),
        (SerializationError(QUESTION), False, "SerializationError"),
        (ValueError(QUESTION), False, "ValueError"),
        (api_error(502, QUESTION), True, "HTTP 502"),
        (api_error(429, {"error": {"type": "es_rejected", "reason": QUESTION}}), True, "HTTP 429 es_rejected"),
        (
            api_error(404, {"error": {"type": "no_index", "root_cause": [{"type": "no_index"}]}}),
            False,
            "HTTP 404 no_index",
        ),
        (
            api_error(400, {"error": {"type": "search", "root_cause": [{"type": "parse", "reason": QUESTION}]}}),
            False,
            "HTTP 400 search (parse)",
        ),
        (api_error(405, {"error": QUESTION}), False, "HTTP 405"),
    ],
)
def test_an_error_tells_whether_the_cluster_is_down_and_why_but_not_what_was_asked(
    error: Exception, down: bool, words: str
) -> None:
    assert unavailable(error) == down
    assert reason(error) == words


@pytest.mark.parametrize("answer", [None, "text", {}, {"error": None}, {"error": "text"}, {"error": {}}])
def test_an_answer_without_a_typed_error_has_no_error_type(answer: object) -> None:
    assert error_type(answer) == ""


def test_vectors_are_written_as_they_are() -> None:
    vector = np.array([0.1, -1, 1e-9], dtype=np.float32)
    lines = OrjsonLines().dumps([{"index": "i"}, {"vector": vector}]).splitlines()
    assert json.loads(lines[0]) == {"index": "i"}
    assert np.array_equal(np.array(json.loads(lines[1])["vector"], dtype=np.float32), vector)


def test_the_client_is_not_loaded_with_its_settings(tmp_path: Path) -> None:
    """Settings are read by every command; the client takes half a second."""
    import subprocess
    import sys

    code = "import sys, index.elastic.config; sys.exit('elasticsearch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])

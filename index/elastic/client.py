"""The client of the cluster: how it connects, and what its errors mean.

What a failure does to a request: a node that can't be reached is left out for a while and the next one is asked, each
once; a time-out is final, because time is what the caller has least of; an answer of 429 or 5xx is final too, because
asking a busy cluster again makes it busier (writes do, patiently: see ``bulk``).
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from elastic_transport import ConnectionError as NoConnection
from elastic_transport import ConnectionTimeout, TlsError, TransportError
from elasticsearch import ApiError, AsyncElasticsearch, OrjsonSerializer
from elasticsearch.serializer import NdjsonSerializer

from contracts.errors import ConfigError
from index.elastic.config import ConnectionConfig

_STEP = 0.025
_SECTION = "index.elastic.connection"
_PASSWORD = "Set STRATA_ELASTIC_PASSWORD or STRATA_ELASTIC_PASSWORD_FILE."  # noqa: S105 - the variable's name


@dataclass(frozen=True)
class Secrets:
    """What proves who we are; never shown.

    Args:
        api_key: As Kibana and the API hand it out (base64 of ``id:key``).
        password: Of ``username`` in the settings.
    """

    api_key: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


class OrjsonLines(OrjsonSerializer, NdjsonSerializer):
    """Lines of JSON, float32 arrays of NumPy among them without a detour over Python numbers."""

    mimetype = NdjsonSerializer.mimetype
    dumps = NdjsonSerializer.dumps
    loads = NdjsonSerializer.loads


def connect(config: ConnectionConfig, secrets: Secrets, hosts: Sequence[str]) -> AsyncElasticsearch:
    """A client of the cluster; nothing is sent before its first request.

    Args:
        config: How it is reached.
        secrets: An API key, or the password of ``config.username``, or neither.
        hosts: URLs of its nodes; none with a cloud id.

    Raises:
        ConfigError: The settings and secrets do not fit together, or name no place.
    """
    _quieten()
    _check(config, secrets, hosts)
    options: dict[str, Any] = {"cloud_id": config.cloud_id} if config.cloud_id else {"hosts": list(hosts)}
    if config.cloud_id or any(host.startswith("https:") for host in hosts):
        # The warning about certificates that are not checked would repeat what the setting says.
        options |= {"verify_certs": config.verify, "ssl_show_warn": False}
        options |= {"ca_certs": str(config.ca_file)} if config.ca_file else {}
    if secrets.api_key:
        options["api_key"] = secrets.api_key
    elif config.username:
        options["basic_auth"] = (config.username, secrets.password)
    try:
        return AsyncElasticsearch(
            **options,
            connections_per_node=config.connections,
            http_compress=config.compress,
            request_timeout=config.request_timeout_ms / 1000,
            # A single node gets a second try: it may have closed a connection that we kept.
            max_retries=max(1, len(hosts) - 1),
            retry_on_status=(),
            retry_on_timeout=False,
            serializers={kind.mimetype: kind() for kind in (OrjsonSerializer, OrjsonLines)},
        )
    except (ValueError, OSError) as error:  # An SSLError is an OSError.
        wrong = "ca_file" if isinstance(error, OSError) else "cloud_id" if config.cloud_id else "hosts"
        raise ConfigError(
            f"{_SECTION}.{wrong} can't be used: {error}.", field=f"{_SECTION}.{wrong}", remedy="Correct the setting."
        ) from None


async def health(client: AsyncElasticsearch) -> str:
    """How the cluster is, in a few words.

    Raises:
        ConfigError: It can't be asked.
    """
    try:
        found = await client.cluster.health()
    except (ApiError, TransportError) as error:
        raise ConfigError(
            f"Elasticsearch can't be asked: {reason(error)}.", field=_SECTION, remedy=_remedy(error)
        ) from None
    return f"{found['status']}, {found['number_of_nodes']} node(s)"


class TimedClient:
    """A client by time limit. Making one takes about a millisecond, so they are kept, one for each 25 ms.

    Args:
        client: Of the cluster.
    """

    def __init__(self, client: AsyncElasticsearch) -> None:
        self._client = client
        self._made: dict[int, AsyncElasticsearch] = {}

    def within(self, seconds: float) -> AsyncElasticsearch:
        """A client whose requests take at most ``seconds``, rounded down as long as that leaves something."""
        steps = max(1, int(seconds / _STEP))
        if steps not in self._made:
            self._made[steps] = self._client.options(request_timeout=steps * _STEP)
        return self._made[steps]


def unavailable(error: BaseException) -> bool:
    """Whether an error means that the cluster can't serve now, rather than that a request is wrong."""
    if isinstance(error, ApiError):
        return (
            error.status_code == HTTPStatus.TOO_MANY_REQUESTS or error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
        )
    return isinstance(error, NoConnection | ConnectionTimeout | TimeoutError)


def reason(error: BaseException) -> str:
    """Why a request failed, in a few words that hold nothing of what was asked or answered."""
    match error:
        case ApiError():
            return f"HTTP {error.status_code} {error_type(error.body)}".rstrip()
        case ConnectionTimeout() | TimeoutError():
            return "no answer in time"
        case TlsError():
            return "no trusted connection (TLS)"
        case NoConnection():
            return "no connection"
    return type(error).__name__


def error_type(answer: object) -> str:
    """The type of an error in an answer and those of its causes: ``document_parsing_exception (illegal_argument…)``.

    Never its ``reason``, which quotes the query.

    Args:
        answer: A whole answer, or an item of one, with the error under ``error``.

    Returns:
        Empty when no error with a type is there.
    """
    error = answer.get("error") if isinstance(answer, Mapping) else None
    if not isinstance(error, Mapping):
        return ""
    kind = str(error.get("type", ""))
    causes = [*error.get("root_cause", ()), error.get("caused_by", {})]
    others = dict.fromkeys(str(cause["type"]) for cause in causes if cause.get("type", kind) != kind)
    return f"{kind} ({', '.join(others)})" if others else kind


def _remedy(error: ApiError | TransportError) -> str:
    match error:
        case ApiError(status_code=HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN):
            return "Check STRATA_ELASTIC_API_KEY, or the user and STRATA_ELASTIC_PASSWORD."
        case ApiError(status_code=HTTPStatus.BAD_REQUEST):
            return "It has to be version 9 or newer."
        case TlsError():
            return f"Check {_SECTION}.ca_file."
        case NoConnection() | ConnectionTimeout():
            return f"Check that it runs, and {_SECTION}.hosts."
    return ""


def _check(config: ConnectionConfig, secrets: Secrets, hosts: Sequence[str]) -> None:
    def refuse(message: str, name: str, remedy: str) -> None:
        raise ConfigError(message, field=f"{_SECTION}.{name}", remedy=remedy)

    if not hosts and not config.cloud_id:
        refuse("No node of an Elasticsearch cluster is known.", "hosts", "Name one, or run one here: strata es start")
    if secrets.api_key and (config.username or secrets.password):
        refuse("There are an API key and a user or password for Elasticsearch.", "username", "Keep one of the two.")
    if config.username and not secrets.password:
        refuse(f"The Elasticsearch user {config.username!r} has no password.", "username", _PASSWORD)
    if secrets.password and not config.username:
        refuse("There is a password for Elasticsearch, but no user.", "username", "Name the user it belongs to.")
    # Where it would break a header, the error of the HTTP library would show it.
    if secrets.api_key and not (secrets.api_key.isascii() and secrets.api_key.isprintable()):
        refuse("The API key for Elasticsearch holds characters that no key has.", "api_key", "Copy it anew.")
    if config.ca_file and not config.ca_file.is_file():
        refuse(f"{config.ca_file} is no file.", "ca_file", "Name the PEM file of the authority.")


def _quieten() -> None:
    """Keep the client's own lines out of all logs: they hold URLs, and with debugging on whole requests and answers."""
    for name in ("elastic_transport", "elasticsearch"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

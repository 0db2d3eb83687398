"""A client of the service's HTTP interface, for the commands."""

from http import HTTPStatus
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from contracts import errors
from contracts.errors import ConfigError, StrataError
from contracts.responses import ErrorBody, ReadMemoryResponse, SearchMemoryResponse

_CLASSES = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StrataError)
}
_TIMEOUT_S = 60.0

Answer = TypeVar("Answer")


class Client:
    """One connection to the service.

    Args:
        url: Where it answers.
        key: The API key.
        transport: How requests travel; the network by default.

    Raises:
        ConfigError: The key can't be one.
    """

    def __init__(self, url: str, key: str, transport: httpx.BaseTransport | None = None) -> None:
        if not key.isascii() or not key.isprintable():
            raise ConfigError("The API key holds characters that no key has.", field="key", remedy="Copy it anew.")
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def search(self, **body: Any) -> SearchMemoryResponse:
        """``POST /v1/search_memory``.

        Raises:
            StrataError: What the service answered, or that there is none.
        """
        return self._post("/v1/search_memory", body, SearchMemoryResponse)

    def read(self, **body: Any) -> ReadMemoryResponse:
        """``POST /v1/read_memory``.

        Raises:
            StrataError: What the service answered, or that there is none.
        """
        return self._post("/v1/read_memory", body, ReadMemoryResponse)

    def _post(self, path: str, body: dict[str, Any], kind: type[Answer]) -> Answer:
        return self.call("POST", path, kind, {name: value for name, value in body.items() if value is not None})

    def call(self, method: str, path: str, kind: type[Answer], body: dict[str, Any] | None = None) -> Answer:
        """Any request.

        Args:
            method: Of HTTP.
            path: With everything in it escaped.
            kind: What is answered.
            body: What is sent, if anything.

        Raises:
            StrataError: What the service answered, or that there is none.
        """
        try:
            response = self._http.request(method, path, json=body)
        except httpx.InvalidURL:
            raise ConfigError(f"{self._http.base_url} is no URL.", field="STRATA_URL") from None
        except httpx.TimeoutException:
            raise ConfigError(
                f"The service at {self._http.base_url} does not answer.", remedy="strata status"
            ) from None
        except httpx.HTTPError:
            raise ConfigError(f"No service runs at {self._http.base_url}.", remedy="Start it: strata up") from None
        if response.status_code not in {HTTPStatus.OK, HTTPStatus.ACCEPTED}:
            raise _error(response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError:
            raise ConfigError(f"What answers at {self._http.base_url} is no Strata of this version.") from None


def _error(response: httpx.Response) -> StrataError:
    try:
        body = msgspec.json.decode(response.content, type=ErrorBody)
    except msgspec.DecodeError:
        return StrataError(f"The service answered {response.status_code} {response.reason_phrase}.")
    error = _CLASSES.get(body.code, StrataError)(body.message, field=body.field, remedy=body.remedy, stage=body.stage)
    if isinstance(error, errors.Unauthenticated) and not error.remedy:
        error.remedy = "Make a key: strata keys create --account … --role user --save"
    return error

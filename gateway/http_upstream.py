"""An upstream memory service by HTTP that speaks EverOS's search API; it checks filters by itself."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from contracts.deadline import Deadline
from contracts.errors import StrataError, UpstreamFailed, UpstreamRefused, UpstreamTimeout
from gateway.config import HttpUpstreamConfig
from gateway.http import JsonClient, Unanswered
from gateway.scopes import Filters
from gateway.upstream import ARRAYS, UpstreamAnswer, UpstreamQuery, User

# To the caller these would say that its own key is wrong; it is the gateway's.
_OUR_CREDENTIALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_MAX_WORDS = 500


class HttpUpstream:
    """The client of the service.

    Args:
        config: Where it is and how long it may take.
        key: Sent as a bearer token; ``None`` sends none.
    """

    def __init__(self, config: HttpUpstreamConfig, key: str | None) -> None:
        self._path = config.path
        self._client = JsonClient(
            config.base_url or "",
            key=key,
            connect_timeout=config.connect_timeout_ms / 1000,
            read_timeout=config.read_timeout_ms / 1000,
            max_connections=config.max_connections,
            max_bytes=config.max_answer_bytes,
        )

    def check(self, filters: Filters | None) -> None:
        """Nothing: the service does."""

    async def search(self, user: User, deadline: Deadline, query: UpstreamQuery) -> UpstreamAnswer:
        """See ``gateway.upstream.Upstream``.

        Raises:
            UpstreamRefused: It refused, with a 4xx, which is passed on with its words.
            UpstreamFailed: It failed with a status that is passed on, can't be reached, or answered what is no answer.
            UpstreamTimeout: It took too long.
        """
        try:
            async with asyncio.timeout(deadline.left()):
                status, answer = await self._client.post(self._path, query.body())
        except TimeoutError:
            raise _late("no answer in time") from None
        except Unanswered as error:
            if error.late:
                raise _late(error.reason) from None
            raise UpstreamFailed(f"The memory service failed: {error.reason}.", remedy="Retry in a moment.") from None
        if status != HTTPStatus.OK:
            raise _error(status, answer)
        return _found(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _found(answer: object) -> UpstreamAnswer:
    data = answer.get("data") if isinstance(answer, Mapping) else None
    arrays = {name: _listed(data.get(name)) for name in ARRAYS} if isinstance(data, Mapping) else {}
    if not arrays or not all(isinstance(items, list) and all(map(_is_item, items)) for items in arrays.values()):
        raise UpstreamFailed("The memory service answered something else than memories.")
    return UpstreamAnswer(**{name: tuple(items) for name, items in arrays.items()})


def _listed(items: Any) -> Any:
    return [] if items is None else items


def _is_item(item: object) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("id"), str)


def _error(status: int, answer: object) -> StrataError:
    if status in _OUR_CREDENTIALS:
        return UpstreamFailed(
            f"The memory service does not let the gateway in ({status}).", remedy="Its operator must mend that."
        )
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return UpstreamRefused(
            f"The memory service refused: {_words(answer) or status}",
            http_status=status,
            retry_after=1.0 if status == HTTPStatus.TOO_MANY_REQUESTS else None,
        )
    if status == HTTPStatus.GATEWAY_TIMEOUT:
        return _late("it says so itself")
    passed_on = status if status >= HTTPStatus.INTERNAL_SERVER_ERROR else None
    return UpstreamFailed(
        f"The memory service failed with status {status}.",
        http_status=passed_on,
        retry_after=1.0 if status == HTTPStatus.SERVICE_UNAVAILABLE else None,
    )


def _words(answer: Any) -> str:
    """What the service says is wrong: ``error.message`` of EverOS, or FastAPI's ``detail``."""
    match answer:
        case {"error": {"message": str(words)}} | {"message": str(words)} | {"detail": str(words)}:
            return words[:_MAX_WORDS]
        case {"detail": [*parts]}:
            said = (f"{_place(part.get('loc'))}{part.get('msg', '')}" for part in parts if isinstance(part, Mapping))
            return "; ".join(said)[:_MAX_WORDS]
    return ""


def _place(loc: object) -> str:
    return ".".join(map(str, loc)) + ": " if isinstance(loc, list) else ""


def _late(reason: str) -> UpstreamTimeout:
    return UpstreamTimeout(f"The memory service took too long: {reason}.", remedy="Retry in a moment.")

"""POST of JSON to another service: pooled, bounded in time and size, without redirects or the environment's proxies."""

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec


class Unanswered(Exception):
    """No answer that could be used; ``late`` says that it was for lack of time.

    Args:
        reason: Why, in a few words that hold nothing of what was sent or answered.
        late: Whether time ran out.
    """

    def __init__(self, reason: str, *, late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.late = late


class JsonClient:
    """A pool of connections to one service; belongs to one event loop.

    Args:
        base_url: Of the service.
        key: Sent as a bearer token; empty for none.
        connect_timeout: Seconds for a connection, and for a free one of the pool.
        read_timeout: Seconds for the next bytes of an answer.
        max_connections: Connections at most.
        max_bytes: Of an answer.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None,
        connect_timeout: float,
        read_timeout: float,
        max_connections: int,
        max_bytes: int,
    ) -> None:
        self._max_bytes = max_bytes
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(read_timeout, connect=connect_timeout, pool=connect_timeout),
            limits=httpx.Limits(max_connections=max_connections, max_keepalive_connections=max_connections),
            trust_env=False,
        )

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        """Send a body.

        Args:
            path: Below the base URL.
            body: Encoded as JSON.

        Returns:
            The status, and the answer decoded; ``None`` where that is no JSON.

        Raises:
            Unanswered: Not reached, out of time, cut off or too long.
        """
        headers: Mapping[str, str] = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            async with self._client.stream("POST", path, content=msgspec.json.encode(body), headers=headers) as answer:
                raw = bytearray()
                async for part in answer.aiter_bytes():
                    raw += part
                    if len(raw) > self._max_bytes:
                        raise Unanswered(f"its answer is longer than {self._max_bytes} bytes")
        except httpx.TimeoutException as error:
            raise Unanswered(f"no answer in time ({type(error).__name__})", late=True) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unanswered(f"no connection ({type(error).__name__})") from None
        try:
            return answer.status_code, msgspec.json.decode(bytes(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return answer.status_code, None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

"""The public keys of a JWT issuer (RFC 7517): fetched, kept, and fetched again when they may have changed."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx
from jwt import PyJWK, PyJWKSet
from jwt.exceptions import PyJWTError

from contracts.errors import StageFailed
from deployments.identity.caller import Refused
from deployments.identity.config import JwtSettings

logger = logging.getLogger("ray.serve")


class Jwks:
    """Keys by algorithm and id.

    When fetching fails, the last keys go on to hold. Belongs to one event loop.

    Args:
        fetch: Reads the JWKS, as JSON text; cancelled when it takes too long.
        algorithms: Keys for others are not taken.
        max_age_s: Age beyond which the keys hold only after a try to fetch them anew. At half of it they are fetched
            beside the requests, so that these seldom wait.
        refresh_s: Least time between two fetches.
        timeout_s: Longest wait for a fetch.
        clock: Seconds that only ever grow.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[str]],
        algorithms: Sequence[str],
        *,
        max_age_s: float,
        refresh_s: float,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._algorithms = algorithms
        self._max_age = max_age_s
        self._pause = refresh_s
        self._timeout = timeout_s
        self._clock = clock
        self._keys: Sequence[PyJWK] = ()
        self._renew_at = self._stale_at = self._next_at = clock()
        self._tried_at = -math.inf
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, algorithm: str, key_id: str | None) -> PyJWK:
        """The key that a token names.

        Args:
            algorithm: Of the token, already known to be an allowed one.
            key_id: ``kid`` of the token; without one there must be a single key of the algorithm.

        Raises:
            Refused: No such key, even after a fetch where one was due.
            StageFailed: No keys could be had so far.
        """
        now = self._clock()
        if now >= self._renew_at and (fetching := self._refresh()) and self._tried_at < self._stale_at <= now:
            await asyncio.shield(fetching)
        key = self._match(algorithm, key_id)
        if key is None and (fetching := self._refresh()):
            await asyncio.shield(fetching)
            key = self._match(algorithm, key_id)
        if key:
            return key
        if not self._keys:
            raise StageFailed("The keys to check tokens with can't be had.", remedy="Retry.", stage="identity")
        raise Refused("jwt_key")

    async def load(self) -> None:
        """Fetch the keys now.

        Raises:
            OSError, httpx.HTTPError, TimeoutError: They can't be had.
            ValueError: What came holds no usable key.
        """
        now = self._clock()
        self._next_at = now + self._pause
        async with asyncio.timeout(self._timeout):
            text = await self._fetch()
        self._keys = usable_keys(text, self._algorithms)
        self._renew_at, self._stale_at = now + self._max_age / 2, now + self._max_age

    def _match(self, algorithm: str, key_id: str | None) -> PyJWK | None:
        found = [key for key in self._keys if key.algorithm_name == algorithm and key_id in (None, key.key_id)]
        return found[0] if len(found) == 1 or (found and key_id) else None

    def _refresh(self) -> asyncio.Task[None] | None:
        """The fetch under way, or a new one when one is allowed by now."""
        if self._fetching is None and self._clock() >= self._next_at:
            self._fetching = asyncio.create_task(self._try_load())
        return self._fetching

    async def _try_load(self) -> None:
        started = self._clock()
        try:
            await self.load()
        except (OSError, httpx.HTTPError, ValueError) as error:
            logger.warning("The JWKS can't be had: %s", type(error).__name__)
        finally:
            self._tried_at = started
            self._fetching = None


def usable_keys(text: str, algorithms: Sequence[str]) -> list[PyJWK]:
    """The keys of a JWKS that can verify signatures of these algorithms; a secret (``oct``) is none of them.

    Raises:
        ValueError: It is no JWKS, or holds no such key.
    """
    try:
        found = PyJWKSet.from_json(text).keys
    except (PyJWTError, AttributeError, TypeError) as error:
        raise ValueError("no JWKS") from error
    keys = [key for key in found if key.algorithm_name in algorithms and key.public_key_use in (None, "sig")]
    if not keys:
        raise ValueError(f"no key for {' or '.join(algorithms)}")
    return keys


def source(settings: JwtSettings) -> Callable[[], Awaitable[str]]:
    """Reads the JWKS of the settings, from its file or its URL."""
    if path := settings.jwks_file:
        return lambda: asyncio.to_thread(path.read_text, encoding="utf-8")
    # Kept, for making one reads the certificates of this machine.
    client = httpx.AsyncClient(timeout=None)  # noqa: S113 -- whoever calls has a time-out over all of it

    async def get() -> str:
        response = await client.get(settings.jwks_url or "")
        if response.status_code != httpx.codes.OK:  # A redirect may lead anywhere.
            raise httpx.HTTPError(f"status {response.status_code}")
        return response.text

    return get

"""From the ``Authorization`` header to a caller."""

import asyncio
import logging
import time
from collections.abc import Callable

from contracts.errors import ConfigError, DatabaseDown, Unauthenticated
from deployments.identity.caller import Caller, Refused
from deployments.identity.config import IdentitySettings
from deployments.identity.keys import PREFIX, KeyStore
from deployments.identity.tokens import TokenVerifier, open_verifier

logger = logging.getLogger("ray.serve")

# A key's last use is written at most this often, in seconds.
_NOTE_EVERY = 60.0


class Authenticator:
    """Takes API keys, which begin with ``strata_``, and JWTs, where they are configured.

    Args:
        keys: The API keys.
        tokens: Verifies JWTs; ``None`` takes none.
        refused: Told why credentials were refused, in a word.
    """

    def __init__(self, keys: KeyStore, tokens: TokenVerifier | None, refused: Callable[[str], None]) -> None:
        self._keys = keys
        self._tokens = tokens
        self._refused = refused
        self._noted: dict[str, float] = {}
        self._to_note: set[str] = set()
        self._noting: asyncio.Task[None] | None = None

    async def authenticate(self, authorization: str, request_id: str) -> Caller:
        """The caller that a request's header names.

        Args:
            authorization: The header's value; empty without one.
            request_id: For the caller's context.

        Raises:
            Unauthenticated: There are no credentials, or they are not valid; why not is not told.
            StageFailed: The keys that JWTs are checked with could not be had so far.
            DatabaseDown: API keys can't be looked up now.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            self._refused("missing")
            raise Unauthenticated(
                "There are no credentials.", remedy="Send the header Authorization: Bearer <API key or JWT>."
            )
        try:
            if token.startswith(PREFIX):
                return await self._by_key(token, request_id)
            if self._tokens:
                return await self._tokens.verify(token, request_id)
            raise Refused("key_unknown")
        except Refused as refused:
            self._refused(refused.reason)
            raise

    async def _by_key(self, token: str, request_id: str) -> Caller:
        try:
            key = await self._keys.authenticate(token)
        except (DatabaseDown, ConfigError) as error:
            # Whoever asks is nobody yet, who need not learn which database it is.
            logger.warning("API keys can't be looked up: %s", error)
            self._refused("key_not_looked_up")
            raise DatabaseDown("API keys can't be checked now.", remedy="Retry in a moment.") from None
        self._note(key.key_id)
        return Caller(key.context(request_id), key.key_id)

    def _note(self, key_id: str) -> None:
        """Have the use of a key written down, beside the requests and by one transaction at a time."""
        now = time.monotonic()
        if now - self._noted.get(key_id, -_NOTE_EVERY) < _NOTE_EVERY:
            return
        self._noted[key_id] = now
        self._to_note.add(key_id)
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._write_notes())

    async def _write_notes(self) -> None:
        while self._to_note:
            used, self._to_note = self._to_note, set()
            await self._keys.note_uses(used)


async def open_authenticator(
    keys: KeyStore, settings: IdentitySettings, secret: str | None, refused: Callable[[str], None]
) -> Authenticator:
    """An authenticator that is ready.

    Args:
        keys: The API keys.
        settings: Which JWTs are taken.
        secret: For JWTs with HS256.
        refused: Told why credentials were refused, in a word.

    Raises:
        ConfigError: JWTs are configured, and their secret or their JWKS file can't be used.
    """
    tokens = await open_verifier(settings.jwt, secret) if settings.jwt.issuer else None
    return Authenticator(keys, tokens, refused)

"""From the ``Authorization`` header to a caller."""

import asyncio
import time
from collections.abc import Callable

from contracts.errors import Unauthenticated
from deployments.identity.caller import Caller, Refused
from deployments.identity.config import IdentitySettings
from deployments.identity.keys import PREFIX, KeyStore
from deployments.identity.tokens import TokenVerifier, open_verifier

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

    async def authenticate(self, authorization: str, request_id: str) -> Caller:
        """The caller that a request's header names.

        Args:
            authorization: The header's value; empty without one.
            request_id: For the caller's context.

        Raises:
            Unauthenticated: There are no credentials, or they are not valid; why not is not told.
            StageFailed: The keys that JWTs are checked with could not be had so far.
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
                return self._by_key(token, request_id)
            if self._tokens:
                return await self._tokens.verify(token, request_id)
            raise Refused("key_unknown")
        except Refused as refused:
            self._refused(refused.reason)
            raise

    def _by_key(self, token: str, request_id: str) -> Caller:
        key = self._keys.authenticate(token)
        now = time.monotonic()
        if now - self._noted.get(key.key_id, -_NOTE_EVERY) >= _NOTE_EVERY:
            self._noted[key.key_id] = now
            # In a thread: another process may be writing.
            asyncio.get_running_loop().run_in_executor(None, self._keys.note_use, key.key_id)
        return Caller(key.context(request_id), key.key_id)


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

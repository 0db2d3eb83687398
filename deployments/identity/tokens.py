"""JWTs: who a request comes from, on the word of an issuer that the settings trust (RFC 7519, RFC 8725).

The allowed algorithms come from the settings, the key from the environment or the JWKS; a token only says, by ``kid``,
which key of the JWKS it means. A check takes 0.1 to 0.3 ms of the event loop; little beside a search, so that none is
remembered.
"""

import logging
from collections.abc import Mapping
from typing import Any

import httpx
import jwt
from jwt import exceptions
from jwt.exceptions import PyJWTError

from contracts.context import RequestContext
from contracts.errors import ConfigError
from deployments.identity.caller import ROLES, Caller, Refused, is_space
from deployments.identity.config import JwtSettings
from deployments.identity.jwks import Jwks, source

logger = logging.getLogger("ray.serve")

_MIN_SECRET_BYTES = 32
_MAX_ACCOUNT = 256
_OPTIONS: Any = {"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True}
_REASONS: Mapping[type[PyJWTError], str] = {
    exceptions.ExpiredSignatureError: "jwt_expired",
    exceptions.ImmatureSignatureError: "jwt_too_early",
    exceptions.InvalidAudienceError: "jwt_audience",
    exceptions.InvalidIssuerError: "jwt_issuer",
    exceptions.InvalidSignatureError: "jwt_signature",
    exceptions.MissingRequiredClaimError: "jwt_claims",
}


class TokenVerifier:
    """Makes callers from JWTs.

    Args:
        settings: With an issuer.
        keys: The secret of HS256, at least 32 bytes; or the JWKS for the other algorithms.
    """

    def __init__(self, settings: JwtSettings, keys: bytes | Jwks) -> None:
        self._settings = settings
        self._keys = keys

    async def verify(self, token: str, request_id: str) -> Caller:
        """The caller that ``token`` speaks of.

        Raises:
            Refused: A check failed; which of them is not told.
            StageFailed: The keys of the issuer could not be had so far.
        """
        settings = self._settings
        if len(token) > settings.max_bytes:
            raise Refused("jwt_size")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in settings.algorithms:
                raise Refused("jwt_algorithm")
            keys = self._keys
            claims = jwt.decode(
                token,
                keys if isinstance(keys, bytes) else await keys.find(header["alg"], header.get("kid")),
                algorithms=settings.algorithms,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options=_OPTIONS,
            )
        except PyJWTError as error:
            raise Refused(_REASONS.get(type(error), "jwt_malformed")) from None
        return self._caller(claims, request_id)

    def _caller(self, claims: Mapping[str, Any], request_id: str) -> Caller:
        settings = self._settings
        account, role = claims.get(settings.account_claim), claims.get(settings.role_claim, "user")
        if not (isinstance(account, str) and account.isprintable() and account == account.strip()):
            raise Refused("jwt_account")
        if not 0 < len(account) <= _MAX_ACCOUNT:
            raise Refused("jwt_account")
        if role not in ROLES:
            raise Refused("jwt_role")
        user_space, agent_space = (
            claims.get(name, "") for name in (settings.user_space_claim, settings.agent_space_claim)
        )
        spaces = claims.get(settings.spaces_claim, [])
        if not isinstance(spaces, list) or not all(_is_name(name) for name in spaces):
            raise Refused("jwt_space")
        if not all(name == "" or _is_name(name) for name in (user_space, agent_space)):
            raise Refused("jwt_space")
        context = RequestContext(account, role, user_space, agent_space, tuple(spaces), request_id)
        # An account is printable, so the zero byte ends it.
        return Caller(context, f"jwt:{account}\0{claims.get('sub', '')}")


async def open_verifier(settings: JwtSettings, secret: str | None) -> TokenVerifier:
    """A verifier with its keys at hand.

    Args:
        settings: With an issuer.
        secret: For HS256.

    Raises:
        ConfigError: HS256 without a secret or with a short one; a JWKS file that can't be used. A URL may be down for
            now: tokens are then refused as long as it is.
    """
    if "HS256" in settings.algorithms:
        return TokenVerifier(settings, _long_enough(secret))
    jwks = Jwks(
        source(settings),
        settings.algorithms,
        max_age_s=settings.jwks_max_age_s,
        refresh_s=settings.jwks_refresh_s,
        timeout_s=settings.jwks_timeout_ms / 1000,
    )
    try:
        await jwks.load()
    except (OSError, httpx.HTTPError, ValueError) as error:
        if settings.jwks_file:
            raise ConfigError(
                f"The JWKS in {settings.jwks_file} can't be used: {error}.",
                field="identity.jwt.jwks_file",
                remedy="Correct the path or the file.",
            ) from None
        logger.warning("The JWKS can't be had: %s", type(error).__name__)
    return TokenVerifier(settings, jwks)


def _long_enough(secret: str | None) -> bytes:
    key = (secret or "").encode()
    if len(key) < _MIN_SECRET_BYTES:
        raise ConfigError(
            f"HS256 needs a secret of at least {_MIN_SECRET_BYTES} bytes.",
            field="STRATA_JWT_SECRET",
            remedy="Set STRATA_JWT_SECRET, or STRATA_JWT_SECRET_FILE to a file that holds it.",
        )
    return key


def _is_name(value: object) -> bool:
    return isinstance(value, str) and is_space(value)

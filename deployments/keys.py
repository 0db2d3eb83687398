"""API keys: who a request comes from (C20).

A key is ``strata_<id>_<secret>`` with a secret of 256 random bits. Only its SHA-256 is stored. A slow password hash
would add nothing but time to every request: it protects guessable secrets, and nobody guesses 256 random bits.

Keys lie in one SQLite file that every ingress replica reads on each request (some 20 µs), so that a revocation holds
at once in all of them.
"""

import hashlib
import hmac
import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from contracts.context import RequestContext, Role
from contracts.errors import InvalidInput, InvalidUri, Unauthenticated
from contracts.uri import SCHEME, parse

_ROLES = ("user", "agent", "admin")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    key_id TEXT PRIMARY KEY, hash BLOB NOT NULL, account_id TEXT NOT NULL, role TEXT NOT NULL,
    user_space TEXT NOT NULL, agent_space TEXT NOT NULL, spaces TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL
) WITHOUT ROWID
"""
_FIELDS = "key_id, account_id, role, user_space, agent_space, spaces, created_at, expires_at, revoked_at"


class ApiKey(msgspec.Struct, frozen=True):
    """A key without its secret; times in milliseconds since the epoch, 0 for never."""

    key_id: str
    account_id: str
    role: Role
    user_space: str
    agent_space: str
    spaces: tuple[str, ...]
    created_at: int
    expires_at: int = 0
    revoked_at: int = 0

    def active(self) -> bool:
        """Neither revoked nor expired."""
        return not self.revoked_at and not 0 < self.expires_at <= _now()

    def context(self, request_id: str) -> RequestContext:
        """The identity of a request made with this key."""
        return RequestContext(self.account_id, self.role, self.user_space, self.agent_space, self.spaces, request_id)


class KeyStore:
    """The keys of one data folder; safe for several processes.

    Args:
        path: The SQLite file; made when it is missing.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(_SCHEMA)

    def create(
        self,
        account_id: str,
        *,
        role: Role = "user",
        user_space: str = "",
        agent_space: str = "",
        spaces: Sequence[str] = (),
        expires_at: int = 0,
    ) -> tuple[str, ApiKey]:
        """Make a key.

        Args:
            account_id: The tenant.
            role: See ``contracts.context.RequestContext``.
            user_space: For instance ``user:alice``.
            agent_space: For instance ``agent:planner``.
            spaces: Further spaces that it grants.
            expires_at: Milliseconds since the epoch; 0 for never.

        Returns:
            The whole key, which can't be had again later, and what is stored of it.

        Raises:
            InvalidInput: No account, an unknown role, or a malformed space.
        """
        if not account_id.strip():
            raise InvalidInput("A key needs an account.", field="account")
        if role not in _ROLES:
            raise InvalidInput("No such role.", field="role", remedy=f"Use one of {', '.join(_ROLES)}.")
        for space in filter(None, (user_space, agent_space, *spaces)):
            _check_space(space)
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        key = ApiKey(key_id, account_id, role, user_space, agent_space, tuple(spaces), _now(), expires_at)
        self._db.execute(
            f"INSERT INTO keys ({_FIELDS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 -- constants
            (
                *(key_id, account_id, role, user_space, agent_space, " ".join(spaces)),
                *(key.created_at, expires_at, 0, _hash(secret)),
            ),
        )
        return f"strata_{key_id}_{secret}", key

    def list(self) -> list[ApiKey]:
        """All keys, oldest first."""
        rows = self._db.execute(f"SELECT {_FIELDS} FROM keys ORDER BY created_at, key_id")  # noqa: S608 -- constants
        return [_key(row) for row in rows]

    def revoke(self, key_id: str) -> bool:
        """Refuse a key from now on; whether there was an active one of that id."""
        with closing(
            self._db.execute("UPDATE keys SET revoked_at = ? WHERE key_id = ? AND revoked_at = 0", (_now(), key_id))
        ) as cursor:
            return cursor.rowcount > 0

    def authenticate(self, token: str) -> ApiKey:
        """The key that ``token`` is.

        Raises:
            Unauthenticated: Unknown, expired or revoked; which of them is not told.
        """
        _, _, rest = token.partition("strata_")
        key_id, _, secret = rest.partition("_")
        row = self._db.execute(f"SELECT {_FIELDS}, hash FROM keys WHERE key_id = ?", (key_id,)).fetchone()  # noqa: S608
        *fields, expected = row or (None, b"")
        if row and hmac.compare_digest(_hash(secret), expected) and token.startswith("strata_"):
            key = _key(fields)
            if key.active():
                return key
        raise Unauthenticated("The API key is not valid.", remedy="Make one with: strata keys create")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _now() -> int:
    return int(time.time() * 1000)


def _key(row: Sequence[object]) -> ApiKey:
    values = dict(zip(ApiKey.__struct_fields__, row, strict=True))
    return msgspec.convert({**values, "spaces": str(values["spaces"]).split()}, ApiKey)


def _check_space(space: str) -> None:
    try:
        parsed = parse(SCHEME + space, field="space")
    except InvalidUri:
        parsed = ""
    if parsed != SCHEME + space or "/" in space:
        raise InvalidInput(
            f"{space!r} is no space name.",
            field="spaces",
            remedy="Use names like user:alice: a-z 0-9 . _ : -",
        )

"""API keys: who a request comes from (C20).

A key is ``strata_<id>_<secret>`` with a secret of 256 random bits. Only its SHA-256 is stored. A slow password hash
would add nothing but time to every request: it protects guessable secrets, and nobody guesses 256 random bits.

Keys lie in one SQLite file that every ingress replica reads on each request (some 20 µs), so that a revocation holds
at once in all of them. When a key was last used is written at most once a minute and process, off the request's path.
"""

import hashlib
import hmac
import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from contracts.context import RequestContext, Role
from contracts.errors import InvalidInput
from deployments.identity.caller import ROLES, Refused, is_space

PREFIX = "strata_"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    key_id TEXT PRIMARY KEY, hash BLOB NOT NULL, account_id TEXT NOT NULL, role TEXT NOT NULL,
    user_space TEXT NOT NULL, agent_space TEXT NOT NULL, spaces TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (key_id TEXT PRIMARY KEY, used_at INTEGER NOT NULL) WITHOUT ROWID;
"""
_FIELDS = "key_id, account_id, role, user_space, agent_space, spaces, created_at, expires_at, revoked_at"
_LISTED = f"SELECT {_FIELDS}, coalesce(used_at, 0) FROM keys LEFT JOIN uses USING (key_id)"  # noqa: S608 -- constants


class ApiKey(msgspec.Struct, frozen=True):
    """A key without its secret; times in milliseconds since the epoch, 0 for never.

    Args:
        revoked_at: It is refused from then on; lies ahead for a key that was rotated a moment ago.
        used_at: To within a minute.
    """

    key_id: str
    account_id: str
    role: Role
    user_space: str
    agent_space: str
    spaces: tuple[str, ...]
    created_at: int
    expires_at: int = 0
    revoked_at: int = 0
    used_at: int = 0

    @property
    def ends_at(self) -> int:
        """When it stops to hold."""
        return min(filter(None, (self.revoked_at, self.expires_at)), default=0)

    def active(self) -> bool:
        """Neither revoked nor expired."""
        return not 0 < self.ends_at <= _now()

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
        self._path = path
        self._db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        path.chmod(0o600)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(_SCHEMA)

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
        return self._create(ApiKey("", account_id, role, user_space, agent_space, tuple(spaces), _now(), expires_at))

    def _create(self, wanted: ApiKey) -> tuple[str, ApiKey]:
        """Check and store a key, under an id and a secret of its own."""
        if not wanted.account_id.strip():
            raise InvalidInput("A key needs an account.", field="account")
        if wanted.role not in ROLES:
            raise InvalidInput("No such role.", field="role", remedy=f"Use one of {', '.join(ROLES)}.")
        for space in filter(None, (wanted.user_space, wanted.agent_space, *wanted.spaces)):
            if not is_space(space):
                raise InvalidInput(
                    f"{space!r} is no space name.",
                    field="spaces",
                    remedy="Use names like user:alice: a-z 0-9 . _ : -",
                )
        key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        key = msgspec.structs.replace(wanted, key_id=key_id)
        self._db.execute(
            f"INSERT INTO keys ({_FIELDS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 -- constants
            (
                *(key_id, key.account_id, key.role, key.user_space, key.agent_space, " ".join(key.spaces)),
                *(key.created_at, key.expires_at, 0, _hash(secret)),
            ),
        )
        return f"{PREFIX}{key_id}_{secret}", key

    def rotate(self, key_id: str, overlap_ms: int) -> tuple[str, ApiKey]:
        """Put a new key in the place of an active one: the same identity, and the same lifetime, counted from now.

        Args:
            key_id: The old key.
            overlap_ms: Milliseconds that the old one still holds, unless it expires earlier; 0 for none.

        Returns:
            As :meth:`create`.

        Raises:
            InvalidInput: There is no active key of that id, or it was rotated before.
        """
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            row = self._db.execute(f"{_LISTED} WHERE key_id = ?", (key_id,)).fetchone()
            if row is None or (old := _key(row)).revoked_at or not old.active():
                raise InvalidInput(
                    "There is no key of this id that could be rotated.",
                    field="key_id",
                    remedy="It must be active, and not rotated before. See: strata keys list",
                )
            now = _now()
            self._db.execute("UPDATE keys SET revoked_at = ? WHERE key_id = ?", (now + overlap_ms, key_id))
            expires_at = old.expires_at and now + old.expires_at - old.created_at
            return self._create(msgspec.structs.replace(old, created_at=now, expires_at=expires_at))

    def list(self) -> list[ApiKey]:
        """All keys, oldest first."""
        return [_key(row) for row in self._db.execute(f"{_LISTED} ORDER BY created_at, key_id")]

    def revoke(self, key_id: str) -> bool:
        """Refuse a key from now on; whether there was an active one of that id."""
        now = _now()
        with closing(
            self._db.execute(
                "UPDATE keys SET revoked_at = ? WHERE key_id = ? AND (revoked_at = 0 OR revoked_at > ?)",
                (now, key_id, now),
            )
        ) as cursor:
            return cursor.rowcount > 0

    def authenticate(self, token: str) -> ApiKey:
        """The key that ``token`` is.

        Raises:
            Refused: Unknown, expired or revoked; which of them is not told.
        """
        _, _, rest = token.partition(PREFIX)
        key_id, _, secret = rest.partition("_")
        row = self._db.execute(f"SELECT {_FIELDS}, hash FROM keys WHERE key_id = ?", (key_id,)).fetchone()  # noqa: S608
        *fields, expected = row or (None, b"")
        if not (row and hmac.compare_digest(_hash(secret), expected) and token.startswith(PREFIX)):
            raise Refused("key_unknown")
        key = _key((*fields, 0))
        if not key.active():
            raise Refused("key_revoked" if key.ends_at == key.revoked_at else "key_expired")
        return key

    def note_use(self, key_id: str) -> None:
        """Write down that a key is in use now; what can't be written is not missed. Safe in any thread."""
        with suppress(sqlite3.Error), closing(sqlite3.connect(self._path, timeout=5, isolation_level=None)) as db:
            db.execute("INSERT OR REPLACE INTO uses VALUES (?, ?)", (key_id, _now()))

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

"""API keys: who a request comes from (C20).

A key is ``strata_<id>_<secret>`` with a secret of 256 random bits. Only its SHA-256 is stored. A slow password hash
would add nothing but time to every request: it protects guessable secrets, and nobody guesses 256 random bits.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import case, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.context import RequestContext, Role
from contracts.errors import InvalidInput, StrataError
from contracts.text import UNSTORABLE
from database.engine import Database
from database.tables import api_keys
from database.upsert import insert_into
from deployments.identity.caller import ROLES, Refused, is_space

PREFIX = "strata_"
_ID = re.compile(r"[0-9A-Za-z]{1,32}")
_TOKEN = re.compile(rf"{PREFIX}({_ID.pattern})_([\w-]{{1,256}})", re.ASCII)


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


class StoredKey(NamedTuple):
    """A key and the hash of its secret."""

    key: ApiKey
    hash: bytes

    @classmethod
    def of(cls, row: Sequence[Any]) -> "StoredKey":
        """From the fields of an ``ApiKey`` and the hash, as :data:`STORED` selects them."""
        *fields, digest = row
        values = dict(zip(ApiKey.__struct_fields__, fields, strict=True))
        return cls(msgspec.convert({**values, "spaces": values["spaces"].split()}, ApiKey), digest)

    def row(self) -> dict[str, Any]:
        """As the table has it."""
        return {**msgspec.structs.asdict(self.key), "spaces": " ".join(self.key.spaces), "hash": self.hash}


STORED = select(*(api_keys.c[name] for name in (*ApiKey.__struct_fields__, "hash")))
# Finds a key by its id; raises ``DatabaseDown`` where that can't be known.
Find = Callable[[str], Awaitable[StoredKey | None]]


class KeyStore:
    """The keys of a database; safe for several processes.

    Every method may raise ``DatabaseDown``; then nothing was written and nobody is let in.

    Args:
        database: Where they are.
        find: Looks the key of a request up; by default in the database, each time.
    """

    def __init__(self, database: Database, find: Find | None = None) -> None:
        self._database = database
        self._find = find or self._find_one

    async def create(
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
        wanted = ApiKey("", account_id, role, user_space, agent_space, tuple(spaces), _now(), expires_at)
        _check(wanted)
        async with self._database.writing() as connection:
            return await _insert(connection, wanted)

    async def rotate(self, key_id: str, overlap_ms: int) -> tuple[str, ApiKey]:
        """Put a new key in the place of an active one: the same identity, and the same lifetime, counted from now.

        Args:
            key_id: The old key.
            overlap_ms: Milliseconds that the old one still holds, unless it expires earlier; 0 for none.

        Returns:
            As :meth:`create`.

        Raises:
            InvalidInput: There is no active key of that id, or it was rotated before.
        """
        async with self._database.writing() as connection:
            chosen = STORED.where(api_keys.c.key_id == _known_form(key_id)).with_for_update()
            row = (await connection.execute(chosen)).first()
            if row is None or (old := StoredKey.of(row).key).revoked_at or not old.active():
                raise InvalidInput(
                    "There is no key of this id that could be rotated.",
                    field="key_id",
                    remedy="It must be active, and not rotated before. See: strata keys list",
                )
            now = _now()
            ends = update(api_keys).where(api_keys.c.key_id == key_id).values(revoked_at=now + overlap_ms)
            await connection.execute(ends)
            expires_at = old.expires_at and now + old.expires_at - old.created_at
            new = msgspec.structs.replace(old, created_at=now, expires_at=expires_at, used_at=0)
            return await _insert(connection, new)

    async def list(self) -> list[ApiKey]:
        """All keys, oldest first."""
        async with self._database.reading() as connection:
            rows = await connection.execute(STORED.order_by(api_keys.c.created_at, api_keys.c.key_id))
            return [StoredKey.of(row).key for row in rows]

    async def revoke(self, key_id: str) -> bool:
        """Refuse a key from now on; whether there was an active one of that id."""
        now = _now()
        holds = or_(api_keys.c.revoked_at == 0, api_keys.c.revoked_at > now)
        change = update(api_keys).where(api_keys.c.key_id == _known_form(key_id), holds).values(revoked_at=now)
        async with self._database.writing() as connection:
            return (await connection.execute(change)).rowcount > 0

    async def authenticate(self, token: str) -> ApiKey:
        """The key that ``token`` is.

        Raises:
            Refused: Unknown, expired or revoked; which of them is not told.
        """
        parts = _TOKEN.fullmatch(token)
        stored = await self._find(parts[1]) if parts else None
        if not (parts and stored and hmac.compare_digest(_hash(parts[2]), stored.hash)):
            raise Refused("key_unknown")
        key = stored.key
        if not key.active():
            raise Refused("key_revoked" if key.ends_at == key.revoked_at else "key_expired")
        return key

    async def find(self, key_ids: Collection[str]) -> dict[str, StoredKey]:
        """Those of the keys that there are, by id."""
        async with self._database.reading() as connection:
            rows = await connection.execute(STORED.where(api_keys.c.key_id.in_(key_ids)))
            return {row.key_id: StoredKey.of(row) for row in rows}

    async def note_uses(self, key_ids: Collection[str]) -> None:
        """Write down that keys are in use now; what can't be written is not missed."""
        change = update(api_keys).where(api_keys.c.key_id.in_(key_ids)).values(used_at=_now())
        with suppress(StrataError):
            async with self._database.writing() as connection:
                await connection.execute(change)

    async def adopt(self, keys: Iterable[StoredKey]) -> None:
        """Store keys that were made elsewhere; of one that is known, only an earlier revocation is taken."""
        rows = [key.row() for key in keys]
        async with self._database.writing() as connection:
            statement = insert_into(connection, api_keys)
            given, known = statement.excluded.revoked_at, api_keys.c.revoked_at
            earlier = case((given == 0, known), (or_(known == 0, given < known), given), else_=known)
            statement = statement.on_conflict_do_update(index_elements=["key_id"], set_={"revoked_at": earlier})
            if rows:
                await connection.execute(statement, rows)

    async def _find_one(self, key_id: str) -> StoredKey | None:
        return (await self.find([key_id])).get(key_id)


async def _insert(connection: AsyncConnection, wanted: ApiKey) -> tuple[str, ApiKey]:
    """Store a key, under an id and a secret of its own."""
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    key = msgspec.structs.replace(wanted, key_id=key_id)
    await connection.execute(insert_into(connection, api_keys).values(StoredKey(key, _hash(secret)).row()))
    return f"{PREFIX}{key_id}_{secret}", key


def _check(wanted: ApiKey) -> None:
    if not wanted.account_id.strip() or UNSTORABLE.search(wanted.account_id):
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


def _known_form(key_id: str) -> str:
    """The id, or for what can be none, and may be no text for a database either, that of no key."""
    return key_id if _ID.fullmatch(key_id) else ""


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _now() -> int:
    return int(time.time() * 1000)

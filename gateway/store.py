"""What the gateway knows of its users, in SQL: who they are, their resources, tombstones, overrides and agents."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Select, String, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.errors import InvalidInput
from contracts.uri import parse_space
from database.engine import Database
from database.tables import (
    gateway_agents,
    gateway_overrides,
    gateway_resources,
    gateway_tombstones,
    gateway_users,
)

# Values a statement; both dialects take more.
_VALUES = 500
_MAX_TEXT = 1 << 16


class UserRow(msgspec.Struct, frozen=True):
    """A user as stored.

    Args:
        user_id: As clients write it.
        key_hash: Of its key.
        account_id: The tenant whose part of the graph is searched.
        space: Owner space of its memory there; no other user of the account has it.
        created_at: Milliseconds since the epoch.
    """

    user_id: str
    key_hash: str
    account_id: str
    space: str
    created_at: int = 0


class Resource(msgspec.Struct, frozen=True):
    """A resource of a user: memories of its session are shown with its id and URI (G7)."""

    resource_id: str
    session_id: str
    uri: str


class Tombstone(msgspec.Struct, frozen=True):
    """A memory that a user does not want to see any more."""

    memory_id: str


class Override(msgspec.Struct, frozen=True):
    """What a user reads in place of a memory's text, while it is active."""

    memory_id: str
    text: str
    active: bool = True


class Agent(msgspec.Struct, frozen=True):
    """An agent that a user may search where ``gateway.agent_ownership`` is ``check``."""

    agent_id: str


Owned = TypeVar("Owned", Resource, Tombstone, Override, Agent)
# Each kind of what belongs to users; its first field is its key.
_TABLES: Mapping[type[msgspec.Struct], Table] = {
    Resource: gateway_resources,
    Tombstone: gateway_tombstones,
    Override: gateway_overrides,
    Agent: gateway_agents,
}


class Notes(msgspec.Struct, frozen=True):
    """What a user has noted about some memories and sessions.

    Args:
        tombstones: Ids of memories not to be shown.
        overrides: Texts by memory id, of active overrides.
        resources: The user's own, by session id.
    """

    tombstones: frozenset[str]
    overrides: Mapping[str, str]
    resources: Mapping[str, Resource]


class GatewayStore:
    """The tables of the gateway. Every method may raise ``DatabaseDown``; then nothing was written.

    Args:
        database: Where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def user(self, user_id: str) -> UserRow | None:
        """A user; ``None`` for an unknown one."""
        rows = await self._rows(select(gateway_users).where(gateway_users.c.user_id == user_id))
        return UserRow(**rows[0]) if rows else None

    async def users(self) -> list[UserRow]:
        """All users by id."""
        return [UserRow(**row) for row in await self._rows(select(gateway_users).order_by(gateway_users.c.user_id))]

    async def add_user(self, user: UserRow) -> None:
        """Add a user; it counts as created now.

        Raises:
            InvalidInput: There is such a user, another one of the account has the space, or a value is too long.
            InvalidUri: The space is not valid.
        """
        parse_space(user.space, field="space")
        row = msgspec.structs.asdict(msgspec.structs.replace(user, created_at=_now()))
        _check(gateway_users, row)
        try:
            async with self._database.writing() as connection:
                await connection.execute(insert(gateway_users).values(row))
        except IntegrityError:
            raise InvalidInput(
                "There is such a user, or another one of the account has this space.",
                field="user_id",
                remedy="See: strata gateway users list",
            ) from None

    async def change_key(self, user_id: str, key_hash: str) -> bool:
        """Give a user another key, which holds at once; whether there is such a user."""
        change = update(gateway_users).where(gateway_users.c.user_id == user_id).values(key_hash=key_hash)
        async with self._database.writing() as connection:
            return (await connection.execute(change)).rowcount > 0

    async def remove_user(self, user_id: str) -> bool:
        """Remove a user with all that belongs to it; whether there was one."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(gateway_users).where(gateway_users.c.user_id == user_id))
            return gone.rowcount > 0

    async def owned(self, kind: type[Owned], user_id: str) -> list[Owned]:
        """Everything of one kind that belongs to a user, by key; of overrides those that are not active too."""
        table = _TABLES[kind]
        key = table.c[kind.__struct_fields__[0]]
        return [kind(**row) for row in await self._rows(_chosen(kind, user_id).order_by(key))]

    async def owns(self, item: Owned, user_id: str) -> bool:
        """Whether exactly this belongs to a user."""
        matching = (_TABLES[type(item)].c[name] == value for name, value in msgspec.structs.asdict(item).items())
        return bool(await self._rows(_chosen(type(item), user_id).where(*matching)))

    async def put(self, item: Owned, user_id: str) -> None:
        """Give a user something, in place of what has the same key.

        Raises:
            InvalidInput: There is no such user, another of its resources has the session, or a value is too long.
        """
        table, key = _TABLES[type(item)], item.__struct_fields__[0]
        row = msgspec.structs.asdict(item) | {"user_id": user_id, "updated_at": _now()}
        _check(table, row)
        try:
            async with self._database.writing() as connection:
                await _check_user(connection, user_id)
                same = (table.c.user_id == user_id, table.c[key] == getattr(item, key))
                await connection.execute(delete(table).where(*same))
                await connection.execute(insert(table).values(row))
        except IntegrityError:
            raise InvalidInput(
                "Another resource of this user has this session.",
                field="session_id",
                remedy="See: strata gateway resources list",
            ) from None

    async def remove(self, kind: type[msgspec.Struct], user_id: str, key: str) -> bool:
        """Take something from a user; whether it was there."""
        table = _TABLES[kind]
        same = (table.c.user_id == user_id, table.c[kind.__struct_fields__[0]] == key)
        async with self._database.writing() as connection:
            return (await connection.execute(delete(table).where(*same))).rowcount > 0

    async def notes(self, user_id: str, memory_ids: Iterable[str], session_ids: Iterable[str]) -> Notes:
        """What a user has noted about these memories and sessions, as of one moment."""
        memories, sessions = _storable(memory_ids), _storable(session_ids)
        active = _chosen(Override, user_id).where(gateway_overrides.c.active)
        async with self._database.reading() as connection:
            hidden = await _among(connection, _chosen(Tombstone, user_id), "memory_id", memories)
            instead = await _among(connection, active, "memory_id", memories)
            own = await _among(connection, _chosen(Resource, user_id), "session_id", sessions)
        return Notes(
            frozenset(row["memory_id"] for row in hidden),
            {row["memory_id"]: row["text"] for row in instead},
            {row["session_id"]: Resource(**row) for row in own},
        )

    async def _rows(self, statement: Select[Any]) -> list[dict[str, Any]]:
        async with self._database.reading() as connection:
            return [dict(row) for row in (await connection.execute(statement)).mappings()]


def _chosen(kind: type[msgspec.Struct], user_id: str) -> Select[Any]:
    table = _TABLES[kind]
    return select(*(table.c[name] for name in kind.__struct_fields__)).where(table.c.user_id == user_id)


async def _among(
    connection: AsyncConnection, statement: Select[Any], column: str, values: list[str]
) -> list[dict[str, Any]]:
    """The rows that have one of these values."""
    rows: list[dict[str, Any]] = []
    for start in range(0, len(values), _VALUES):
        some = statement.where(statement.selected_columns[column].in_(values[start : start + _VALUES]))
        rows += [dict(row) for row in (await connection.execute(some)).mappings()]
    return rows


def _check(table: Table, row: Mapping[str, Any]) -> None:
    """Refuse what a column can't hold; SQLite would take it."""
    for name, value in row.items():
        kind = table.c[name].type
        most = kind.length if isinstance(kind, String) and kind.length else _MAX_TEXT
        if isinstance(value, str) and (not value or len(value) > most or "\0" in value):
            raise InvalidInput(f"{name} must have 1 to {most} characters.", field=name)


def _storable(values: Iterable[str]) -> list[str]:
    """Each value once, without those that PostgreSQL could not even compare: nothing is noted about them."""
    return [value for value in dict.fromkeys(values) if "\0" not in value]


async def _check_user(connection: AsyncConnection, user_id: str) -> None:
    # Locked, so that it can't be removed before what is given to it is there.
    found = select(gateway_users.c.user_id).where(gateway_users.c.user_id == user_id).with_for_update()
    if (await connection.execute(found)).first() is None:
        raise InvalidInput("There is no such user.", field="user_id", remedy="See: strata gateway users list")


def _now() -> int:
    return int(time.time() * 1000)

"""Switches between the two paths of a corpus, set live in SQL (R8).

A switch that is on sends a share of the users to the graph (path ``rag``) and the others to the keyword search; one
that is off sends everybody there. Each user has a fixed bucket, so that nobody goes back and forth between the two, and
whoever is in at a small share stays in at any larger one.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b

import msgspec
from sqlalchemy import delete, select

from contracts.errors import InvalidInput
from corpora.rag.rollout_config import RolloutConfig, SwitchConfig
from corpora.rag.types import Decision
from database.engine import Database
from database.tables import switches
from database.upsert import insert_into

logger = logging.getLogger(__name__)

_BUCKETS = 100
_LONGEST_NAME = 64
_PATIENCE_S = 0.05


class SwitchState(msgspec.Struct, frozen=True):
    """How a switch stands.

    Args:
        enabled: Whether the graph answers at all.
        percent: Share of the users whom it answers, 0..100.
        shadow: Whether the other path runs too, to be compared.
        updated_at: When it was set, in milliseconds since the epoch; 0 where the settings say it.
    """

    enabled: bool
    percent: int
    shadow: bool
    updated_at: int = 0

    @classmethod
    def of(cls, config: SwitchConfig) -> "SwitchState":
        """As the settings say."""
        return cls(config.enabled, config.percent, config.shadow)

    def decide(self, name: str, user: str) -> Decision:
        """Which path answers a user."""
        on = self.enabled and sticky(user, name) < self.percent
        return Decision("rag" if on else "keyword", self.shadow)


def sticky(user: str, name: str) -> int:
    """The bucket of a user in a switch, 0..99: the same in every process, and another one in every switch."""
    digest = blake2b(f"{name}\0{user}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _BUCKETS


def switch_name(corpus: str) -> str:
    """What the switch of a corpus is called."""
    return f"{corpus}.rag"


def switch_corpus(name: str, corpora: Collection[str]) -> str:
    """The corpus that a switch belongs to.

    Raises:
        InvalidInput: There is no such switch; the remedy lists those that there are.
    """
    known = {switch_name(corpus): corpus for corpus in sorted(corpora)}
    if name not in known:
        shown = name[:_LONGEST_NAME]
        raise InvalidInput(
            f"There is no switch {shown!r}.", field="name", remedy=f"Choose one of {', '.join(known) or 'none'}."
        )
    return known[name]


class Switches:
    """The switches that were set.

    Args:
        database: Where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[str, SwitchState]:
        """Those that were set, by name.

        Raises:
            DatabaseDown: The database can't be asked.
        """
        async with self._database.reading() as connection:
            rows = await connection.execute(select(switches))
            return {row.name: SwitchState(row.enabled, row.percent, row.shadow, row.updated_at) for row in rows}

    async def set(
        self,
        name: str,
        otherwise: SwitchConfig,
        *,
        enabled: bool | None = None,
        percent: int | None = None,
        shadow: bool | None = None,
    ) -> SwitchState:
        """Set a switch, or a part of it.

        Args:
            name: As :func:`switch_name` says.
            otherwise: What holds for the parts that were never set.
            enabled: ``None`` leaves it as it is, here and below.
            percent: 0..100.
            shadow: Whether the other path runs too.

        Returns:
            How it stands now.

        Raises:
            DatabaseDown: The database can't be asked; nothing was set.
        """
        given = {"enabled": enabled, "percent": percent, "shadow": shadow}
        changes = {key: value for key, value in given.items() if value is not None}
        changes["updated_at"] = int(time.time() * 1000)
        async with self._database.writing() as connection:
            statement = (
                insert_into(connection, switches)
                .values({"name": name} | otherwise.model_dump() | changes)
                .on_conflict_do_update(index_elements=[switches.c.name], set_=changes)
                .returning(switches)
            )
            row = (await connection.execute(statement)).one()
        return SwitchState(row.enabled, row.percent, row.shadow, row.updated_at)

    async def reset(self, name: str) -> None:
        """Let the settings hold again.

        Raises:
            DatabaseDown: The database can't be asked; nothing changed.
        """
        async with self._database.writing() as connection:
            await connection.execute(delete(switches).where(switches.c.name == name))


class Rollout:
    """See ``corpora.rag.ports.Switch``: follows the switches beside the requests, which wait a moment at most.

    While the database is slow or down, what was known last holds; before anything was known, the settings hold. So call
    :meth:`start` before the first request.

    Args:
        database: Where the switches are kept.
        config: What holds otherwise, and how often is looked.
        clock: Seconds that only grow.
    """

    def __init__(self, database: Database, config: RolloutConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = Switches(database)
        self._config = config
        self._clock = clock
        self._known: Mapping[str, SwitchState] = {}
        self._due = clock()
        self._reading: asyncio.Task[None] | None = None
        self._stale = False

    async def start(self) -> None:
        """Look for the first time; ends, too, when the database does not answer."""
        await self._refreshed()

    async def decide(self, corpus: str, user: str) -> Decision:
        """Which path answers a user of a corpus, as far as is known now."""
        late = self._clock() - self._due
        if late >= 0 and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._refreshed())
            if late >= self._config.refresh_ms / 1000:
                # After a quiet time what is known may be old by hours; a moment's wait spares one wrong answer.
                await asyncio.wait({self._reading}, timeout=_PATIENCE_S)
        name = switch_name(corpus)
        state = self._known.get(name) or SwitchState.of(self._config.switch(corpus))
        return state.decide(name, user)

    async def close(self) -> None:
        """Stop looking."""
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _refreshed(self) -> None:
        self._due = self._clock() + self._config.refresh_ms / 1000
        try:
            self._known = await self._store.all()
        except Exception as error:  # Whatever it is, requests go on.
            if not self._stale:
                logger.warning("The switches can't be read, the last known hold: %s", type(error).__name__)
            self._stale = True
        else:
            self._stale = False

"""Whose turn it is to change which version serves: that of one process at a time, noted in the ledger."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from elasticsearch import ApiError, AsyncElasticsearch, ConflictError, NotFoundError, TransportError

from contracts.errors import ConfigError, StageFailed
from index.elastic.config import WriteConfig
from index.elastic.mapping import digest
from index.elastic.patience import patiently
from index.elastic.state import Owner, now

_ID = digest("turn")


class Holder(msgspec.Struct, frozen=True):
    """Who has the turn.

    Args:
        owner: The process.
        lease: Milliseconds since the epoch until which it is taken to be alive.
        doing: What it does, for people.
    """

    owner: Owner
    lease: int
    doing: str

    def alive(self) -> bool:
        """Whether its turn is not over by its death."""
        return self.lease >= now() and not self.owner.dead()

    def __str__(self) -> str:
        return f"Process {self.owner.pid} on {self.owner.host} is {self.doing}."


class Turn:
    """The turn of this process.

    Args:
        client: To the cluster.
        ledger: Name of the index that it is noted in; there already.
        config: How long a silent process keeps the turn.
    """

    def __init__(self, client: AsyncElasticsearch, ledger: str, config: WriteConfig) -> None:
        self._client = client.options(request_timeout=config.request_timeout_ms / 1000)
        self._ledger = ledger
        self._config = config
        self._owner = Owner.here()

    async def holder(self) -> Holder | None:
        """Who has the turn and lives."""
        found, _ = await self._read()
        return found if found and found.alive() else None

    @asynccontextmanager
    async def taken(self, doing: str) -> AsyncIterator[None]:
        """Have the turn for as long as the block takes.

        Args:
            doing: What others are told, continuing "Process 7 is …".

        Raises:
            ConfigError: Another process has it.
        """
        await self._take(doing)
        renewing = asyncio.create_task(self._renew())
        try:
            yield
        finally:
            renewing.cancel()
            # Left behind, it ends with this process.
            with suppress(ApiError, TransportError):
                await self._give_back()

    async def check(self) -> None:
        """See to it that nobody has taken this process for dead, and will not for another while.

        Raises:
            StageFailed: Somebody has.
        """
        found, condition = await self._read()
        if found is None or found.owner != self._owner:
            raise StageFailed(
                "Another process took this one for dead.",
                remedy="Start again; raise index.elastic.write.lease_seconds if this one was only slow.",
                stage="index",
            )
        with suppress(ConflictError):  # With the renewal beside it.
            await self._write(found.doing, condition)

    async def _take(self, doing: str) -> None:
        while True:
            found, condition = await self._read()
            if found and found.owner != self._owner and found.alive():
                raise ConfigError(str(found), field="index", remedy="Wait until it is done, or stop it.")
            # Another process may have been faster; then it has the turn.
            with suppress(ConflictError):
                await self._write(doing, condition)
                return

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._config.lease_seconds / 3)
            # A try that fails is made up for by the next one; a lost turn is found out by ``check``.
            with suppress(ApiError, TransportError, StageFailed):
                await self.check()

    async def _give_back(self) -> None:
        found, condition = await self._read()
        if found and found.owner == self._owner:
            await self._client.delete(index=self._ledger, id=_ID, **condition)

    async def _read(self) -> tuple[Holder | None, dict[str, Any]]:
        """The holder, alive or not, and the condition that nobody else has written since."""
        try:
            read = await patiently(self._config, self._client.get, index=self._ledger, id=_ID)
        except NotFoundError:
            return None, {"op_type": "create"}
        condition = {"if_seq_no": read["_seq_no"], "if_primary_term": read["_primary_term"]}
        return msgspec.convert(read["_source"]["body"], Holder), condition

    async def _write(self, doing: str, condition: dict[str, Any]) -> None:
        lease = now() + int(self._config.lease_seconds * 1000)
        document = {"body": msgspec.to_builtins(Holder(self._owner, lease, doing))}
        await patiently(self._config, self._client.index, index=self._ledger, id=_ID, document=document, **condition)

"""Which accounts are in memory, and whether what is there is what they show now."""

import asyncio
import logging
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from contracts.filters import Eq
from index.bm25 import BM25Config
from index.embedded.config import ResidentConfig
from index.embedded.filter_sql import where
from index.embedded.resident.snapshot import COLUMNS, Snapshot
from index.embedded.state import StateReader
from index.embedded.table import NodeTable

logger = logging.getLogger(__name__)

# Accounts remembered that are not in memory: which were asked for, and which are too large.
_KNOWN = 10_000


@dataclass
class _Account:
    """What is known of an account.

    Args:
        revision: Of ``snapshot``; or that at which the account was too large.
        asked: Reads that found no snapshot since the last one was made.
        due: Monotonic time before which none is made.
    """

    snapshot: Snapshot | None = None
    revision: str | None = None
    asked: int = 0
    due: float = 0.0
    loading: "asyncio.Task[None] | None" = field(default=None, repr=False)


class Accounts:
    """Snapshots of the accounts asked for last.

    Args:
        nodes: Where they are read from.
        state: Says what an account shows now.
        config: How many rows are held.
        bm25: Constants of the lexical coverage.
    """

    def __init__(self, nodes: NodeTable, state: StateReader, config: ResidentConfig, bm25: BM25Config) -> None:
        self._nodes = nodes
        self._state = state
        self._config = config
        self._bm25 = bm25
        self._known: OrderedDict[str, _Account] = OrderedDict()

    def get(self, account_id: str) -> Snapshot | None:
        """The account as it shows now; ``None`` while it is not in memory, when one may be on its way there."""
        if not self._config.rows:
            return None
        account = self._known.setdefault(account_id, _Account())
        self._known.move_to_end(account_id)
        revision = self._state.revision(account_id)
        if account.revision == revision:
            return account.snapshot
        account.asked += 1
        if account.asked >= self._config.after_reads and account.loading is None and time.monotonic() >= account.due:
            account.loading = asyncio.create_task(self._load(account_id, account))
        self._forget()
        return None

    async def ready(self, account_id: str) -> None:
        """Wait until the account is in memory, or known to be too large; for tests and benchmarks."""
        account = self._known.setdefault(account_id, _Account())
        while account.revision != self._state.revision(account_id):
            account.loading = account.loading or asyncio.create_task(self._load(account_id, account))
            await account.loading

    async def close(self) -> None:
        """Stop reading."""
        loading = [account.loading for account in self._known.values() if account.loading]
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        self._known.clear()

    async def _load(self, account_id: str, account: _Account) -> None:
        began = time.monotonic()
        try:
            revision = self._state.revision(account_id)
            snapshot = await self._read(account_id)
            # Otherwise it was written meanwhile, and what was read may be of before or after.
            if revision == self._state.revision(account_id):
                account.snapshot, account.revision, account.asked = snapshot, revision, 0
                self._make_room(account_id)
        except Exception as error:
            # The disk answers as before; LanceDB's messages may quote what is stored.
            logger.warning("An account could not be read into memory: %s", type(error).__name__)
        finally:
            now = time.monotonic()
            # Under steady writes at most a share of the time goes into reading what is out of date right away.
            account.due = now + (now - began) / self._config.share
            account.loading = None

    async def _read(self, account_id: str) -> Snapshot | None:
        """``None`` for an account that is empty or too large."""
        table, model = await self._nodes.get(), self._state.model()
        if table is None or model is None:
            return None
        condition = where(Eq("account_id", account_id))
        if not 0 < await table.count_rows(condition) <= self._config.rows:
            return None
        rows = await table.query().where(condition).select(list(COLUMNS)).to_arrow()
        return await asyncio.to_thread(Snapshot, rows, model, self._bm25) if len(rows) else None

    def _make_room(self, keep: str) -> None:
        """Let go of the accounts not asked for longest until the rest fits."""
        held = sum(len(account.snapshot) for account in self._known.values() if account.snapshot)
        for name, account in self._known.items():
            if held <= self._config.rows:
                break
            if account.snapshot and name != keep:
                held -= len(account.snapshot)
                account.snapshot = account.revision = None

    def _forget(self) -> None:
        while len(self._known) > _KNOWN:
            name, account = next(iter(self._known.items()))
            if account.loading:
                break
            del self._known[name]

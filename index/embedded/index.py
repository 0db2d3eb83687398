"""The embedded index as one object: what the stages and the ingest see of it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contracts.deadline import Deadline
from contracts.errors import ConfigError
from contracts.hits import Level, Relation
from contracts.ports import Embeddable, IndexStats, JournalEntry, JournalState, NodeMeta, Recalled, RecallQuery
from contracts.records import ModelRef
from index.embedded.config import EmbeddedConfig
from index.embedded.lock import WriterLock
from index.embedded.search import Search
from index.embedded.store import Store
from index.embedded.table import NodeTable
from index.embedded.writer import Writer

# A reader that finds a revision already replaced looks again; twice in a row is all but impossible.
_ATTEMPTS = 3


class EmbeddedIndex:
    """``SearchIndex``, ``ContentStore``, ``RelationStore``, ``IndexWriter`` and ``IngestJournal`` in one folder.

    Any number of processes may read while one writes. Make one with ``open``.
    """

    def __init__(self, path: Path, nodes: NodeTable, store: Store, config: EmbeddedConfig, lock: WriterLock | None):
        self._path = path
        self._nodes = nodes
        self._store = store
        self._search = Search(nodes, store, config)
        self._lock = lock
        self._writer = Writer(nodes, store, config) if lock else None

    @classmethod
    async def open(
        cls, path: str | Path, config: EmbeddedConfig | None = None, *, write: bool = False
    ) -> "EmbeddedIndex":
        """Open an index folder; one that does not exist becomes an empty index.

        Args:
            path: The folder.
            config: Settings; the defaults when left out.
            write: Take the folder's only writing place, and mend what a crash left.

        Raises:
            ConfigError: Another process writes there, or the folder is of another version of this product.
        """
        folder = Path(path)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        lock = WriterLock(folder / "writer.lock") if write else None
        try:
            store = await asyncio.to_thread(Store, folder / "strata.db")
            index = cls(folder, await NodeTable.connect(folder), store, config or EmbeddedConfig(), lock)
            if index._writer:
                await index._writer.recover()
        except BaseException:
            if lock:
                lock.release()
            raise
        return index

    async def close(self) -> None:
        """See ``ReadableIndex``; lets the next writer in."""
        if self._writer:
            await self._writer.finish()
        await self._search.close()
        self._nodes.close()
        await asyncio.to_thread(self._store.close)
        if self._lock:
            self._lock.release()

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        """See ``SearchIndex``; LanceDB can't be told to stop, so the deadline is the caller's to keep."""
        return await self._search.recall(queries)

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """See ``SearchIndex``."""
        return await self._search.meta(account_id, uris)

    async def revision(self, account_id: str) -> str:
        """See ``SearchIndex``."""
        return self._store.state.revision(account_id)

    async def model(self) -> ModelRef | None:
        """See ``SearchIndex``."""
        return self._store.state.model()

    async def read(self, account_id: str, uris: Sequence[str], level: Level) -> dict[str, str]:
        """See ``ContentStore``."""
        flag = {"L1": "has_overview", "L2": "has_content"}.get(level)
        if flag is None:
            return {}
        texts: dict[str, str] = {}
        left = set(uris)
        for _ in range(_ATTEMPTS):
            rows = await self._search.lookup(account_id, sorted(left), ("revision", "uri", flag))
            wanted = [(revision, uri) for revision, uri, has in rows if has]
            texts |= await asyncio.to_thread(self._store.texts, wanted, level)
            left = {uri for _, uri in wanted} - texts.keys()
            if not left:
                break
        return texts

    async def edges(self, account_id: str, uri: str, limit: int) -> list[Relation]:
        """See ``RelationStore``."""
        seen: int | None = None
        found: list[Relation] = []
        for _ in range(_ATTEMPTS):
            rows = await self._search.lookup(account_id, [uri], ("revision",))
            if not rows or rows[0][0] == seen:
                return found if rows else []
            (seen,) = rows[0]
            found = await asyncio.to_thread(self._store.edges, rows[0][0], uri, limit)
            if found:
                break
        return found

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        """See ``IndexWriter``."""
        return await asyncio.to_thread(self._store.documents, account_id, source_id)

    async def put(self, account_id: str, source_id: str, documents: Sequence[Embeddable], model: ModelRef) -> None:
        """See ``IndexWriter``."""
        await self._writing().put(account_id, source_id, documents, model)

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        """See ``IndexWriter``."""
        await self._writing().drop(account_id, source_id, document_ids)

    async def optimize(self) -> None:
        """See ``IndexWriter``."""
        await self._writing().optimize()

    async def record(
        self, account_id: str, source_id: str, document_ids: Sequence[str], state: JournalState, detail: str = ""
    ) -> None:
        """See ``IngestJournal``."""
        await self._writing().record(account_id, source_id, document_ids, state, detail)

    async def unfinished(self, account_id: str) -> list[JournalEntry]:
        """See ``IngestJournal``."""
        return await asyncio.to_thread(self._store.unfinished, account_id)

    async def stats(self) -> IndexStats:
        """See ``ReadableIndex``; reads two columns of all rows."""
        table = await self._search.table()
        nodes: dict[str, dict[str, int]] = {}
        if table is not None:
            rows = await table.query().select(["account_id", "kind"]).to_arrow()
            counts = Counter(zip(rows["account_id"].to_pylist(), rows["kind"].to_pylist(), strict=True))
            for (account_id, kind), count in sorted(counts.items()):
                nodes.setdefault(account_id, {})[kind] = count
        return IndexStats(nodes, await asyncio.to_thread(_size, self._path))

    def _writing(self) -> Writer:
        if self._writer is None:
            raise ConfigError("This index was opened for reading.", field="index", remedy="Open it with write=True.")
        return self._writer


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # A writer may be tidying up.
            total += file.stat().st_size
    return total

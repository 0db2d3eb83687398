"""The SQLite half of the embedded index: texts, relations, documents, statistics and the journal.

Texts belong to a *revision* of a document, a number used once; the LanceDB row of a node says which revision it shows.
So a commit of new rows there switches a document over as a whole, and never shows a node without its texts:

1. ``stage``: the new revisions' texts and relations, and the commit's intent, in one transaction;
2. one LanceDB commit (``writer``);
3. ``finish``: the documents' new state, the statistics' change, the old revisions' end, in one transaction.

A crash before 2 is undone by ``abandon``, one after it completed by ``finish``. Removing goes the same way, without
texts, and is always completed.
"""

import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from contracts.errors import ConfigError
from contracts.hits import Level, Relation
from contracts.ports import JournalEntry, JournalState
from contracts.records import Document, ModelRef
from index.bm25 import Statistics
from index.embedded import statistics
from index.embedded.state import StateReader, shown
from index.embedded.statistics import Delta
from index.text import Analysis

# Raised whenever stored terms or tables change their meaning.
FORMAT = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS documents (
    account TEXT NOT NULL, source TEXT NOT NULL, document TEXT NOT NULL, revision INTEGER NOT NULL,
    fingerprint TEXT NOT NULL, PRIMARY KEY (account, source, document)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents (
    revision INTEGER NOT NULL, uri TEXT NOT NULL, overview, content, PRIMARY KEY (revision, uri)
);
CREATE TABLE IF NOT EXISTS relations (
    revision INTEGER NOT NULL, uri TEXT NOT NULL, to_uri TEXT NOT NULL, type TEXT NOT NULL, weight REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS relations_from ON relations (revision, uri);
CREATE TABLE IF NOT EXISTS commits (id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS journal (
    account TEXT NOT NULL, source TEXT NOT NULL, document TEXT NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL,
    updated_at INTEGER NOT NULL, PRIMARY KEY (account, source, document)
) WITHOUT ROWID;
{statistics.SCHEMA}
PRAGMA user_version = {FORMAT};
COMMIT;
"""
_COMPRESS_FROM = 512
_TEXT = {"L1": "overview", "L2": "content"}


class Staged(msgspec.Struct, frozen=True):
    """A document in a commit: its new revision and fingerprint."""

    document_id: str
    revision: int = 0
    fingerprint: str = ""


class Commit(msgspec.Struct, frozen=True):
    """What a commit is about to change; kept until it is done."""

    account_id: str
    source_id: str
    removes: bool
    documents: list[Staged]
    changes: list[Delta]

    def revisions(self) -> list[int]:
        """The revisions it brings."""
        return [staged.revision for staged in self.documents]


class Store:
    """One SQLite file in WAL mode: one connection that reads, shared under a lock, and one that writes.

    All methods block, for less than a millisecond unless they carry texts; writing ones must not overlap.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._writer = _connect(path)
        (found,) = self._writer.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            self._writer.close()
            raise ConfigError(
                f"The index at {path.parent} was written by another version of this product.",
                field="index.path",
                remedy="Remove the folder and ingest again.",
            )
        if not found:
            self._writer.executescript(_SCHEMA)
        self._reader = _connect(path)
        self.state = StateReader(_connect(path))
        self._statistics = statistics.StatisticsReader(self._reader)

    def close(self) -> None:
        """Close both connections."""
        with self._lock:
            self._reader.close()
        self.state.close()
        self._writer.close()

    def texts(self, wanted: Sequence[tuple[int, str]], level: Level) -> dict[str, str]:
        """Overviews (L1) or contents (L2) by URI, for pairs of revision and URI; nodes without are left out."""
        column = _TEXT.get(level)
        if column is None or not wanted:
            return {}
        marks = ", ".join(["(?, ?)"] * len(wanted))
        rows = self._read(
            f"SELECT uri, {column} FROM contents WHERE (revision, uri) IN (VALUES {marks}) AND {column} IS NOT NULL",  # noqa: S608
            [part for pair in wanted for part in pair],
        )
        return {uri: _unpack(text) for uri, text in rows}

    def edges(self, revision: int, uri: str, limit: int) -> list[Relation]:
        """Relations of a node, heaviest first."""
        rows = self._read(
            "SELECT to_uri, type, weight FROM relations WHERE revision = ? AND uri = ?"
            " ORDER BY weight DESC, rowid LIMIT ?",
            (revision, uri, limit),
        )
        return [Relation(*row) for row in rows]

    def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        """Fingerprint by document id."""
        sql = "SELECT document, fingerprint FROM documents WHERE account = ? AND source = ?"
        return dict(self._read(sql, (account_id, source_id)))

    def statistics(self, account_id: str, kind: str, query: Analysis) -> Statistics:
        """Term statistics of an account and kind of node, for the terms of a query."""
        with self._lock:
            return self._statistics.read(account_id, kind, query)

    def unfinished(self, account_id: str) -> list[JournalEntry]:
        """Journal entries that are not ``stored``, oldest first."""
        rows = self._read(
            "SELECT source, document, state, detail, updated_at FROM journal"
            " WHERE account = ? AND state <> 'stored' ORDER BY updated_at, source, document",
            (account_id,),
        )
        return [JournalEntry(*row) for row in rows]

    def record(
        self, account_id: str, source_id: str, document_ids: Iterable[str], state: JournalState, detail: str = ""
    ) -> None:
        """Note that documents reached a state."""
        with self._transaction():
            self._note(account_id, source_id, document_ids, state, detail)

    def next_revision(self) -> int:
        """The first number never used for a revision."""
        rows = self._writer.execute("SELECT value FROM meta WHERE key = 'revision'").fetchall()
        return int(rows[0][0]) + 1 if rows else 1

    def pending(self) -> list[tuple[int, Commit]]:
        """Commits begun and not done, oldest first."""
        rows = self._writer.execute("SELECT id, body FROM commits ORDER BY id").fetchall()
        return [(number, msgspec.msgpack.decode(body, type=Commit)) for number, body in rows]

    def stage(self, commit: Commit, documents: Sequence[Document], model: ModelRef | None) -> int:
        """Begin a commit: store its intent and what the new revisions carry; returns its number."""
        with self._transaction():
            body = msgspec.msgpack.encode(commit)
            self._set(shown(commit.account_id), "")
            ((number,),) = self._writer.execute(
                "INSERT INTO commits (body) VALUES (?) RETURNING id", (body,)
            ).fetchall()
            if commit.removes:
                return int(number)
            pairs = list(zip(commit.revisions(), documents, strict=True))
            self._writer.executemany(
                "INSERT INTO contents VALUES (?, ?, ?, ?)",
                (
                    (revision, node.uri, _pack(node.overview), _pack(node.content))
                    for revision, document in pairs
                    for node in document.nodes
                    if node.overview or node.content
                ),
            )
            self._writer.executemany(
                "INSERT INTO relations VALUES (?, ?, ?, ?, ?)",
                (
                    (revision, node.uri, edge.to_uri, edge.relation_type, edge.weight)
                    for revision, document in pairs
                    for node in document.nodes
                    for edge in node.relations
                ),
            )
            self._set("revision", str(max(commit.revisions())))
            self._set("model", msgspec.json.encode(model).decode())
            self._note(commit.account_id, commit.source_id, (s.document_id for s in commit.documents), "embedded")
        return int(number)

    def finish(self, number: int, commit: Commit) -> None:
        """End a commit whose rows show: old revisions go, documents and statistics follow."""
        keys = [(commit.account_id, commit.source_id, staged.document_id) for staged in commit.documents]
        with self._transaction():
            for key in keys:
                old = self._writer.execute(
                    "DELETE FROM documents WHERE account = ? AND source = ? AND document = ? RETURNING revision", key
                ).fetchall()
                self._purge(revision for (revision,) in old)
            if commit.removes:
                self._writer.executemany("DELETE FROM journal WHERE account = ? AND source = ? AND document = ?", keys)
            else:
                self._writer.executemany(
                    "INSERT INTO documents VALUES (?, ?, ?, ?, ?)",
                    (
                        (*key, staged.revision, staged.fingerprint)
                        for key, staged in zip(keys, commit.documents, strict=True)
                    ),
                )
                self._note(commit.account_id, commit.source_id, (document for _, _, document in keys), "stored")
            statistics.apply(self._writer, commit.account_id, commit.changes)
            self._set(shown(commit.account_id), uuid4().hex)
            self._writer.execute("DELETE FROM commits WHERE id = ?", (number,))

    def abandon(self, number: int, commit: Commit) -> None:
        """Undo a commit whose rows never showed."""
        with self._transaction():
            self._purge(commit.revisions())
            self._set(shown(commit.account_id), uuid4().hex)
            self._writer.execute("DELETE FROM commits WHERE id = ?", (number,))

    def optimize(self) -> None:
        """Give freed pages back and refresh the planner's statistics."""
        self._writer.execute("PRAGMA incremental_vacuum").fetchall()
        self._writer.execute("PRAGMA optimize").fetchall()
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _read(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._reader.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._writer.execute("ROLLBACK")
            raise
        self._writer.execute("COMMIT")

    def _set(self, key: str, value: str) -> None:
        self._writer.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _note(
        self, account_id: str, source_id: str, document_ids: Iterable[str], state: JournalState, detail: str = ""
    ) -> None:
        now = int(time.time() * 1000)
        self._writer.executemany(
            "INSERT OR REPLACE INTO journal VALUES (?, ?, ?, ?, ?, ?)",
            ((account_id, source_id, document, state, detail, now) for document in document_ids),
        )

    def _purge(self, revisions: Iterable[int]) -> None:
        for revision in revisions:
            self._writer.execute("DELETE FROM contents WHERE revision = ?", (revision,))
            self._writer.execute("DELETE FROM relations WHERE revision = ?", (revision,))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    # Full: a staged text must be on disk before LanceDB shows its row, even when the machine goes down.
    connection.executescript("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
    return connection


def _pack(text: str) -> str | bytes | None:
    if len(text) < _COMPRESS_FROM:
        return text or None
    return zlib.compress(text.encode(), level=1)


def _unpack(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else zlib.decompress(stored).decode()

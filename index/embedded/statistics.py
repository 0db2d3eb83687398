"""Term statistics per account, kind of node and field, kept exact by counting in and out what each commit changes."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from index.bm25 import FieldStatistics, Statistics
from index.text import Analysis

SCHEMA = """
CREATE TABLE IF NOT EXISTS groups (
    id INTEGER PRIMARY KEY, account TEXT NOT NULL, kind TEXT NOT NULL, field TEXT NOT NULL,
    documents INTEGER NOT NULL, tokens INTEGER NOT NULL, UNIQUE (account, kind, field)
);
CREATE TABLE IF NOT EXISTS terms (
    group_id INTEGER NOT NULL, term TEXT NOT NULL, frequency INTEGER NOT NULL, PRIMARY KEY (group_id, term)
) WITHOUT ROWID;
"""
_MAX_CACHED = 200_000


class Terms(NamedTuple):
    """The terms of one node: its kind, and its words and bigrams joined by white space."""

    kind: str
    words: str
    bigrams: str


class Delta(msgspec.Struct):
    """By how much a commit changes the statistics of one kind and field."""

    kind: str
    field: str
    documents: int = 0
    tokens: int = 0
    frequencies: dict[str, int] = {}

    def add(self, text: str, sign: int) -> None:
        """Count one node in (``sign`` 1) or out (-1)."""
        tokens = text.split()
        self.documents += sign
        self.tokens += sign * len(tokens)
        frequencies = self.frequencies
        for term in set(tokens):
            frequencies[term] = frequencies.get(term, 0) + sign


def deltas(added: Iterable[Terms], removed: Iterable[Terms]) -> list[Delta]:
    """What changes when nodes come and go."""
    found: dict[tuple[str, str], Delta] = {}
    for nodes, sign in ((added, 1), (removed, -1)):
        for kind, words, bigrams in nodes:
            for field, text in (("words", words), ("bigrams", bigrams)):
                if text:
                    found.setdefault((kind, field), Delta(kind, field)).add(text, sign)
    return list(found.values())


def apply(connection: sqlite3.Connection, account: str, changes: Sequence[Delta]) -> None:
    """Add deltas to the stored statistics, within the caller's transaction."""
    for change in changes:
        ((group,),) = connection.execute(
            "INSERT INTO groups (account, kind, field, documents, tokens) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET documents = documents + excluded.documents, tokens = tokens + excluded.tokens"
            " RETURNING id",
            (account, change.kind, change.field, change.documents, change.tokens),
        ).fetchall()
        connection.executemany(
            "INSERT INTO terms VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET frequency = frequency + excluded.frequency",
            ((group, term, by) for term, by in change.frequencies.items() if by),
        )
        connection.executemany(
            "DELETE FROM terms WHERE group_id = ? AND term = ? AND frequency = 0",
            ((group, term) for term, by in change.frequencies.items() if by < 0),
        )


class _Group(NamedTuple):
    id: int
    documents: int
    tokens: int
    frequencies: dict[str, int]


_NOTHING = _Group(0, 0, 0, {})


class StatisticsReader:
    """Reads statistics through a cache that another connection's commit empties. Not safe for threads by itself."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version: Any = None
        self._cached = 0
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def read(self, account: str, kind: str, query: Analysis) -> Statistics:
        """The statistics that scoring ``query`` against nodes of an account and kind needs."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version or self._cached > _MAX_CACHED:
            self._groups.clear()
            self._version, self._cached = version, 0
        return Statistics(
            self._field(account, kind, "words", query.words), self._field(account, kind, "bigrams", query.bigrams)
        )

    def _field(self, account: str, kind: str, field: str, terms: Sequence[str]) -> FieldStatistics:
        if not terms:
            return FieldStatistics(0, 0, {})
        group = self._groups.get((account, kind, field))
        if group is None:
            found = self._connection.execute(
                "SELECT id, documents, tokens FROM groups WHERE account = ? AND kind = ? AND field = ?",
                (account, kind, field),
            ).fetchone()
            group = _Group(found[0], found[1], found[2], {}) if found else _NOTHING
            self._groups[account, kind, field] = group
        missing = [term for term in dict.fromkeys(terms) if term not in group.frequencies]
        if missing and group.id:
            marks = ", ".join("?" * len(missing))
            rows = self._connection.execute(
                f"SELECT term, frequency FROM terms WHERE group_id = ? AND term IN ({marks})",  # noqa: S608
                (group.id, *missing),
            )
            group.frequencies.update(dict.fromkeys(missing, 0))
            group.frequencies.update(rows.fetchall())
            self._cached += len(missing)
        return FieldStatistics(group.documents, group.tokens, group.frequencies)

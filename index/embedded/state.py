"""What a reader must know before each read; cheap enough (some 5 µs) to be asked on the event loop."""

import sqlite3
import threading
from typing import Any
from uuid import uuid4

import msgspec

from contracts.records import ModelRef

_MAX_CACHED = 10_000


def shown(account_id: str) -> str:
    """Of ``meta``: the key of the name of what an account shows; its value is empty while that changes."""
    return f"shown:{account_id}"


class StateReader:
    """Reads through a cache that any other connection's commit empties."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._version: Any = None
        self._cached: dict[str, str | None] = {}
        self._model: ModelRef | None = None

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()

    def model(self) -> ModelRef | None:
        """The model of the vectors; ``None`` while there is no document."""
        with self._lock:
            self._refresh()
            return self._model

    def revision(self, account_id: str) -> str:
        """Names what of an account shows; while a commit of its own is under way no two calls get the same name."""
        key = shown(account_id)
        with self._lock:
            self._refresh()
            if key not in self._cached:
                rows = self._connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchall()
                self._cached[key] = rows[0][0] if rows else None
            found = self._cached[key]
        return "" if found is None else found or uuid4().hex

    def _refresh(self) -> None:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version == self._version and len(self._cached) < _MAX_CACHED:
            return
        # Read after the version: what is committed in between is seen early, and read once more.
        self._cached.clear()
        rows = self._connection.execute(
            "SELECT value FROM meta WHERE key = 'model' AND EXISTS (SELECT 1 FROM documents)"
        ).fetchall()
        self._model = msgspec.json.decode(rows[0][0], type=ModelRef) if rows else None
        self._version = version

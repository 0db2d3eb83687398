"""API keys of releases that kept them in a file of their own: taken over into the database, once.

The file stays, marked as taken over, and an older release that still runs can go on with it; what that changes in it
from then on is not taken over.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from contracts.errors import ConfigError
from deployments.identity.keys import KeyStore, StoredKey

# SQLite's user_version of a file that was taken over; older releases leave it at 0.
_TAKEN = 1
_PATIENCE_S = 5.0
_KEYS = """
SELECT key_id, account_id, role, user_space, agent_space, spaces, created_at, expires_at, revoked_at,
    coalesce(used_at, 0), hash
FROM keys LEFT JOIN uses USING (key_id)
"""


async def take_over(path: Path, keys: KeyStore) -> None:
    """Bring the keys of an old file into the database, unless that was done before.

    Args:
        path: The file; most often there is none.
        keys: Where they go.

    Raises:
        ConfigError: The file can't be read.
        DatabaseDown: The keys can't be stored now; the next call tries again.
    """
    if not await asyncio.to_thread(path.exists):
        return
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)) as db:
            # Held until all are stored: no other process changes a key in between, or takes them over too.
            db.execute("BEGIN IMMEDIATE")
            if db.execute("PRAGMA user_version").fetchone() == (_TAKEN,):
                return
            await keys.adopt(StoredKey.of(row) for row in db.execute(_KEYS))
            db.execute(f"PRAGMA user_version = {_TAKEN}")
            db.execute("COMMIT")
    except sqlite3.Error as error:
        raise ConfigError(
            f"The API keys in {path} can't be taken over into the database: {error}.",
            field="data_dir",
            remedy="Start again; move the file away if none of its keys is needed.",
        ) from None

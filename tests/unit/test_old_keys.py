"""The keys that older releases kept in a file of their own go on to hold, and the revoked ones stay revoked."""

import asyncio
import hashlib
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.errors import ConfigError, DatabaseDown
from deployments.backends import open_database
from deployments.identity.caller import Refused
from deployments.identity.keys import KeyStore
from deployments.identity.old_keys import take_over
from deployments.identity.opening import context_of, local_keys, open_keys
from deployments.settings import Settings, parse

# As those releases made it.
SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    key_id TEXT PRIMARY KEY, hash BLOB NOT NULL, account_id TEXT NOT NULL, role TEXT NOT NULL,
    user_space TEXT NOT NULL, agent_space TEXT NOT NULL, spaces TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, revoked_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (key_id TEXT PRIMARY KEY, used_at INTEGER NOT NULL) WITHOUT ROWID;
"""
OPEN = """
import asyncio, sys
from deployments.identity.opening import context_of
from deployments.settings import parse

asyncio.run(context_of(parse({"data_dir": sys.argv[1]}), sys.argv[2], "r"))
"""
TOKEN, REVOKED, EXPIRED = (f"strata_{number:012x}_{'s' * 43}" for number in range(3))


def id_of(token: str) -> str:
    return token.split("_")[1]


class OldFile:
    """A file of an older release, which has it open."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir()
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.executescript(SCHEMA)

    def add(self, token: str, *, expires_at: int = 0, revoked_at: int = 0) -> None:
        digest = hashlib.sha256(token.split("_", 2)[2].encode()).digest()
        row = (id_of(token), digest, "acme", "agent", "user:ann", "agent:bot", "team project:x", 5)
        self.db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, expires_at, revoked_at))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return parse({"data_dir": str(tmp_path / "data")})


@pytest.fixture
async def old(settings: Settings) -> AsyncIterator[OldFile]:
    file = OldFile(settings.old_keys_path)
    file.add(TOKEN)
    file.db.execute("INSERT INTO uses VALUES (?, ?)", (id_of(TOKEN), 7))
    file.add(REVOKED, revoked_at=6)
    file.add(EXPIRED, expires_at=6)
    yield file
    file.db.close()


async def reason(settings: Settings, token: str) -> str:
    with pytest.raises(Refused) as caught:
        await context_of(settings, token, "r")
    return caught.value.reason


async def test_an_old_key_holds_with_all_that_is_known_of_it(settings: Settings, old: OldFile) -> None:
    ctx = await context_of(settings, TOKEN, "r")
    assert (ctx.account_id, ctx.role, ctx.user_space, ctx.agent_space) == ("acme", "agent", "user:ann", "agent:bot")
    assert ctx.spaces == ("team", "project:x")
    async with local_keys(settings) as keys:
        listed = {key.key_id: (key.created_at, key.used_at) for key in await keys.list()}
    assert listed == {id_of(TOKEN): (5, 7), id_of(REVOKED): (5, 0), id_of(EXPIRED): (5, 0)}


async def test_an_ingress_lets_an_old_key_in(settings: Settings, old: OldFile) -> None:
    database = await open_database(settings)
    try:
        keys = await open_keys(settings, database)
        assert (await keys.authenticate(TOKEN)).account_id == "acme"
        with pytest.raises(Refused):
            await keys.authenticate(REVOKED)
    finally:
        await database.close()


async def test_what_was_revoked_or_expired_stays_so(settings: Settings, old: OldFile) -> None:
    assert await reason(settings, REVOKED) == "key_revoked"
    assert await reason(settings, EXPIRED) == "key_expired"


async def test_what_is_revoked_later_does_not_come_back(settings: Settings, old: OldFile) -> None:
    async with local_keys(settings) as keys:
        await keys.revoke(id_of(TOKEN))
    assert await reason(settings, TOKEN) == "key_revoked"


async def test_a_file_is_taken_over_once_even_into_a_new_database(settings: Settings, old: OldFile) -> None:
    """A key that was revoked in a database which is gone must not come back from the file."""
    async with local_keys(settings) as keys:
        await keys.revoke(id_of(TOKEN))
    for file in settings.data_dir.glob("strata.db*"):
        file.unlink()
    assert await reason(settings, TOKEN) == "key_unknown"


async def test_an_older_release_can_go_on_with_the_file(settings: Settings, old: OldFile) -> None:
    await context_of(settings, TOKEN, "r")
    found = old.db.execute("SELECT account_id, revoked_at FROM keys WHERE key_id = ?", (id_of(TOKEN),)).fetchone()
    assert found == ("acme", 0)
    old.add(f"strata_{9:012x}_x")


async def test_processes_that_start_at_once_take_over_one_after_the_other(settings: Settings, old: OldFile) -> None:
    command = (sys.executable, "-c", OPEN, str(settings.data_dir), TOKEN)
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(3)]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    async with local_keys(settings) as keys:
        assert len(await keys.list()) == 3


async def test_what_could_not_be_stored_is_taken_over_by_the_next_start(settings: Settings, old: OldFile) -> None:
    class FakeStore:
        async def adopt(self, keys: object) -> None:
            raise DatabaseDown("It can't be asked.")

    with pytest.raises(DatabaseDown):
        await take_over(settings.old_keys_path, FakeStore())  # type: ignore[arg-type]
    assert await context_of(settings, TOKEN, "r")


async def test_a_file_that_can_not_be_read_stops_the_start_and_is_named(
    settings: Settings, key_store: KeyStore
) -> None:
    settings.old_keys_path.write_bytes(b"no database at all, but long enough to be looked at as one" * 20)
    with pytest.raises(ConfigError, match=r"keys\.db"):
        await take_over(settings.old_keys_path, key_store)


async def test_without_an_old_file_none_is_made(settings: Settings) -> None:
    async with local_keys(settings) as keys:
        token, _ = await keys.create("acme", expires_at=int(time.time() * 1000) + 60_000)
    assert await context_of(settings, token, "r")
    assert not settings.old_keys_path.exists()

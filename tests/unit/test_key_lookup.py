"""How an ingress looks up keys: what is remembered, for how long, and that no stranger can fill the memory."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from contracts.errors import DatabaseDown
from database.target import Target
from deployments.identity import lookup
from deployments.identity.keys import ApiKey, KeyStore, StoredKey
from deployments.identity.lookup import CachedLookup, FileLookup
from tests.support.waiting import until


class FakeKeys:
    """A database whose answers, troubles and pace the test decides."""

    def __init__(self) -> None:
        self.now = 0.0
        self.keys: dict[str, StoredKey] = {}
        self.asked: list[set[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    def add(self, *key_ids: str, account_id: str = "acme") -> None:
        for key_id in key_ids:
            self.keys[key_id] = StoredKey(ApiKey(key_id, account_id, "user", "", "", (), 0), b"")

    async def find(self, key_ids: Collection[str]) -> Mapping[str, StoredKey]:
        self.asked.append(set(key_ids))
        found = {key_id: self.keys[key_id] for key_id in key_ids if key_id in self.keys}
        await self.open.wait()
        if self.error:
            raise self.error
        return found


@pytest.fixture
def keys() -> FakeKeys:
    return FakeKeys()


def cached(keys: FakeKeys, seconds: float = 1.0) -> CachedLookup:
    return CachedLookup(keys.find, seconds, lambda: keys.now)


async def test_an_answer_holds_for_its_time_and_no_longer(keys: FakeKeys) -> None:
    keys.add("a")
    find = cached(keys)
    first = await find("a")
    assert first
    keys.add("a", account_id="changed")
    keys.now = 0.99
    assert await find("a") == first
    keys.now = 1.0
    assert await find("a") == keys.keys["a"]
    assert keys.asked == [{"a"}, {"a"}]


async def test_its_time_is_counted_from_when_it_was_asked_for(keys: FakeKeys) -> None:
    """A revocation shows that much later, however slow the database is."""
    keys.add("a")
    find = cached(keys)
    keys.open.clear()
    waiting = asyncio.create_task(find("a"))
    await until(lambda: keys.asked)
    keys.now = 1.0
    keys.open.set()
    assert await waiting
    await find("a")
    assert len(keys.asked) == 2


async def test_that_there_is_no_such_key_holds_as_long(keys: FakeKeys) -> None:
    find = cached(keys)
    assert await find("a") is None
    keys.add("a")
    keys.now = 0.5
    assert await find("a") is None
    keys.now = 1.0
    assert await find("a")


async def test_with_no_time_each_request_asks(keys: FakeKeys) -> None:
    keys.add("a")
    find = cached(keys, 0)
    assert [await find("a"), await find("a")] == [keys.keys["a"]] * 2
    del keys.keys["a"]
    assert await find("a") is None
    assert len(keys.asked) == 3


async def test_requests_that_come_while_a_query_runs_share_it_or_the_next(keys: FakeKeys) -> None:
    keys.add("a", "b")
    find = cached(keys)
    keys.open.clear()
    waiting = [asyncio.create_task(find("a"))]
    await until(lambda: keys.asked)
    waiting += [asyncio.create_task(find(key_id)) for key_id in ("a", "b", "c", "b") * 10]
    await asyncio.sleep(0)
    keys.open.set()
    found = await asyncio.gather(*waiting)
    assert found[:5] == [keys.keys["a"], keys.keys["a"], keys.keys["b"], None, keys.keys["b"]]
    assert keys.asked == [{"a"}, {"b", "c"}]


async def test_one_that_gives_up_takes_no_other_with_it(keys: FakeKeys) -> None:
    keys.add("a")
    find = cached(keys)
    keys.open.clear()
    gone, stays = asyncio.create_task(find("a")), asyncio.create_task(find("a"))
    await until(lambda: keys.asked)
    gone.cancel()
    keys.open.set()
    assert await stays == keys.keys["a"]


async def test_made_up_ids_fill_no_memory_and_push_out_no_key(keys: FakeKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_MOST", 10)
    keys.add("a")
    find = cached(keys)
    await find("a")
    for number in range(1000):
        await find(f"x{number}")
    asked = len(keys.asked)
    assert await find("a")
    assert len(keys.asked) == asked
    assert sum(len(entries) for entries in (find._known, find._unknown)) <= 11


async def test_many_keys_fill_no_memory_either(keys: FakeKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_MOST", 10)
    keys.add(*map(str, range(50)))
    find = cached(keys)
    assert all([await find(key_id) for key_id in keys.keys])
    assert len(find._known) == 10


async def test_without_a_database_what_is_remembered_holds_and_nothing_else_does(keys: FakeKeys) -> None:
    keys.add("a", "b")
    find = cached(keys)
    await find("a")
    keys.error = DatabaseDown("It can't be asked.")
    assert await find("a")
    for key_id in ("b", "c"):
        with pytest.raises(DatabaseDown):
            await find(key_id)
    keys.now = 1.0
    with pytest.raises(DatabaseDown):
        await find("a")
    keys.error = None
    assert await find("a")


async def test_a_database_that_hangs_is_given_up_and_asked_again(
    keys: FakeKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_PATIENCE_S", 0.05)
    keys.add("a")
    find = cached(keys)
    keys.open.clear()
    for answer in await asyncio.gather(find("a"), find("a"), return_exceptions=True):
        assert isinstance(answer, DatabaseDown)
    keys.open.set()
    assert await find("a")


async def test_a_file_that_can_not_be_read_is_a_database_that_is_down(tmp_path: Path, key_store: KeyStore) -> None:
    _, key = await key_store.create("acme")
    find = FileLookup(Target.file(tmp_path / "strata.db"))
    with pytest.raises(DatabaseDown):
        await find(key.key_id)
    (tmp_path / "strata.db").write_bytes(b"no database at all, but long enough to be looked at as one" * 20)
    with pytest.raises(DatabaseDown):
        await find(key.key_id)
    (tmp_path / "strata.db").unlink()
    (tmp_path / "data" / "strata.db").rename(tmp_path / "strata.db")
    (tmp_path / "data" / "strata.db-wal").rename(tmp_path / "strata.db-wal")
    found = await find(key.key_id)
    assert found
    assert found.key == key
    find.close()


async def test_the_file_is_for_its_owner_only_and_holds_no_secret(tmp_path: Path, key_store: KeyStore) -> None:
    token, _ = await key_store.create("acme")
    files = [file for file in (tmp_path / "data").iterdir() if file.name.startswith("strata.db")]
    assert files
    assert not any(file.stat().st_mode & 0o077 for file in files)
    assert not any(token.split("_", 2)[2].encode() in file.read_bytes() for file in files)

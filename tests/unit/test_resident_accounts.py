"""Accounts in memory: which are, and that none answers for what it does not show any more."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contracts.filters import Eq
from contracts.ports import RecallQuery
from index.embedded.config import EmbeddedConfig, ResidentConfig
from index.embedded.index import EmbeddedIndex
from index.embedded.resident.accounts import Accounts
from tests.contract.corpus import MODEL, SOURCE, document, node


def accounts(index: EmbeddedIndex) -> Accounts:
    return index._search.accounts


async def opened(path: Path, **resident: float) -> EmbeddedIndex:
    config = EmbeddedConfig(resident=ResidentConfig.model_validate(resident))
    return await EmbeddedIndex.open(path, config, write=True)


@pytest.fixture
async def index(tmp_path: Path) -> AsyncIterator[EmbeddedIndex]:
    index = await opened(tmp_path, rows=3, after_reads=2)
    yield index
    await index.close()


async def put(index: EmbeddedIndex, account_id: str, *names: str) -> None:
    await index.put(account_id, SOURCE, [document(name, node(name, f"harbour {name}")) for name in names], MODEL)


async def found(index: EmbeddedIndex, account_id: str, text: str = "harbour") -> set[str]:
    (answer,) = await index.recall([RecallQuery(text, None, Eq("account_id", account_id), 10)])
    return {hit.uri for hit in answer.hits}


async def test_an_account_comes_into_memory_once_it_was_asked_for_often_enough(index: EmbeddedIndex) -> None:
    await put(index, "acme", "a")
    assert accounts(index).get("acme") is None
    account = accounts(index)._known["acme"]
    assert account.loading is None
    await found(index, "acme")
    # It may be there already: reading it goes on beside the recall.
    if account.loading:
        await account.loading
    assert accounts(index).get("acme") is not None


async def test_an_account_that_was_written_is_not_answered_from_memory_until_it_is_read_again(
    index: EmbeddedIndex,
) -> None:
    await put(index, "acme", "a")
    await accounts(index).ready("acme")
    assert accounts(index).get("acme") is not None
    await put(index, "acme", "b")
    assert accounts(index).get("acme") is None
    on_disk = await found(index, "acme")
    await accounts(index).ready("acme")
    assert on_disk == await found(index, "acme") and len(on_disk) == 2


async def test_writes_of_another_account_leave_one_in_memory(index: EmbeddedIndex) -> None:
    await put(index, "acme", "a")
    await accounts(index).ready("acme")
    await put(index, "rival", "a")
    assert accounts(index).get("acme") is not None


async def test_the_accounts_asked_for_longest_ago_make_room(index: EmbeddedIndex) -> None:
    for name in ("one", "two", "three"):
        await put(index, name, "a", "b")
        await accounts(index).ready(name)
    assert [name for name in ("one", "two", "three") if accounts(index).get(name)] == ["three"]
    assert await found(index, "one")


async def test_an_account_that_is_too_large_stays_on_disk_and_is_not_counted_again(index: EmbeddedIndex) -> None:
    await put(index, "acme", "a", "b", "c", "d")
    await accounts(index).ready("acme")
    assert accounts(index).get("acme") is None and accounts(index).get("acme") is None
    assert accounts(index)._known["acme"].loading is None
    assert len(await found(index, "acme")) == 4


async def test_with_no_rows_allowed_nothing_is_held(tmp_path: Path) -> None:
    index = await opened(tmp_path, rows=0)
    await put(index, "acme", "a")
    for _ in range(3):
        assert await found(index, "acme")
    assert not accounts(index)._known
    await index.close()


async def test_an_empty_account_is_known_to_be_empty_until_something_is_put_there(index: EmbeddedIndex) -> None:
    await put(index, "rival", "a")
    await accounts(index).ready("acme")
    assert await found(index, "acme") == set()
    await put(index, "acme", "a")
    await accounts(index).ready("acme")
    assert accounts(index).get("acme") is not None


async def test_what_is_written_while_an_account_is_read_is_not_missed(
    index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(index, "acme", "a")
    read = accounts(index)._read

    async def slow(account_id: str) -> object:
        snapshot = await read(account_id)
        monkeypatch.undo()
        await put(index, "acme", "b")
        return snapshot

    monkeypatch.setattr(accounts(index), "_read", slow)
    await accounts(index).ready("acme")
    assert len(await found(index, "acme")) == 2


async def test_a_failure_to_read_leaves_the_disk_to_answer(
    index: EmbeddedIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: str) -> object:
        raise RuntimeError("secret query text")

    await put(index, "acme", "a")
    monkeypatch.setattr(accounts(index), "_read", broken)
    for _ in range(4):
        assert await found(index, "acme")
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text

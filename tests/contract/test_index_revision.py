"""The name of what an account shows, on every backend: another one after each write that shows (R9)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.conftest import Backend, Index
from tests.contract.corpus import ACCOUNT, MODEL, SOURCE, document, node
from tests.contract.tenants import names


async def test_each_write_that_shows_gives_another_name_and_a_look_gives_the_same(index: Index) -> None:
    seen = [await index.revision(ACCOUNT)]

    async def looked() -> None:
        seen.append(await index.revision(ACCOUNT))
        await index.meta(ACCOUNT, ["strata://shared/a"])
        assert await index.revision(ACCOUNT) == seen[-1]

    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "one"))], MODEL)
    await looked()
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "two"), fingerprint="2")], MODEL)
    await looked()
    await index.put(ACCOUNT, "other source", [document("e", node("b", "three"))], MODEL)
    await looked()
    await index.drop(ACCOUNT, SOURCE, ["d"])
    await looked()
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "one"))], MODEL)
    await looked()
    assert len(set(seen)) == len(seen) == 6


async def test_what_others_write_changes_nothing(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "one"))], MODEL)
    before = await index.revision(ACCOUNT)
    await index.put("rival", SOURCE, [document("d", node("a", "one"))], MODEL)
    await index.drop("rival", SOURCE, ["d"])
    await index.record(ACCOUNT, SOURCE, ["e"], "parsed")
    await index.optimize()
    assert await index.revision(ACCOUNT) == before


async def test_a_reader_sees_the_writes_of_another_process(backend: Backend, index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "one"))], MODEL)
    reader = await backend.reader(index)
    seen = [await reader.revision(ACCOUNT)]
    await index.put(ACCOUNT, SOURCE, [document("e", node("b", "two"))], MODEL)
    seen.append(await reader.revision(ACCOUNT))
    assert await reader.meta(ACCOUNT, ["strata://shared/b"])
    await index.drop(ACCOUNT, SOURCE, ["e"])
    seen.append(await reader.revision(ACCOUNT))
    assert not await reader.meta(ACCOUNT, ["strata://shared/b"])
    assert len(set(seen)) == 3
    assert await index.revision(ACCOUNT) == seen[-1]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.sampled_from("ab")), max_size=6))
async def test_no_name_comes_again(shared_index: Index, steps: list[tuple[str, str]]) -> None:
    account, seen = next(names), []
    for number, (step, name) in enumerate(steps):
        if step == "put":
            made = document(name, node(name, "text"), fingerprint=str(number))
            await shared_index.put(account, SOURCE, [made], MODEL)
        else:
            await shared_index.drop(account, SOURCE, [name])
        seen.append(await shared_index.revision(account))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("backend", ["embedded"], indirect=True)
async def test_while_a_commit_is_under_way_nothing_counts_as_known(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may show already when its name does not: what is found meanwhile must not be remembered."""
    seen: list[str] = []
    store = index._store  # type: ignore[attr-defined]
    finish = store.finish

    def watched(*args: object) -> None:
        seen.extend(store.state.revision(ACCOUNT) for _ in range(2))
        finish(*args)

    monkeypatch.setattr(store, "finish", watched)
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "one"))], MODEL)
    seen += [await index.revision(ACCOUNT)] * 2
    assert len(set(seen)) == 3 and all(seen)

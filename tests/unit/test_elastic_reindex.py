"""Parts of a re-embedding that need no cluster."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.records import ModelRef
from index.elastic.bulk import Bulk, Operation, WriteBlocked
from index.elastic.compare import SPACE, bounds, differences, in_batches, ranges
from index.elastic.config import WriteConfig
from index.elastic.mapping import Meta, digest
from index.elastic.state import Owner, now
from index.elastic.turn import Holder
from index.elastic.versions import Version

keys = st.text().map(digest)


@given(st.integers(0, 10**7), keys)
def test_every_key_lies_in_exactly_one_range(records: int, key: str) -> None:
    found = ranges(records)
    assert (found[0][0], found[-1][1]) == (0, SPACE)
    assert all(first < end == following for (first, end), (following, _) in pairwise(found))
    within = [each for each in (bounds(*pair) for pair in found) if each["gte"] <= key < each.get("lt", "g")]
    assert len(within) == 1


@given(st.integers(1, 10**7))
def test_a_range_holds_some_thousand_keys(records: int) -> None:
    assert records / len(ranges(records)) <= 4_000
    assert len(ranges(records)) <= records / 4_000 + 1


@given(st.integers(1, SPACE - 1))
def test_a_key_on_the_border_of_two_ranges_belongs_to_the_second(border: int) -> None:
    key = f"{border:08x}" + "0" * 24
    assert not key < bounds(0, border)["lt"]
    assert key >= bounds(border, SPACE)["gte"]


@given(st.lists(st.tuples(st.sets(keys), st.sets(keys))), st.integers(1, 5))
async def test_batches_hold_every_key_once_and_none_is_larger_than_asked(
    found: list[tuple[set[str], set[str]]], size: int
) -> None:
    async def differences() -> AsyncIterator[tuple[set[str], set[str]]]:
        for each in found:
            yield each

    batches = [each async for each in in_batches(differences(), size)]
    for side in (0, 1):
        expected = sorted(key for pair in found for key in pair[side])
        assert sorted(key for batch in batches for key in batch[side]) == expected
    assert all(max(map(len, batch)) <= size for batch in batches)
    # All but the last are full on one side.
    assert all(max(map(len, batch)) == size for batch in batches[:-1])


def test_writes_name_an_alias_of_their_own_for_each_version() -> None:
    version = Version("my-nodes-index-nodes-000012", Meta(ModelRef("m", "1", 8), routed=True), serving=True)
    assert version.number == 12
    assert version.write_alias == "my-nodes-index-write-000012"


def test_an_operation_that_demands_an_alias_makes_no_index() -> None:
    (line,) = Operation("delete", "p-write-000001", "id", alias=True).lines().splitlines()
    assert json.loads(line) == {"delete": {"_index": "p-write-000001", "_id": "id", "require_alias": True}}


class FakeBulk:
    """A cluster in which what is written to is gone."""

    def options(self, **options: Any) -> "FakeBulk":
        return self

    async def bulk(self, **request: Any) -> Any:
        return {"errors": True, "items": [{"index": {"status": 404, "error": {"type": "index_not_found_exception"}}}]}


async def test_a_write_to_a_version_that_is_gone_is_to_be_repeated_in_another() -> None:
    client: Any = FakeBulk()
    with pytest.raises(WriteBlocked):
        await Bulk(client, WriteConfig()).write([Operation("index", "p-write-000001", "id", document={}, alias=True)])


def test_a_turn_ends_with_its_process_or_its_lease() -> None:
    here = Owner.here()
    ended = Owner(here.host, here.pid, 0.0, here.token)
    elsewhere = Owner("another host", here.pid, 0.0, here.token)
    later, before = now() + 60_000, now() - 1
    assert Holder(here, later, "busy").alive()
    assert Holder(elsewhere, later, "busy").alive()
    assert not Holder(ended, later, "busy").alive()
    assert not Holder(here, before, "busy").alive()
    assert str(Holder(elsewhere, later, "re-embedding the index")) == (
        f"Process {here.pid} on another host is re-embedding the index."
    )


class FakeClient:
    """Two indices that hold nothing but keys; ``counted`` is how many they had when they were counted."""

    def __init__(self, counted: int, **held: set[str]) -> None:
        self.counted = counted
        self.held = {index: sorted(keys) for index, keys in held.items()}

    async def count(self, *, index: str) -> dict[str, int]:
        return {"count": self.counted}

    async def search(self, *, index: str, query: Any, size: int, **options: Any) -> dict[str, Any]:
        wanted = query["range"]["key"]
        keys = [key for key in self.held[index] if wanted["gte"] <= key < wanted.get("lt", "g")][:size]
        return {"hits": {"hits": [{"sort": [key]} for key in keys]}} if keys else {}


@pytest.mark.parametrize("counted", [0, 30_000, 100_000])
async def test_differences_are_those_of_the_keys_also_when_an_index_grows_meanwhile(counted: int) -> None:
    everything = [digest(number) for number in range(33_000)]
    source, target = set(everything[:30_000]), set(everything[10:])
    client: Any = FakeClient(counted, source=source, target=target)
    found = [pair async for pair in differences(client, WriteConfig(), "source", "target")]
    assert set().union(*(ours for ours, _ in found)) == source - target
    assert set().union(*(theirs for _, theirs in found)) == target - source
    assert sum(map(len, (keys for pair in found for keys in pair))) == 3_010

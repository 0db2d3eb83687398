"""Searches and commits that meet the swap: nothing is compared across models, lost, or shown by half."""

import asyncio
from typing import Any

import pytest

from contracts.errors import ConfigError
from contracts.filters import Eq
from contracts.ports import OTHER_MODEL, RecallQuery
from index.elastic.index import ElasticIndex
from index.elastic.reindex import ReindexReport
from tests.contract.corpus import ACCOUNT, uris
from tests.contract.reindex.handbook import (
    SOURCE,
    FakeEmbedder,
    Handbook,
    Held,
    Place,
    asks,
    check_fresh,
    ingest,
    reindex,
    states,
)


@pytest.mark.parametrize("dimensions", [8, 12])
async def test_a_query_of_another_model_is_refused_after_the_swap_in_every_process(
    place: Place, index: ElasticIndex, old: FakeEmbedder, dimensions: int
) -> None:
    """Design decision 9, also when both models make vectors of the same length."""
    new = FakeEmbedder("new", dimensions)
    service = await place.open(write=False)
    assert not any(answer.failed for answer in await service.recall(asks(old)))
    await reindex(index, new).run()
    for each in (service, index):
        for answer in await each.recall(asks(old)):
            assert answer.failed == {"dense": OTHER_MODEL}
            assert all(hit.vector == 0 for hit in answer.hits)
        assert uris((await each.recall(asks(old)))[1].hits) >= {f"strata://shared/doc{n}/care" for n in range(10)}
        assert not any(answer.failed for answer in await each.recall(asks(new)))
        assert await each.model() == new.model


async def test_a_service_that_has_not_noticed_the_swap_compares_no_vectors_and_misses_no_later_write(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    known, knows_model = [await place.open(write=False, resolve_seconds=3_600) for _ in range(2)]
    for each in (known, knows_model):
        await each.recall(asks(old))
    await reindex(index, new).run()
    assert not any(answer.failed for answer in await knows_model.recall(asks(new)))
    handbook.parts |= {"doc0": "changed", "doc10": "added"}
    await ingest(index, new, handbook)
    words = [RecallQuery("changed added", None, Eq("account_id", ACCOUNT), 100)]
    (found,) = await known.recall(words)
    assert {hit.uri.split("/")[3] for hit in found.hits} == {"doc0", "doc10"}


async def meets_swap(
    index: ElasticIndex, new: FakeEmbedder, held: Held, write: asyncio.Task[Any], *, drop: bool = False
) -> ReindexReport:
    """Let an index be swapped while a request of a writer is held up."""
    await held.reached.wait()
    report = await reindex(index, new).run()
    if drop:
        await index.versions.drop(await index.versions.get(1))
    held.go_on()
    await asyncio.wait({write})
    return report


def nodes_only(target: str, body: bytes) -> bool:
    """Whether a request writes nodes."""
    return "_bulk" in target and b"-write-" in body


@pytest.mark.parametrize(
    ("first", "drop"),
    [(1, False), (0, True), (1, True)],
    ids=["half written", "nothing written, old version dropped", "half written, old version dropped"],
)
async def test_a_commit_that_meets_the_swap_is_undone_in_the_new_version(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook, first: int, drop: bool
) -> None:
    writer = await place.open(bulk_bytes=10_000, in_flight=1)
    requests = 0

    def chosen(target: str, body: bytes) -> bool:
        nonlocal requests
        requests += nodes_only(target, body)
        return nodes_only(target, body) and requests > first

    held = Held(writer, chosen)
    changed = Handbook({name: f"{text} changed" for name, text in handbook.parts.items()})
    writing = asyncio.create_task(ingest(writer, old, changed))
    report = await meets_swap(index, new, held, writing, drop=drop)
    with pytest.raises(ConfigError, match="strata reindex"):
        await writing
    assert (report.nodes > 40) == bool(first)
    # Nothing has been made anew by a late write.
    versions = ["nodes-000002"] if drop else ["nodes-000001", "nodes-000002"]
    found = await index.client.indices.get(index=f"{place.prefix}-*")
    assert set(found) == {f"{place.prefix}-{name}" for name in ("texts", "ledger", *versions)}
    left = await index.unfinished(ACCOUNT)
    assert {(entry.document_id, entry.state) for entry in left} == {(name, "embedded") for name in changed.parts}
    await check_fresh(place, index, new, handbook)
    await ingest(index, new, changed)
    await check_fresh(place, index, new, changed)


async def test_a_commit_that_was_shown_before_the_swap_is_completed_in_the_new_version(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    held = Held(writer, lambda target, body: nodes_only(target, body) and b'{"delete":' in body)
    handbook.parts["doc0"] = "changed"
    writing = asyncio.create_task(ingest(writer, old, handbook))
    await meets_swap(index, new, held, writing)
    await writing
    await check_fresh(place, index, new, handbook)


async def test_a_late_write_to_a_version_that_is_being_filled_again_is_not_taken_for_done(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    held = Held(writer, nodes_only)
    changed = Handbook({**handbook.parts, "doc0": "changed"})
    writing = asyncio.create_task(ingest(writer, old, changed))
    await held.reached.wait()
    await reindex(index, new).run()
    await reindex(index, old).run(swap=False)
    assert await states(index) == {1: (False, False), 2: (True, False)}
    held.go_on()
    with pytest.raises(ConfigError, match="strata reindex"):
        await writing
    await reindex(index, old).run()
    await check_fresh(place, index, old, handbook)


async def test_a_late_removal_from_a_version_that_is_being_filled_again_is_done_where_it_counts(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    held = Held(writer, nodes_only)
    dropping = asyncio.create_task(writer.drop(ACCOUNT, SOURCE, ["doc0"]))
    await held.reached.wait()
    await reindex(index, new).run()
    await reindex(index, old).run(swap=False)
    held.go_on()
    await dropping
    del handbook.parts["doc0"]
    await check_fresh(place, index, new, handbook)


async def test_a_writer_that_has_not_noticed_the_swap_drops_what_was_written_since(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open(resolve_seconds=3_600)
    await writer.recall(asks(old))
    await reindex(index, new).run()
    handbook.parts["doc0"] = "changed"
    await ingest(index, new, handbook)
    await writer.drop(ACCOUNT, SOURCE, ["doc0"])
    del handbook.parts["doc0"]
    await check_fresh(place, index, new, handbook)


async def test_a_node_is_never_embedded_without_texts_that_are_still_on_their_way(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open(bulk_bytes=10_000)
    held = Held(writer, lambda target, body: "_bulk" in target and b"-texts" in body)
    handbook.parts["doc0"] = "changed"
    writing = asyncio.create_task(ingest(writer, old, handbook))
    await held.reached.wait()
    # Another account's commit lets searches see all there is so far.
    await ingest(index, old, Handbook({"other": "other"}, "other"), "other")
    await reindex(index, new).run(swap=False)
    held.go_on()
    await writing
    await index.drop("other", "other", ["other"])
    await reindex(index, new).run()
    await check_fresh(place, index, new, handbook)

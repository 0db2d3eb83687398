"""Another embedding model for an Elasticsearch index that serves and is written to meanwhile (design decision 9)."""

import asyncio

import pytest

from contracts.errors import ConfigError
from contracts.records import ModelRef
from index.elastic.index import ElasticIndex
from index.elastic.swap import Swapped, swap
from tests.contract.corpus import ACCOUNT, uris
from tests.contract.reindex.handbook import (
    SOURCE,
    WRITE,
    FakeEmbedder,
    Handbook,
    Place,
    answers,
    asks,
    check_fresh,
    ingest,
    reindex,
    states,
)


async def test_after_it_all_answers_are_those_of_an_index_ingested_with_the_new_model(
    place: Place, index: ElasticIndex, new: FakeEmbedder, handbook: Handbook
) -> None:
    told: dict[str, int] = {}
    report = await reindex(index, new).run(lambda phase, done, total: told.update({phase: done}))
    assert (report.source, report.target, report.model) == (1, 2, new.model)
    assert (report.nodes, report.texts, report.removed) == (40, 50, 0)
    assert told == {"embed": 50, "write": 40}
    assert report.swapped and not report.resumed and not report.reopened
    assert 0 < report.stopped_seconds < report.seconds
    assert await states(index) == {1: (False, True), 2: (True, False)}
    await check_fresh(place, index, new, handbook)


async def test_searches_that_go_on_meanwhile_always_find_everything(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder
) -> None:
    reader = await place.open(write=False)
    everything = {f"strata://shared/doc{n}{rest}" for n in range(10) for rest in ("", "/care", "/6", "/7")}
    seen: list[ModelRef] = []

    async def search() -> None:
        both = await reader.recall([*asks(old, ["text install"]), *asks(new, ["text install"])])
        for answer in both:
            assert uris(answer.hits) == everything
        (comparable,) = [which for which, answer in zip((old, new), both, strict=True) if not answer.failed]
        seen.append(comparable.model)

    async def searched() -> None:
        await search()

    new.before = searched
    running = asyncio.create_task(reindex(index, new).run())
    while not running.done():
        await search()
    assert (await running).swapped
    await search()
    assert seen[0] == old.model and seen[-1] == new.model
    assert seen == sorted(seen, key=[old.model, new.model].index)


async def test_what_is_written_replaced_and_dropped_meanwhile_is_caught_up(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    writer = await place.open()
    rounds = 0

    async def write() -> None:
        nonlocal rounds
        for rounds in range(1_000):
            handbook.parts[f"doc{rounds % 10}"] = f"changed {rounds}"
            handbook.parts[f"more{rounds % 5}"] = f"added {rounds}"
            handbook.parts.pop(f"more{(rounds + 2) % 5}", None)
            await ingest(writer, old, handbook)

    async def some_rounds_pass() -> None:
        before = rounds
        while rounds < before + 2 and not (await index.versions.all())[0].closed:
            pass

    writing = asyncio.create_task(write())
    new.before = some_rounds_pass
    report = await reindex(index, new, batch=20).run()
    with pytest.raises(ConfigError, match="strata reindex"):
        await writing
    assert rounds >= 4 and report.removed

    # What was acknowledged is there, in its last form; the commit that met the swap is not.
    stored = await index.documents(ACCOUNT, SOURCE)
    (found,) = await index.recall(asks(new, ["text changed added install"]))
    assert not found.failed
    assert {hit.uri.split("/")[3] for hit in found.hits} == stored.keys()
    assert all(hit.abstract.startswith(f"{stored[hit.uri.split('/')[3]]}:") for hit in found.hits)
    await ingest(index, new, handbook)
    await check_fresh(place, index, new, handbook)


async def test_a_run_that_was_stopped_is_gone_on_with_and_embeds_nothing_twice(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    done: dict[str, int] = {}
    stuck = asyncio.Event()

    async def stop_before_the_fourth_batch() -> None:
        if done.get("write") == 21:
            stuck.set()
            await asyncio.Event().wait()

    new.before = stop_before_the_fourth_batch
    running = asyncio.create_task(reindex(index, new).run(lambda phase, count, _: done.update({phase: count})))
    await stuck.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await states(index) == {1: (True, False), 2: (False, False)}
    await ingest(index, old, handbook)

    first, new.texts, new.before = new.texts, [], None
    report = await reindex(index, new).run()
    assert report.resumed and report.target == 2
    assert first and new.texts and not set(first) & set(new.texts)
    assert len(first) + len(new.texts) == 50
    await check_fresh(place, index, new, handbook)


async def test_a_version_can_be_filled_without_a_swap_and_swapped_to_later(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    report = await reindex(index, new).run(swap=False)
    assert not report.swapped and report.stopped_seconds == 0
    assert await states(index) == {1: (True, False), 2: (False, False)}
    assert await index.model() == old.model
    assert await swap(index.client, index.versions, WRITE, 2) == Swapped(done=True)
    assert await states(index) == {1: (False, True), 2: (True, False)}
    await check_fresh(place, index, new, handbook)


async def test_a_swap_to_a_version_that_lacks_records_has_to_be_forced_and_can_be_taken_back(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    before = await answers(index, old)
    await reindex(index, new).run()
    handbook.parts["doc0"] = "changed"
    await ingest(index, new, handbook)
    rollback = await swap(index.client, index.versions, WRITE, 1)
    assert rollback == Swapped(done=False, missing=4, outdated=4)
    assert await states(index) == {1: (False, True), 2: (True, False)}

    assert (await swap(index.client, index.versions, WRITE, 1, force=True)).done
    assert await states(index) == {1: (True, False), 2: (False, True)}
    assert before[0][0].keys() - uris((await index.recall(asks(old)))[0].hits) <= {
        uri for uri in before[0][0] if "/doc0" in uri
    }
    assert (await swap(index.client, index.versions, WRITE, 2, force=True)).done
    await check_fresh(place, index, new, handbook)


async def test_the_old_model_comes_back_with_all_later_writes_and_embeds_only_those(
    place: Place, index: ElasticIndex, old: FakeEmbedder, new: FakeEmbedder, handbook: Handbook
) -> None:
    await reindex(index, new).run()
    handbook.parts |= {"doc0": "changed", "doc10": "added"}
    del handbook.parts["doc1"]
    await ingest(index, new, handbook)
    old.texts = []
    report = await reindex(index, old).run()
    assert (report.target, report.nodes, report.removed) == (1, 8, 8)
    assert len(old.texts) == 10
    assert await states(index) == {1: (True, False), 2: (False, True)}
    await check_fresh(place, index, old, handbook)


async def test_there_is_nothing_to_do_without_an_index_or_with_its_own_model(
    place: Place, index: ElasticIndex, old: FakeEmbedder
) -> None:
    with pytest.raises(ConfigError, match="already") as refusal:
        await reindex(index, old).run()
    assert refusal.value.field == "embedder" and refusal.value.remedy
    assert await states(index) == {1: (True, False)}
    nowhere = Place(place.url)
    empty = await nowhere.open()
    with pytest.raises(ConfigError, match="no index yet"):
        await reindex(empty, old).run()
    await nowhere.close()

"""Runs that fail, are killed or meet another one: what serves goes on to serve, and writes are let in again."""

import asyncio
import os
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.errors import ConfigError, StageFailed
from index.elastic import reindex as reindex_module
from index.elastic.index import ElasticIndex
from index.elastic.swap import Swapped, swap
from index.elastic.turn import Turn
from index.elastic.versions import Version, Versions
from tests.contract.reindex.handbook import (
    WRITE,
    FakeEmbedder,
    Handbook,
    Place,
    check_fresh,
    ingest,
    reindex,
    states,
)


async def test_only_one_process_at_a_time_changes_the_versions(
    place: Place, index: ElasticIndex, new: FakeEmbedder
) -> None:
    embedding, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        embedding.set()
        await go_on.wait()

    new.before = wait
    first = asyncio.create_task(reindex(index, new).run())
    await embedding.wait()
    other = await place.open()
    with pytest.raises(ConfigError, match=f"Process {os.getpid()} .* re-embedding"):
        await reindex(other, FakeEmbedder("third")).run()
    with pytest.raises(ConfigError, match="re-embedding"):
        await swap(other.client, other.versions, WRITE, 1)
    go_on.set()
    assert (await first).swapped
    assert await Turn(other.client, other.versions.ledger, WRITE).holder() is None


async def fails(*_: object, **__: object) -> Any:
    raise StageFailed("on purpose")


async def is_cancelled(*_: object, **__: object) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("where", "what", "failure"),
    [(reindex_module, "count", fails), (Versions, "replace", is_cancelled), (Versions, "_move_alias", fails)],
    ids=["fails before the check", "is cancelled before the swap", "fails in the swap"],
)
async def test_a_failure_while_writes_are_stopped_lets_them_in_again(
    place: Place,
    index: ElasticIndex,
    old: FakeEmbedder,
    new: FakeEmbedder,
    handbook: Handbook,
    where: Any,
    what: str,
    failure: Any,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, what, failure)
        with pytest.raises((StageFailed, asyncio.CancelledError)):
            await reindex(index, new).run()
    assert await states(index) == {1: (True, False), 2: (False, False)}
    handbook.parts["doc0"] = "changed"
    await ingest(index, old, handbook)
    assert (await reindex(index, new).run()).nodes == 4
    await check_fresh(place, index, new, handbook)


async def test_records_that_were_missed_forbid_the_swap(index: ElasticIndex, new: FakeEmbedder) -> None:
    async def none(*_: object) -> AsyncIterator[Any]:
        return
        yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reindex_module, "differences", none)
        with pytest.raises(StageFailed, match="0 records instead of 40"):
            await reindex(index, new).run()
    assert await states(index) == {1: (True, False), 2: (False, False)}


DIES = textwrap.dedent("""
    import asyncio, sys
    from index.elastic.config import ElasticConfig, WriteConfig
    from index.elastic.index import ElasticIndex
    from index.elastic.reindex import Reindex
    from index.elastic.versions import Versions
    from models.deterministic import DeterministicEmbedder

    async def stuck(*_):
        print("closed", flush=True)
        await asyncio.Event().wait()

    async def main():
        url, prefix = sys.argv[1:]
        Versions.replace = stuck
        index = await ElasticIndex.open(ElasticConfig(prefix=prefix), [url], write=True)
        await Reindex(index.client, index.versions, DeterministicEmbedder(16), WriteConfig()).run()

    asyncio.run(main())
""")


@pytest.fixture
async def left_closed(place: Place, index: ElasticIndex) -> None:
    """A run was killed (-9) right before it would have swapped."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, place.url, place.prefix, stdout=PIPE)
    assert process.stdout
    assert await process.stdout.readline() == b"closed\n"
    assert await states(index) == {1: (True, True), 2: (False, False)}
    holder = await Turn(index.client, index.versions.ledger, WRITE).holder()
    assert holder and holder.owner.pid == process.pid
    process.kill()
    await process.wait()


@pytest.mark.usefixtures("left_closed")
async def test_a_run_killed_while_writes_are_stopped_is_noticed_by_the_next_which_lets_them_in(
    place: Place, index: ElasticIndex, new: FakeEmbedder, old: FakeEmbedder, handbook: Handbook
) -> None:
    handbook.parts["doc0"] = "changed"
    waiting = asyncio.create_task(ingest(await place.open(), old, handbook))
    embedding = asyncio.Event()

    async def wait() -> None:
        embedding.set()
        await waiting

    new.before = wait
    report = await reindex(index, new).run()
    assert report.reopened and report.target == 3
    await check_fresh(place, index, new, handbook)


@pytest.mark.usefixtures("left_closed")
async def test_a_swap_to_the_version_that_serves_lets_writes_in_that_a_killed_run_has_stopped(
    place: Place, index: ElasticIndex, old: FakeEmbedder, handbook: Handbook
) -> None:
    assert await swap(index.client, index.versions, WRITE, 1) == Swapped(done=True)
    handbook.parts["doc0"] = "changed"
    await ingest(index, old, handbook)
    await check_fresh(place, index, old, handbook)


async def test_a_version_swapped_to_by_other_means_is_no_longer_filled(
    place: Place, index: ElasticIndex, new: FakeEmbedder, handbook: Handbook
) -> None:
    other = await place.open()

    async def swapped() -> None:
        target: Version = (await other.versions.all())[-1]
        await other.versions.swap(target)

    new.before = swapped
    with pytest.raises(ConfigError, match="replaced"):
        await reindex(index, new).run()
    assert await states(index) == {1: (False, True), 2: (True, False)}

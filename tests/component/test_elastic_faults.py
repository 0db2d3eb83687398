"""A real cluster whose nodes are killed and hang: nothing acknowledged is lost, no search waits for ever."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import pytest

from contracts.deadline import Deadline
from contracts.errors import RecallFailed, StageFailed, StrataError
from contracts.ports import Recalled
from index.elastic.config import BreakerConfig, ConnectionConfig, ElasticConfig, LayoutConfig
from index.elastic.devnode.cluster import DevCluster
from index.elastic.index import ElasticIndex
from tests.contract.corpus import ACCOUNT, MODEL, SOURCE, ask, document, node, uris, vectors

DOCUMENTS = 40
BREAKER = BreakerConfig(failures=3, open_seconds=0.5)


class Cluster:
    """The three nodes, and the indices opened on them."""

    def __init__(self, nodes: DevCluster) -> None:
        self.nodes = nodes
        self.prefix = f"fault-{uuid4().hex[:12]}"
        self._opened: list[ElasticIndex] = []

    async def open(self, *, routing: str = "account", write: bool = True) -> ElasticIndex:
        layout = LayoutConfig(shards=3, replicas="0-1", routing=routing)
        connection = ConnectionConfig(request_timeout_ms=20_000)
        config = ElasticConfig(prefix=self.prefix, layout=layout, connection=connection, breaker=BREAKER)
        self._opened.append(await ElasticIndex.open(config, self.nodes.urls, write=write))
        return self._opened[-1]

    async def filled(self, **how: str) -> ElasticIndex:
        """An index of ``DOCUMENTS`` documents with a node each, on all its copies."""
        index = await self.open(**how)
        made = [document(f"d{i}", node(f"n{i}", f"text {i}"), seed=i) for i in range(DOCUMENTS)]
        await index.put(ACCOUNT, SOURCE, made, MODEL)
        await index.client.cluster.health(wait_for_status="green", wait_for_no_initializing_shards=True, timeout="60s")
        return index

    async def close(self) -> None:
        self.nodes.heal()
        await self._opened[0].versions.destroy()
        for index in self._opened:
            await index.close()


@pytest.fixture
async def cluster(elastic_cluster: DevCluster) -> AsyncIterator[Cluster]:
    cluster = Cluster(elastic_cluster)
    yield cluster
    await cluster.close()


async def search(index: ElasticIndex, seconds: float = 20) -> Recalled:
    """All documents, by word and by vector."""
    (found,) = await index.recall([ask("text", vectors(1)[0])], Deadline.after(seconds))
    return found


def whole(found: Recalled) -> bool:
    """Whether an answer is complete and not degraded."""
    return len(uris(found.hits)) == DOCUMENTS and not found.failed and not found.partial


async def eventually_whole(index: ElasticIndex) -> Recalled:
    """The first whole answer; every try in between fails as it may."""
    while True:
        try:
            found = await search(index)
        except RecallFailed:
            await asyncio.sleep(0.1)
            continue
        if whole(found):
            return found


async def test_searches_go_on_when_a_node_is_killed(cluster: Cluster) -> None:
    index = await cluster.filled()
    answers: list[Recalled] = []
    enough, killed = asyncio.Event(), asyncio.Event()

    async def client() -> None:
        after = 0
        while after < 30:
            answers.append(await search(index))
            after += killed.is_set()
            if len(answers) > 10:
                enough.set()

    searching = [asyncio.create_task(client()) for _ in range(3)]
    await enough.wait()
    await asyncio.to_thread(cluster.nodes.kill, 1)
    killed.set()
    await asyncio.gather(*searching)

    # Full, or told to be less.
    assert all(whole(found) or found.failed or found.partial for found in answers)
    assert whole(await eventually_whole(index))
    health = await index.client.cluster.health()
    assert health["number_of_nodes"] == 2


async def test_every_document_acknowledged_while_a_node_is_killed_is_found(cluster: Cluster) -> None:
    index = await cluster.open()
    acknowledged: list[int] = []
    enough, killed = asyncio.Event(), asyncio.Event()

    async def ingest() -> None:
        number = after = 0
        while after < 12:
            part = [document(f"d{i}", node(f"n{i}", f"text {i}"), seed=i) for i in range(number, number + 20)]
            try:
                await index.put(ACCOUNT, SOURCE, part, MODEL)
            except StageFailed:
                continue  # Not acknowledged: written again, as an ingest does.
            acknowledged.extend(range(number, number + 20))
            number += 20
            after += killed.is_set()
            if number >= 60:
                enough.set()

    ingesting = asyncio.create_task(ingest())
    await enough.wait()
    # The node with the master's part of the work, so that a new one has to be chosen too.
    master = (await index.client.cat.master(format="json")).body[0]["node"]
    await asyncio.to_thread(cluster.nodes.kill, [n.name for n in cluster.nodes.nodes].index(master))
    killed.set()
    await ingesting

    expected = {f"strata://shared/n{i}" for i in acknowledged}
    reader = await cluster.open(write=False)
    (found,) = await reader.recall([ask("text", vectors(1)[0], limit=1_000)])
    assert uris(found.hits) == expected
    assert (await index.meta(ACCOUNT, sorted(expected))).keys() == expected
    assert (await index.documents(ACCOUNT, SOURCE)).keys() == {f"d{i}" for i in acknowledged}
    assert await index.unfinished(ACCOUNT) == []


async def test_shards_that_are_lost_are_told_and_the_others_answer(cluster: Cluster) -> None:
    index = await cluster.filled(routing="none")
    client, alias = index.client, index.versions.alias
    # Only the nodes lose their copies: the ledger is needed to know what may show.
    copies = {"index.auto_expand_replicas": False, "index.number_of_replicas": 0}
    await client.indices.put_settings(index=alias, settings=copies)
    shards = (await client.cat.shards(index=alias, format="json", h=["node"])).body
    names = [n.name for n in cluster.nodes.nodes]
    victim = next(names.index(name) for name in sorted({row["node"] for row in shards}))
    await asyncio.to_thread(cluster.nodes.kill, victim)

    while not (found := await search(index)).partial:
        pass
    assert set(found.partial) == {"dense", "keyword"}
    assert "shards failed" in found.partial["dense"]
    assert 0 < len(uris(found.hits)) < DOCUMENTS


async def test_a_cluster_that_is_down_is_refused_at_once_and_found_again_by_itself(cluster: Cluster) -> None:
    """RET-5001; the breaker opens, and closes when the cluster is back."""
    index = await cluster.filled()
    for number in range(3):
        await asyncio.to_thread(cluster.nodes.kill, number)
    for _ in range(BREAKER.failures):
        with pytest.raises(RecallFailed) as failure:
            await search(index)
        assert failure.value.code == "RET-5001"
    assert index.breaker.state == "open"
    with pytest.raises(RecallFailed, match="asked again in a moment"):
        await search(index)
    with pytest.raises(StrataError):
        await index.meta(ACCOUNT, ["strata://shared/n1"])

    healing = asyncio.create_task(asyncio.to_thread(cluster.nodes.heal))
    found = await eventually_whole(index)
    await healing
    assert whole(found)
    assert index.breaker.state == "closed"


async def test_callers_in_a_hurry_do_not_open_the_breaker_for_all(cluster: Cluster) -> None:
    index = await cluster.filled()
    cluster.nodes.pause(0)
    for _ in range(4 * BREAKER.failures):
        with suppress(RecallFailed):
            await search(index, seconds=0.001)
    cluster.nodes.resume(0)
    assert index.breaker.state == "closed"
    assert whole(await search(index))


@pytest.mark.parametrize("routing", ["account", "none"])
async def test_a_search_keeps_its_deadline_when_a_node_hangs(cluster: Cluster, routing: str) -> None:
    index = await cluster.filled(routing=routing)
    cluster.nodes.pause(1)
    hung = 0
    for _ in range(6):
        searching = asyncio.create_task(search(index, seconds=0.5))
        # Nobody wakes the node meanwhile, and the cluster takes long to notice that it hangs.
        patience = asyncio.create_task(asyncio.sleep(6))
        done, _ = await asyncio.wait({searching, patience}, return_when=asyncio.FIRST_COMPLETED)
        patience.cancel()
        assert searching in done
        try:
            found = searching.result()
        except RecallFailed:
            hung += 1
        else:
            assert whole(found) or found.failed or found.partial
    assert hung
    cluster.nodes.resume(1)
    assert whole(await eventually_whole(index))

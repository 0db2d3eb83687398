"""``strata eval index``: index backends on the same synthetic records, and what settings of Elasticsearch trade.

Backends are filled one after the other. Then searches go one at a time, each kind on each backend in turn, so that
whatever else the machine does hits all alike. Times are the caller's, around ``put`` and ``recall``.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import msgspec

from contracts.ports import SearchIndex
from evaluation.contestants import Cluster, Contestant, Elastic, Embedded
from evaluation.filling import Ingested, fill, silent
from evaluation.synthetic import SOURCE, Account, Shape
from evaluation.timed_search import MODES, Scope, Searched, Told, search
from index.embedded.config import EmbeddedConfig

# Factors of ``num_candidates`` to compare.
CANDIDATES = (1.0, 1.5, 3.0, 6.0)
# Records written before any writing is timed.
WARM_UP_ROWS = 2_000


class Trades(msgspec.Struct, frozen=True):
    """What settings of Elasticsearch trade.

    Args:
        candidates: Searches by ``num_candidates``, with ``min_candidates`` out of the way.
        spread: How the index was filled that has no routing: its records are spread over all shards.
        routing: Searches with routing as in the settings, and without.
        shards: Shards asked, by routing and scope.
    """

    candidates: list[Searched]
    spread: Ingested
    routing: list[Searched]
    shards: dict[str, dict[str, int]]


class Report(msgspec.Struct, frozen=True):
    """What was measured at one size.

    Args:
        shape: The records.
        queries: Timed searches behind each figure.
        scopes: Records searched, by scope.
        ingests: How each backend was filled.
        searches: How it answered.
        trades: What settings trade; ``None`` without Elasticsearch.
    """

    shape: Shape
    queries: int
    scopes: dict[str, int]
    ingests: list[Ingested]
    searches: list[Searched]
    trades: Trades | None


class Setup(msgspec.Struct, frozen=True):
    """What is measured.

    Args:
        embedded: Settings of the embedded index; ``None`` leaves it out.
        cluster: Where Elasticsearch is; ``None`` leaves it out.
        queries: Timed searches behind each figure.
    """

    embedded: EmbeddedConfig | None
    cluster: Cluster | None
    queries: int = 200


async def bench(shape: Shape, setup: Setup, told: Told = silent) -> Report:
    """Measure backends on the records of a shape.

    Args:
        shape: The records; each size is measured by itself.
        setup: What is measured.
        told: What is being done.

    Raises:
        RecallFailed: A search was not answered in full, so its time says nothing.
    """
    told("Warming up")
    await _warm_up(shape, setup)
    told("Making records")
    accounts = [Account(shape, number) for number in range(shape.accounts)]
    large, small = accounts[0], accounts[len(accounts) // 2]
    scopes = [
        Scope("large", large),
        Scope("10% of it", large, 10),
        Scope("1% of it", large, 1),
        Scope("small", small),
    ]
    async with AsyncExitStack() as stack:
        contestants = [await stack.enter_async_context(each) for each in _opening(setup)]
        ingests = [await _ingest(each, each.name, accounts, told) for each in contestants]
        indices = {each.name: each.index for each in contestants}
        searches = await search(indices, scopes, MODES, setup.queries, told)
        trades = None
        for each in contestants:
            if isinstance(each, Elastic):
                trades = await _trades(each, scopes, accounts, setup.queries, told)
        return Report(
            shape=shape,
            queries=setup.queries,
            scopes={scope.name: scope.account.count(scope.share) for scope in scopes},
            ingests=ingests,
            searches=searches,
            trades=trades,
        )


def _opening(setup: Setup) -> Iterator[AbstractAsyncContextManager[Contestant]]:
    if setup.embedded:
        yield Embedded.open(setup.embedded)
    if setup.cluster:
        yield Elastic.open(setup.cluster)


async def _warm_up(shape: Shape, setup: Setup) -> None:
    """Fill a small index of each kind, so that dictionaries are loaded and code is compiled before times count."""
    accounts = [Account(msgspec.structs.replace(shape, rows=WARM_UP_ROWS, accounts=2), number) for number in range(2)]
    for each in _opening(setup):
        async with each as contestant:
            await _ingest(contestant, contestant.name, accounts, silent)


async def _ingest(contestant: Contestant, name: str, accounts: Sequence[Account], told: Told) -> Ingested:
    parts = ((account.name, list(account.documents())) for account in accounts)
    return await fill(contestant, name, SOURCE, parts, accounts[0].model, told)


async def _trades(
    elastic: Elastic, scopes: Sequence[Scope], accounts: Sequence[Account], queries: int, told: Told
) -> Trades:
    config = elastic.cluster.config
    async with AsyncExitStack() as stack:
        readers: dict[str, SearchIndex] = {}
        for factor in CANDIDATES:
            changes = {"num_candidates": factor, "min_candidates": 1}
            reader = elastic.reader(config.recall.model_copy(update=changes))
            readers[f"× {factor:g}"] = await stack.enter_async_context(reader)
        candidates = await search(readers, scopes, ["dense"], queries, told)
    layout = config.layout.model_copy(update={"routing": "none", "partition": 1})
    async with Elastic.open(elastic.cluster, layout) as spread:
        filled = await _ingest(spread, layout.routing, accounts, told)
        layouts: dict[str, Elastic] = {config.layout.routing: elastic, layout.routing: spread}
        indices = {name: each.index for name, each in layouts.items()}
        return Trades(
            candidates=candidates,
            spread=filled,
            routing=await search(indices, scopes, ["dense", "both"], queries, told),
            shards={
                name: {scope.name: await each.shards(scope.account.name) for scope in scopes}
                for name, each in layouts.items()
            },
        )

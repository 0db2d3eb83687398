"""The knowledge base on the cluster: by its Serve handle, and by HTTP where it is switched on (K7)."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from ray.serve.handle import DeploymentHandle

from contracts.context import RequestContext
from contracts.errors import InvalidFilter
from corpora.knowledge_base.outbox import behind
from corpora.knowledge_base.service import KnowledgeBase, Searcher
from corpora.knowledge_base.types import ChunkText, Entity
from deployments import graph
from deployments.knowledge_base.opening import LocalKnowledgeBase, local_knowledge_base
from deployments.knowledge_base.replica import knowledge_base
from deployments.settings import Settings
from tests.integration.conftest import Cluster, eventually, log_lines

QUERY = "what to wear at an evening party"


@pytest.fixture
def ctx() -> RequestContext:
    """An account of its own for the test."""
    return RequestContext(f"shop-{uuid4().hex}", request_id=uuid4().hex)


@pytest.fixture
async def local(settings: Settings) -> AsyncIterator[LocalKnowledgeBase]:
    """Writes to the database, as another application would, and leaves the index to the cluster."""
    async with local_knowledge_base(settings) as opened:
        yield opened


@pytest.fixture
async def remote(served: str) -> Searcher:
    return knowledge_base(DeploymentHandle("knowledge_base", graph.APP), timeout_ms=60_000)


async def fill(kb: KnowledgeBase, ctx: RequestContext) -> None:
    await kb.put_entities(
        ctx,
        [
            Entity("dress", "garment", "published", attrs={"occasions": ["party"]}),
            Entity("taboo", "garment", "published", attrs={"occasions": ["party"], "avoid_body_shapes": ["apple"]}),
            Entity("draft", "garment", "draft", attrs={"occasions": ["party"]}),
        ],
    )
    texts = {"dress": "a long dress for a party", "taboo": QUERY, "draft": QUERY}
    await kb.upsert_chunks(ctx, [ChunkText(f"{name}-0", name, text) for name, text in texts.items()])


async def test_another_application_asks_by_the_handle_and_the_cluster_keeps_the_index_up(
    local: LocalKnowledgeBase, remote: Searcher, ctx: RequestContext
) -> None:
    """K7, and K1 over it."""
    await fill(local.kb, ctx)

    async def found() -> set[str]:
        outcome = await remote.search(QUERY, ctx, ["garment"], occasion="party", body_shape="pear")
        return {each.entity_id for each in outcome.results}

    async def both() -> bool:
        return await found() == {"dress", "taboo"}

    await eventually(both)
    assert (await behind(local.database, ctx.account_id)).waiting == 0
    outcome = await remote.search(QUERY, ctx, ["garment"], occasion="party", body_shape="apple")
    assert [each.chunk_id for each in outcome.results] == ["dress-0"]
    here = await local.kb.search(QUERY, ctx, ["garment"], occasion="party", body_shape="apple")
    assert here.results[0].vec_score == pytest.approx(outcome.results[0].vec_score, abs=1e-6)
    await local.kb.set_status(ctx, ["dress"], "draft")
    assert await found() == {"taboo"}


async def test_a_gap_is_counted_and_a_mistake_keeps_its_class(
    local: LocalKnowledgeBase, remote: Searcher, ctx: RequestContext
) -> None:
    """K5."""
    first = await remote.search("rain boots", ctx, occasion="hiking")
    second = await remote.search("rain boots", ctx, occasion="hiking")
    assert first.degraded
    assert first.gap_id == second.gap_id
    assert [gap.hit_count for gap in await local.kb.list_gaps(ctx)] == [2]
    with pytest.raises(InvalidFilter) as caught:
        await remote.search("rain boots", ctx, occasion="")
    assert caught.value.field == "occasion"


async def test_the_route_is_for_keys_that_may_see_the_knowledge_base(
    client: Callable[..., httpx.AsyncClient], local: LocalKnowledgeBase, ctx: RequestContext
) -> None:
    """K7: and only where it is switched on, as it is here."""
    await fill(local.kb, ctx)
    shop = client(ctx.account_id, user_space="user:ann", spaces=("kb",))
    body = {"query_text": QUERY, "entity_types": ["garment"], "occasion": "party", "body_shape": "apple"}

    async def answered() -> bool:
        answer = await shop.post("/v1/kb/search", json=body)
        assert answer.status_code == 200, answer.text
        return [each["entity_id"] for each in answer.json()["results"]] == ["dress"]

    await eventually(answered)
    stranger = client(ctx.account_id, user_space="user:bob")
    refused = await stranger.post("/v1/kb/search", json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "RET-4031")
    wrong = await shop.post("/v1/kb/search", json=body | {"filters": {"colour": "red"}})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "RET-4004")
    unknown = await shop.post("/v1/kb/search", json=body | {"color": "red"})
    assert unknown.status_code == 422


async def test_a_plain_search_sees_nothing_of_the_knowledge_base(
    client: Callable[..., httpx.AsyncClient], local: LocalKnowledgeBase, remote: Searcher, ctx: RequestContext
) -> None:
    await fill(local.kb, ctx)

    async def indexed() -> bool:
        return bool((await remote.search(QUERY, ctx)).results)

    await eventually(indexed)
    for identity in ({"role": "admin"}, {"user_space": "user:ann", "spaces": ("kb",)}):
        answer = await client(ctx.account_id, **identity).post("/v1/search_memory", json={"query": QUERY})
        assert answer.json()["hits"] == []


async def test_searches_are_counted_and_logged_without_their_text(
    cluster: Cluster, logs: Path, remote: Searcher, ctx: RequestContext
) -> None:
    secret = f"needle{uuid4().hex}"
    await remote.search(f"where is {secret}", ctx, occasion="hiking")
    await eventually(lambda: any(ctx.request_id in line for line in log_lines(logs, "serve/*knowledge_base*")))
    assert not [line for line in log_lines(logs, "**/*.log") if secret in line]
    await eventually(lambda: cluster.scrape().total("kb_search_total", outcome="gap") > 0)
    await eventually(lambda: cluster.scrape().find("kb_behind"))

"""The graph of ``strata bench overhead`` whose stages do nothing: over HTTP it answers what the real stages did."""

import asyncio
from collections.abc import Callable

import httpx
from ray import serve

from contracts.requests import SearchMemoryRequest
from deployments import graph
from deployments.identity.opening import context_of
from deployments.local import open_local
from deployments.overhead.empty import Recorder, emptied
from deployments.settings import Settings

QUERY = "run a command and stop it after a timeout"
APP = "empty"


async def test_a_graph_of_empty_stages_answers_as_the_real_ones_did(
    served: str, corpus: Settings, client: Callable[..., httpx.AsyncClient]
) -> None:
    asking = client(user_space="user:alice")
    ctx = await context_of(corpus, asking.headers["authorization"].removeprefix("Bearer "), "recorded")
    service, recorder = await open_local(corpus), Recorder()
    service.chain.stages = recorder.watched(service.chain.stages)
    expected = await service.search(ctx, SearchMemoryRequest(query=QUERY, top_k=1))
    await service.close()
    assert recorder.plain() == {QUERY}
    alone = {
        "corpora": corpus.corpora.model_copy(update={"enabled": ()}),
        "knowledge_base": corpus.knowledge_base.model_copy(update={"enabled": False}),
    }
    empty = corpus.model_copy(update=alone)
    await asyncio.to_thread(graph.deploy, empty, variant=emptied(recorder.answers), name=APP, route=f"/{APP}")
    try:
        answer = (await asking.post(f"/{APP}/v1/search_memory", json={"query": QUERY, "top_k": 1})).json()
    finally:
        await asyncio.to_thread(serve.delete, APP)
    assert answer["degraded"] == []
    assert [hit["uri"] for hit in answer["hits"]] == [hit.uri for hit in expected.hits]

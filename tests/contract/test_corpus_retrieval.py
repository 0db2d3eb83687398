"""Retrieval from a corpus by the product's own stages, on every backend (R3, R4, R6, R8, R9)."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import MissingDimension, RecallFailed, TargetForbidden
from contracts.ports import Embeddable, RecallQuery
from contracts.stages import RerankRequest, RerankResult
from corpora.memory import MemoryCorpus
from corpora.rag.build import core_over
from corpora.rag.cache import CacheConfig
from corpora.rag.config import CorporaConfig
from corpora.rag.core import Core
from corpora.rag.documents import SourceChunker
from corpora.rag.requests import RetrieveRequest
from corpora.rag.retrieve_config import RetrieveConfig
from corpora.rag.store import IndexStore
from corpora.rag.types import Decision, Retrieved
from index.chunker import ChunkOptions
from index.embedding import embed_nodes, embedding_texts
from models.deterministic import NAME
from stages.redaction import RedactionConfig, Redactor
from stages.scoring import ScoringConfig
from tests.contract.conftest import Index
from tests.contract.tenants import EMBEDDER, CountingIndex, chain, names, reader
from tests.support.corpora import Events, FakeSwitch

DIMENSIONS = {"user_id": "ann", "assistant_id": "helper", "conversation_id": "c-1"}
ITEMS = (
    {"source_id": "tea", "text": "Ann prefers green tea in the morning", "memory_type": "preference"},
    {"source_id": "coffee", "text": "Ann had coffee with Bob", "memory_type": "fact", "confidence": 0.3},
    {"source_id": "绿茶", "text": "安妮早上喜欢喝绿茶", "memory_type": "fact"},
)
# Every hit passes, and nobody is in a hurry.
OPEN = CorporaConfig(retrieve=RetrieveConfig(timeout_ms=600_000, threshold=0.0))


class Corpus:
    """The memory corpus of a tenant of its own, with what it stands on."""

    def __init__(self, index: Index, config: CorporaConfig = OPEN, **stages: Any) -> None:
        self.ctx = RequestContext(next(names), "user", "user:ann", request_id="r-1")
        self.index, self.counting = index, CountingIndex(index)
        self.adapter, self.store = MemoryCorpus(), IndexStore(index)
        self.chunker = SourceChunker(ChunkOptions(size=40, overlap=8))
        self.switch, self.events = FakeSwitch(), Events()
        graph = chain(self.counting)
        graph.stages = replace(graph.stages, **stages)
        self.core: Core = core_over(
            graph,
            reader(self.counting),
            {"memory": self.adapter},
            config=config,
            scoring=ScoringConfig(),
            model=NAME,
            switch=self.switch,
            redactor=Redactor(RedactionConfig()),
            observer=self.events,
        )

    async def remember(self, *items: dict[str, Any], **changes: Any) -> "Corpus":
        """Store what a caller sends."""
        body = {**DIMENSIONS, "items": list(items or ITEMS), **changes}
        for source in self.adapter.build_ingest_documents(self.ctx, body):
            made = self.chunker.document("memory", source)
            texts = [embedding_texts(node.name, node.abstract, node.vector_texts) for node in made.nodes]
            vectors, _ = await embed_nodes(EMBEDDER, texts, 64, lambda _: None)
            await self.store.upsert(
                self.ctx.account_id, source.space, "memory", [Embeddable(made, vectors)], EMBEDDER.model
            )
        return self

    async def forget(self, *sources: str) -> None:
        """Delete sources."""
        space = self.adapter.build_retrieve_filter(self.ctx, DIMENSIONS).space
        await self.store.delete(self.ctx.account_id, space, "memory", sources)

    async def retrieve(self, query: str = "green tea", ctx: RequestContext | None = None, **fields: Any) -> Retrieved:
        """Ask."""
        self.counting.asked.clear()
        request = RetrieveRequest(query=query, **{"dimensions": DIMENSIONS, **fields})
        return await self.core.retrieve(ctx or self.ctx, "memory", request)

    def searches(self) -> int:
        """Searches that reached the index since the last question."""
        return sum(isinstance(asked[0], RecallQuery) for asked in self.counting.asked if asked)


def sources(answer: Retrieved) -> set[str]:
    return {hit.source_id for hit in answer.hits}


async def test_what_was_ingested_is_found_with_its_text_its_source_and_where_it_stood(index: Index) -> None:
    corpus = await Corpus(index).remember()
    answer = await corpus.retrieve()
    assert sources(answer) == {"tea", "coffee", "绿茶"}
    first = answer.hits[0]
    assert (first.source_id, first.text) == ("tea", "Ann prefers green tea in the morning")
    assert (first.start, first.end) == (0, len(first.text))
    assert first.attrs["memory_type"] == ("preference",) and "source" not in first.attrs
    assert (answer.path, answer.degraded, answer.cached) == ("rag", (), False)
    assert {hit.source_id for hit in (await corpus.retrieve("绿茶")).hits[:2]} == {"tea", "绿茶"}


@pytest.mark.parametrize("missing", DIMENSIONS)
async def test_a_retrieval_without_a_mandatory_dimension_searches_nothing(index: Index, missing: str) -> None:
    """R6."""
    corpus = await Corpus(index).remember()
    with pytest.raises(MissingDimension) as refused:
        await corpus.retrieve(dimensions={name: value for name, value in DIMENSIONS.items() if name != missing})
    assert missing in f"{refused.value.field} {refused.value}"
    assert corpus.counting.asked == []


async def test_no_other_dimension_user_or_tenant_shows(shared_index: Index) -> None:
    ann, rival = await Corpus(shared_index).remember(), await Corpus(shared_index).remember()
    await ann.remember({"text": "green tea elsewhere", "source_id": "other"}, conversation_id="c-2")
    assert sources(await ann.retrieve()) == {"tea", "coffee", "绿茶"}
    assert sources(await ann.retrieve(dimensions=DIMENSIONS | {"conversation_id": "c-2"})) == {"other"}
    await rival.forget("tea")
    assert "tea" in sources(await ann.retrieve()) and "tea" not in sources(await rival.retrieve())
    bob = RequestContext(ann.ctx.account_id, "user", "user:bob")
    with pytest.raises(TargetForbidden):
        await ann.retrieve(ctx=bob)
    assert ann.counting.asked == []


async def test_the_callers_filter_narrows_and_never_widens(index: Index) -> None:
    corpus = await Corpus(index).remember()
    await corpus.remember({"text": "green tea elsewhere", "source_id": "other"}, conversation_id="c-2")
    assert sources(await corpus.retrieve(filter={"eq": {"attrs.memory_type": "preference"}})) == {"tea"}
    either = {"or": [{"eq": {"attrs.conversation_id": "c-1"}}, {"eq": {"attrs.conversation_id": "c-2"}}]}
    assert sources(await corpus.retrieve(filter=either)) == {"tea", "coffee", "绿茶"}


async def test_what_lies_in_the_same_space_and_is_no_memory_never_shows(index: Index) -> None:
    corpus = await Corpus(index).remember()
    source = corpus.adapter.build_ingest_documents(corpus.ctx, {**DIMENSIONS, "items": [{"text": "green tea"}]})[0]
    made = corpus.chunker.document("notes", source)
    vectors = (await EMBEDDER.embed(["green tea"], "passage")).vectors
    await corpus.store.upsert(corpus.ctx.account_id, source.space, "notes", [Embeddable(made, vectors)], EMBEDDER.model)
    assert sources(await corpus.retrieve("green tea")) == {"tea", "coffee", "绿茶"}


async def test_of_a_long_source_its_chunks_are_found_and_never_the_whole(index: Index) -> None:
    text = " ".join(f"On day {number} Ann walked to lake number {number}." for number in range(30))
    corpus = await Corpus(index).remember({"source_id": "diary", "text": text})
    answer = await corpus.retrieve("lake number 17")
    assert len(answer.hits) == 8
    assert all(text[hit.start : hit.end] == hit.text and len(hit.text) < len(text) for hit in answer.hits)


async def test_the_same_question_again_costs_no_search(index: Index) -> None:
    """R9."""
    corpus = await Corpus(index).remember()
    first = await corpus.retrieve()
    searched = corpus.searches()
    again = await corpus.retrieve()
    assert (searched > 0, corpus.searches(), again.cached) == (True, 0, True)
    assert again.hits == first.hits
    assert [event.cache for event in corpus.events.retrievals] == ["miss", "hit"]


async def test_a_write_makes_the_next_question_search_anew(index: Index) -> None:
    corpus = await Corpus(index).remember()
    await corpus.retrieve()
    await corpus.remember({"source_id": "oolong", "text": "Ann now prefers oolong, a half green tea"})
    assert "oolong" in sources(await corpus.retrieve())
    await corpus.forget("oolong")
    answer = await corpus.retrieve()
    assert (sources(answer), answer.cached) == ({"tea", "coffee", "绿茶"}, False)
    assert (await corpus.retrieve()).cached


async def test_a_record_that_expired_since_shows_no_more_though_its_ranking_is_remembered(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = await Corpus(index).remember()
    soon = int(time.time() * 1000) + 3_600_000
    await corpus.remember({"source_id": "offer", "text": "Green tea is on offer", "ttl_at": soon})
    assert "offer" in sources(await corpus.retrieve())
    monkeypatch.setattr("contracts.scope.time", SimpleNamespace(time=lambda: soon / 1000))
    answer = await corpus.retrieve()
    assert (sources(answer), answer.cached) == ({"tea", "coffee", "绿茶"}, True)


async def test_what_was_deleted_or_closed_to_the_caller_does_not_show_while_the_index_lags(index: Index) -> None:
    corpus = await Corpus(index, OPEN.model_copy(update={"cache": CacheConfig(entries=0)})).remember()
    await corpus.counting.lag(corpus.retrieve)
    await corpus.forget("tea")
    await corpus.remember({**ITEMS[1], "sensitivity_level": "secret"})
    assert sources(await corpus.retrieve()) == {"绿茶"}


async def test_a_reranker_that_fails_leaves_the_order_and_a_reason_code(index: Index) -> None:
    """R3."""
    plain = await Corpus(index).remember()
    order = [hit.source_id for hit in (await plain.retrieve(rerank=False)).hits]

    async def broken(ctx: RequestContext, deadline: Deadline, request: RerankRequest) -> RerankResult:
        raise RuntimeError("with a secret in it")

    corpus = Corpus(index, reranker=broken)
    corpus.ctx = plain.ctx
    answer = await corpus.retrieve()
    assert [hit.source_id for hit in answer.hits] == order
    assert [part.reason for part in answer.degraded] == ["RET-5004: RuntimeError"]
    assert not (await corpus.retrieve()).cached
    assert (await corpus.retrieve(rerank=False)).degraded == ()


async def test_hits_below_the_threshold_are_left_out_and_counted(index: Index) -> None:
    corpus = await Corpus(index).remember()
    everything = await corpus.retrieve()
    relevances = sorted((hit.relevance for hit in everything.hits), reverse=True)
    answer = await corpus.retrieve(threshold=relevances[0])
    assert ([hit.relevance for hit in answer.hits], answer.below_threshold) == ([relevances[0]], 2)
    assert (await corpus.retrieve(threshold=1.0)).hits == ()


async def test_the_keyword_search_answers_by_itself(index: Index) -> None:
    """R8: the old path stays."""
    corpus = await Corpus(index).remember()
    corpus.switch.decision = Decision("keyword")
    answer = await corpus.retrieve("green tea")
    assert (sources(answer), answer.path, answer.degraded) == ({"tea"}, "keyword", ())
    assert corpus.searches() == 1
    with pytest.raises(MissingDimension):
        await corpus.retrieve(dimensions={})
    await corpus.forget("tea")
    assert (await corpus.retrieve("green tea")).hits == ()


async def test_when_vectors_can_not_be_had_the_graph_answers_by_words_on_their_own_scale(index: Index) -> None:
    corpus = await Corpus(index).remember()

    async def broken(*_: Any) -> Any:
        raise RuntimeError

    hurt = Corpus(index, embedder=broken)
    hurt.ctx = corpus.ctx
    answer = await hurt.retrieve()
    assert (sources(answer), answer.path, answer.retryable) == ({"tea"}, "rag", True)
    assert [part.stage for part in answer.degraded] == ["embedder"]
    corpus.switch.decision = Decision("keyword")
    assert answer.hits[0].relevance == (await corpus.retrieve()).hits[0].relevance


async def test_when_nothing_can_be_searched_the_error_says_so(index: Index) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError

    corpus = Corpus(index, seed_search=broken)
    with pytest.raises(RecallFailed):
        await corpus.retrieve()


async def test_a_shadow_compares_the_two_paths(index: Index) -> None:
    corpus = await Corpus(index).remember()
    corpus.switch.decision = Decision("rag", shadow=True)
    answer = await corpus.retrieve()
    await corpus.events.compared.wait()
    ((event,)) = corpus.events.shadows
    assert (event.path, event.outcome, event.overlap) == ("rag", "ok", pytest.approx(1 / len(answer.hits)))

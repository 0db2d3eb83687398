"""Corpora over the real core and a real index in this process: what is ingested is stored on return."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from contracts.context import RequestContext
from contracts.ports import Embeddable, WritableIndex
from contracts.trace import STAGES
from corpora.rag.build import core_over
from corpora.rag.config import CorporaConfig
from corpora.rag.core import Core
from corpora.rag.documents import SourceChunker, index_source
from corpora.rag.ports import CorpusAdapter
from corpora.rag.requests import RetrieveRequest
from corpora.rag.types import CorpusHit, Decision, SourceDocument
from index.chunker import ChunkOptions
from index.embedding import embed_nodes, embedding_texts
from models.deterministic import DeterministicEmbedder
from stages.chain import Chain, ChainConfig
from stages.embedder import EmbedderStage
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor
from stages.run import StageBudget
from stages.scoring import ScoringConfig
from tests.support.chain import stages

# Milliseconds: a loaded machine shall not degrade an answer.
PATIENCE = 30_000


class FakeSwitch:
    """A switch that always says the same."""

    async def decide(self, corpus: str, user: str) -> Decision:
        """The graph, without shadow."""
        return Decision("rag")


@dataclass
class SmallCorpora:
    """Adapters with a core over them; made by :func:`small_corpora`."""

    adapters: Mapping[str, CorpusAdapter]
    core: Core
    index: WritableIndex
    embedder: DeterministicEmbedder
    chunker: SourceChunker

    async def ingest(self, ctx: RequestContext, corpus: str, raw: Mapping[str, Any]) -> list[SourceDocument]:
        """Store what an adapter makes of a body."""
        sources = self.adapters[corpus].build_ingest_documents(ctx, raw)
        for space, own in groupby(sources, key=lambda source: source.space):
            documents = [self.chunker.document(corpus, source) for source in own]
            nodes = [node for document in documents for node in document.nodes]
            texts = [embedding_texts(node.name, node.abstract, node.vector_texts) for node in nodes]
            vectors, _ = await embed_nodes(self.embedder, texts, 256, lambda done: None)
            embedded = []
            for document in documents:
                embedded.append(Embeddable(document, vectors[: len(document.nodes)]))
                vectors = vectors[len(document.nodes) :]
            await self.index.put(ctx.account_id, index_source(space, corpus), embedded, self.embedder.model)
        return sources

    async def hits(self, ctx: RequestContext, corpus: str, query: str, **request: Any) -> list[CorpusHit]:
        """What a retrieval answers, above no threshold unless one is given."""
        answer = await self.core.retrieve(ctx, corpus, RetrieveRequest(query=query, **{"threshold": 0.0} | request))
        assert not answer.degraded, answer.degraded
        return list(answer.hits)


def small_corpora(index: WritableIndex, adapters: Mapping[str, CorpusAdapter]) -> SmallCorpora:
    """Corpora over an index; their vectors have no meaning, so words alone find."""
    embedder, config = DeterministicEmbedder(64), CorporaConfig()
    redactor = Redactor(RedactionConfig())
    budget = StageBudget(budget_ms=PATIENCE, reserve_ms=0)
    own = replace(stages(index), embedder=EmbedderStage(embedder))  # type: ignore[arg-type]
    core = core_over(
        Chain(own, ChainConfig(timeout_ms=PATIENCE, budgets=dict.fromkeys(STAGES, budget))),
        Reader(index, index, index, ReaderConfig(), redactor),
        adapters,
        config=config.model_copy(update={"retrieve": config.retrieve.model_copy(update={"timeout_ms": PATIENCE})}),
        scoring=ScoringConfig(),
        model=embedder.model.name,
        switch=FakeSwitch(),
        redactor=redactor,
    )
    return SmallCorpora(adapters, core, index, embedder, SourceChunker(ChunkOptions()))

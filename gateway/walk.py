"""One search of the graph by one method, from the query to memories with their texts.

=======  ===============================================================  =============  ==============
method   stages                                                           ranked by      radius against
=======  ===============================================================  =============  ==============
keyword  seed search without vectors, rechecker, reader                   lexical        lexical
                                                                          coverage       coverage
vector   embedder, seed search without words, rechecker, reader           cosine         cosine
hybrid   embedder, seed search, expander, rechecker, reranker, reader     the graph's    cosine
                                                                          score
=======  ===============================================================  =============  ==============

The stages are the chain's own, behind its circuit breakers, with its budgets. Unlike ``Chain.search`` this can leave
out one of the recalls, and goes beyond 50 hits. Without vectors, hybrid falls back on words, which a radius is then
held against; vector finds nothing. Both are a degradation.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.filters import Filter, predicate
from contracts.hits import NodeHit
from contracts.query import TypedQuery
from contracts.stages import (
    EmbedRequest,
    ExpandRequest,
    QueryVectors,
    ReadRequest,
    ReadResult,
    RerankRequest,
    SeedRequest,
    Stage,
)
from contracts.trace import Degradation
from gateway.memories import Memory
from stages.chain import Chain
from stages.redaction import Redactor
from stages.run import Run
from stages.scoring import rank_key
from stages.steps import expand, recall, recheck, rerank

WalkMethod = Literal["keyword", "vector", "hybrid"]
# Of each recall at least: fewer make neither faster.
_LEAST = 50
_MOST = 1000


class WalkQuery(msgspec.Struct, frozen=True):
    """What is looked for.

    Args:
        text: The query.
        method: How it is looked for.
        condition: Holds for every memory; names one owner space.
        limit: Memories wanted at most.
        radius: Least similarity of a memory, 0..1.
    """

    text: str
    method: WalkMethod
    condition: Filter
    limit: int
    radius: float = 0.0


class Walked(msgspec.Struct, frozen=True):
    """Memories, best first, and what was missing."""

    memories: tuple[Memory, ...] = ()
    degraded: tuple[Degradation, ...] = ()


class Walk:
    """Walks through the stages of a graph.

    Args:
        chain: Whose stages, budgets and observer these are.
        reader: Reads texts, behind its circuit breaker.
        redactor: Masks secrets in titles.
        candidates: Candidates recalled per memory wanted.
    """

    def __init__(
        self, chain: Chain, reader: Stage[ReadRequest, ReadResult], redactor: Redactor, candidates: int
    ) -> None:
        self._chain = chain
        self._reader = reader
        self._redactor = redactor
        self._candidates = candidates

    async def find(self, ctx: RequestContext, deadline: Deadline, query: WalkQuery) -> Walked:
        """Search.

        Raises:
            RecallFailed: Nothing could be searched.
            StageError: The texts could not be read.
        """
        run = self._chain.run(ctx, deadline)
        vectors = None if query.method == "keyword" else await self._embed(run, query.text)
        if query.method == "vector" and vectors is None:
            return Walked(degraded=tuple(run.degraded))
        hits, has_vectors = await self._hits(run, query, vectors)
        shown = _best(hits, query, has_vectors=has_vectors)
        memories = await self._read(ctx, deadline, query.condition, shown)
        return Walked(tuple(memories), tuple(run.degraded))

    async def _embed(self, run: Run, text: str) -> QueryVectors | None:
        embedder: Stage[EmbedRequest, QueryVectors | None] = self._chain.stages.embedder
        return await run.stage("embedder", embedder, EmbedRequest((text,)), lambda: None)

    async def _hits(self, run: Run, query: WalkQuery, vectors: QueryVectors | None) -> tuple[list[NodeHit], bool]:
        """Candidates that may show, best first, and whether their cosines are true."""
        stages, wanted = self._chain.stages, min(_MOST, max(_LEAST, self._candidates * query.limit))
        text = "" if query.method == "vector" else query.text
        queries = (TypedQuery(text, "memory", top_k=wanted),)
        seeds = await recall(run, stages.seed_search, SeedRequest(queries, vectors, query.condition, wanted))
        if seeds is None:
            raise RecallFailed("The memories could not be searched.", stage="seed_search")
        hits, usable = seeds.hits, None if seeds.keyword_only else vectors
        if query.method == "vector" and usable is None:
            return [], False
        if query.method == "hybrid":
            hits = (await expand(run, stages.expander, ExpandRequest(queries, usable, query.condition, hits))).hits
        checked = await recheck(run, stages.rechecker, queries, query.condition, hits)
        kept = [[hit for hit in each if hit.has_content and not hit.has_children] for each in checked.hits]
        if query.method == "hybrid":
            kept = await rerank(run, stages.reranker, RerankRequest(queries, kept))
        return kept[0], usable is not None

    async def _read(
        self, ctx: RequestContext, deadline: Deadline, condition: Filter, hits: Sequence[tuple[NodeHit, float]]
    ) -> list[Memory]:
        """The texts, of what still satisfies the condition by the source of truth."""
        if not hits:
            return []
        request = ReadRequest(tuple(hit.uri for hit, _ in hits), "L2", describe=True)
        result = await self._reader(ctx, deadline, request)
        read = {block.uri: (block, node) for block, node in zip(result.blocks, result.nodes, strict=True)}
        found = ((hit, score, *read[hit.uri]) for hit, score in hits if hit.uri in read)
        shows = predicate(condition)
        return [
            Memory(node, self._redactor.shown(hit.name, "L0"), block.abstract or "", block.content_excerpt, score)
            for hit, score, block, node in found
            if block.content_excerpt and shows(node.get)
        ]


def _best(hits: Sequence[NodeHit], query: WalkQuery, *, has_vectors: bool) -> list[tuple[NodeHit, float]]:
    """The hits to show with their scores, best first: chunks of one source folded to the best, far ones left out."""
    similar = {hit.uri: hit.scores.vector if has_vectors else hit.scores.keyword for hit in hits}
    if query.method == "hybrid":
        ranked = [(hit, hit.score) for hit in sorted(hits, key=rank_key)]
    else:
        ranked = sorted(((hit, similar[hit.uri]) for hit in hits), key=lambda pair: (-pair[1], pair[0].uri))
        # What only the other recall would have found is none of it.
        ranked = [(hit, score) for hit, score in ranked if score > 0]
    folded: dict[str, tuple[NodeHit, float]] = {}
    for hit, score in ranked:
        if similar[hit.uri] >= query.radius:
            folded.setdefault(hit.parent_uri if hit.kind == "chunk" else hit.uri, (hit, score))
    return list(folded.values())[: query.limit]

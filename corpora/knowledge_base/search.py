"""Hybrid search: hard filters, dense and keyword recall, a look at the source of truth, fusion, score (K1, K2, K5).

A stage of its own over two stages of the graph, the embedder and the seed search. What may not show is kept out twice:
the index applies all hard filters before it recalls, and every candidate is held against them once more as the database
has it at that moment. So withdrawing an entity, or adding a taboo to it, takes effect with the next search, while the
index catches up.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import BlankQuery, DatabaseDown, InvalidFilter, RecallFailed, StageTimeout, TopKOutOfRange
from contracts.filters import Filter, all_of, matches
from contracts.query import TypedQuery
from contracts.requests import MAX_QUERY
from contracts.requests import MAX_TOP_K as MAX_TYPED_TOP_K
from contracts.scope import narrowed
from contracts.stages import EmbedRequest, QueryVectors, SeedRequest, SeedResult, Stage
from contracts.text import UNSTORABLE
from contracts.trace import STAGES
from corpora.knowledge_base import sql
from corpora.knowledge_base.checks import is_keyword, keyword
from corpora.knowledge_base.config import MAX_TOP_K, KnowledgeBaseConfig
from corpora.knowledge_base.documents import condition, ids_of
from corpora.knowledge_base.gaps import Gaps
from corpora.knowledge_base.scoring import Candidate, Scoring, above, rule_parts
from corpora.knowledge_base.store import Store
from corpora.knowledge_base.types import SPACE, ScoredChunk, SearchOutcome, SearchRequest
from stages.guarded import BreakerConfig, Guarded
from stages.redaction import Redactor
from stages.run import Run, Silent, StageBudget
from stages.shapes import FITS

NAME = "knowledge_base"
# Of each recall, at most.
_MAX_RECALL = 1000
# A reason of ``SearchOutcome``: the whole knowledge base was searched and holds no answer.
NO_RESULT = "NO_RESULT: nothing was found; a gap was recorded"
_MAX_VALUES = 64


@dataclass(frozen=True)
class Question:
    """A search that was understood; ``hard`` are the hard filters that it gives values for."""

    text: str
    types: tuple[str, ...]
    hard: tuple[Filter, ...]
    gap_context: dict[str, Any]
    boosts: dict[str, float]
    top_k: int

    @property
    def pre_filter(self) -> Filter:
        """Of both recalls."""
        return condition(self.types, self.hard)

    def allows(self, attrs: dict[str, Any]) -> bool:
        """Whether an entity with these attributes passes all hard filters, by the meaning of the algebra."""
        return matches(all_of(*self.hard), {"attrs": attrs})


class HybridSearch:
    """The search, as a stage.

    Args:
        embedder: Makes the query's vector.
        seed_search: Recalls from the index of the knowledge base. It must keep all that both recalls find.
        store: The source of truth.
        gaps: Takes what was asked in vain.
        config: Filters, weights, limits and times.
        redactor: Masks secrets in the texts that leave.
    """

    def __init__(
        self,
        embedder: Stage[EmbedRequest, QueryVectors],
        seed_search: Stage[SeedRequest, SeedResult],
        store: Store,
        gaps: Gaps,
        config: KnowledgeBaseConfig,
        redactor: Redactor,
    ) -> None:
        self._embedder: Stage[EmbedRequest, QueryVectors | None] = _guarded("embedder", embedder, config.embed_ms)
        self._seed_search: Stage[SeedRequest, SeedResult] = _guarded("seed_search", seed_search, config.recall_ms)
        self._store = store
        self._gaps = gaps
        self._config = config
        self._redactor = redactor
        none = StageBudget(budget_ms=1, reserve_ms=0)
        self._budgets = {
            **dict.fromkeys(STAGES, none),
            "embedder": StageBudget(budget_ms=config.embed_ms, reserve_ms=0),
            "seed_search": StageBudget(budget_ms=config.recall_ms, reserve_ms=0),
        }

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: SearchRequest, /) -> SearchOutcome:
        """Answer a search.

        Raises:
            RequestError: The caller is at fault; nothing was searched.
            DatabaseDown: The source of truth can't be asked: rather no answer than one that was not checked.
        """
        question = understood(request, self._config)
        run = Run(ctx, deadline, self._budgets, Silent(), None)
        vectors = await run.stage("embedder", self._embedder, EmbedRequest((question.text,)), _nothing)
        results = await self._find(run, deadline, question, vectors)
        gap_id = ""
        if not results and not run.degraded:
            gap_id = await self._record(run, deadline, question)
        return SearchOutcome(
            results=tuple(map(self._shown, results[: question.top_k])),
            degraded=bool(run.degraded),
            reasons=tuple(run.degraded),
            gap_id=gap_id,
            retryable=bool(run.degraded) and not gap_id,
            request_id=ctx.request_id,
        )

    async def _find(
        self, run: Run, deadline: Deadline, question: Question, vectors: QueryVectors | None
    ) -> list[ScoredChunk]:
        """Recall and check; again and deeper while too few pass and the index has more."""
        pool = max(self._config.candidates, question.top_k)
        limit = min(_MAX_RECALL, pool)
        found: list[Candidate] = []
        while seeds := await self._recall(run, question, vectors, limit):
            found = above(await self._checked(run.ctx, deadline, question, seeds), self._config.min_vector)
            deeper = min(_MAX_RECALL, limit * self._config.deeper)
            if len(found) >= question.top_k or not seeds.more or deeper == limit or deadline.expired():
                for part in seeds.degraded:
                    run.degrade(part.stage, part.reason)
                break
            limit = deeper
        scoring = Scoring(self._config.weights, self._config.freshness_half_life_days, sql.now_ms(), question.boosts)
        return scoring.score(found, pool)

    async def _recall(
        self, run: Run, question: Question, vectors: QueryVectors | None, limit: int
    ) -> SeedResult | None:
        """What the index finds; ``None`` when it failed, as the run's degradations then say."""
        query = TypedQuery(question.text, "resource", top_k=min(MAX_TYPED_TOP_K, question.top_k))
        request = SeedRequest((query,), vectors, question.pre_filter, limit)
        stage: Stage[SeedRequest, SeedResult | None] = _As(narrowed(run.ctx, SPACE), self._seed_search)
        return await run.stage("seed_search", stage, request, _nothing, failed=RecallFailed)

    async def _checked(
        self, ctx: RequestContext, deadline: Deadline, question: Question, seeds: SeedResult
    ) -> list[Candidate]:
        """The candidates that show now, as the database has them."""
        hits = {ids_of(hit.uri): hit.scores for hit in seeds.hits[0]}
        if not hits:
            return []
        try:
            async with asyncio.timeout(deadline.left()):
                live = await self._store.live(ctx.account_id, [chunk_id for _, chunk_id in hits], question.types)
        except TimeoutError:
            raise StageTimeout("The candidates could not be checked in time.", stage=NAME) from None
        result = []
        for (entity_id, chunk_id), scores in hits.items():
            chunk, entity = live.get(chunk_id, (None, None))
            # A chunk that went to another entity is not what the index found.
            if chunk and entity and chunk.entity_id == entity_id and question.allows(dict(entity.attrs)):
                result.append(
                    Candidate(
                        chunk_id=chunk_id,
                        entity_id=entity_id,
                        text=chunk.text,
                        chunk_type=chunk.chunk_type,
                        entity_type=entity.type,
                        updated_at=entity.updated_at,
                        vec_score=scores.vector,
                        kw_score=scores.keyword,
                    )
                )
        return result

    async def _record(self, run: Run, deadline: Deadline, question: Question) -> str:
        try:
            async with asyncio.timeout(deadline.left()):
                gap = await self._gaps.record(run.ctx.account_id, question.text, question.gap_context)
        except (DatabaseDown, TimeoutError):
            run.degrade(NAME, f"{DatabaseDown.code}: nothing was found, and the gap could not be recorded")
            return ""
        run.degrade(NAME, NO_RESULT)
        return gap.gap_id

    def _shown(self, result: ScoredChunk) -> ScoredChunk:
        """A result as it may leave."""
        return msgspec.structs.replace(result, text=self._redactor.shown(result.text, "L2"))


class _As:
    """A stage, asked as another caller."""

    def __init__(self, ctx: RequestContext, stage: Stage[SeedRequest, SeedResult]) -> None:
        self._ctx = ctx
        self._stage = stage

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: SeedRequest, /) -> SeedResult:
        return await self._stage(self._ctx, deadline, request)


def understood(request: SearchRequest, config: KnowledgeBaseConfig) -> Question:
    """Check a search; nothing of it is left out in silence.

    Raises:
        BlankQuery: The text is blank or too long.
        TopKOutOfRange: ``top_k`` is not in 1..200.
        InvalidFilter: A hard filter is not declared, or a value of it or an entity type is no keyword.
        InvalidBody: A rule's boost is negative or no finite number.
    """
    text = request.query_text.strip()
    if not text or len(text) > MAX_QUERY or UNSTORABLE.search(text):
        raise BlankQuery(
            "query_text is blank or not text.", field="query_text", remedy=f"Send 1..{MAX_QUERY} characters."
        )
    top_k = config.top_k if request.top_k is None else request.top_k
    if not 1 <= top_k <= MAX_TOP_K:
        raise TopKOutOfRange("top_k is out of range.", field="top_k", remedy=f"Send 1..{MAX_TOP_K}.")
    types = _keywords("entity_types", request.entity_types) if request.entity_types else ()
    hard: list[Filter] = []
    given: dict[str, Any] = {"entity_types": list(types)} if types else {}
    for name, values in sorted(request.filters.items()):
        declared = config.filter_named(name)
        if declared is None:
            known = ", ".join(each.name for each in config.hard_filters) or "none"
            raise InvalidFilter(
                f"There is no hard filter {name[:64]!r}.",
                field="filters",
                remedy=f"Use one of {known}, or declare it in knowledge_base.hard_filters.",
            )
        keywords = _keywords(name, values)
        hard.append(declared.condition(keywords))
        given[name] = list(keywords)
    rule_parts(request.rule_boost)
    return Question(text, types, tuple(hard), given, dict(request.rule_boost), top_k)


def _keywords(field: str, values: Sequence[str]) -> tuple[str, ...]:
    """The values sorted and once each. None at all would mean no filter where one was meant."""
    if isinstance(values, str) or not 0 < len(values) <= _MAX_VALUES or not all(map(is_keyword, values)):
        raise InvalidFilter(
            f"{field} has no value, or one that is no keyword.",
            field=field,
            remedy="Send words without blanks around them, or leave it out.",
        )
    return tuple(sorted({keyword(value) for value in values}))


def _guarded(name: str, stage: Stage[Any, Any], budget_ms: int) -> Stage[Any, Any]:
    return Guarded(name, stage, budget_ms / 1000, BreakerConfig(), Silent(), FITS[name])


def _nothing() -> None:
    return None

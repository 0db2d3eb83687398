"""The chain: runs the stages in order under one deadline, and says what was missing (design decisions 1–3).

Stages are callables; whether they are objects in this process or Serve handles, the chain can't tell. All typed queries
of a request go through a stage in one call. When a stage fails, its share of time runs out or its circuit is open, its
degradation answers:

===========  ===================================================================================
planner      three queries, the text as it is
embedder     keyword recall only
seed_search  empty hits and a retryable mark (RET-5001)
expander     the seeds
rechecker    unchecked for relevance; what the caller may not see is dropped all the same (RET-5002)
reranker     the order before it
assembler    blocks made straight from the hits (RET-5003)
===========  ===================================================================================
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import AssemblyFailed
from contracts.filters import Filter, all_of, parse_filter
from contracts.hits import NodeHit, SeedHit
from contracts.query import CONTEXT_TYPES
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.scope import check_target
from contracts.stages import (
    AssembleRequest,
    Assembly,
    EmbedRequest,
    ExpandRequest,
    ExpandResult,
    NextActions,
    Observer,
    Plan,
    PlanRequest,
    QueryVectors,
    RecheckRequest,
    RecheckResult,
    RerankRequest,
    RerankResult,
    SeedRequest,
    SeedResult,
    Stage,
)
from contracts.trace import PLANNER_UNSURE, STAGES, TARGET_ABSENT
from stages.assembler import best_by_uri, block, select
from stages.guarded import BreakerConfig, Guarded
from stages.planner import plan_request, three_queries
from stages.run import Events, Run, Silent, StageBudget
from stages.shapes import FITS
from stages.steps import candidates, expand, recall, recheck, rerank
from stages.turns import Turns

# Budgets of C40 for the stages it names; the chain's total is the search_memory budget of 300 ms and what tails need.
_BUDGETS = {
    "planner": StageBudget(budget_ms=60, reserve_ms=2),
    "embedder": StageBudget(budget_ms=250, reserve_ms=20),
    "seed_search": StageBudget(budget_ms=400, reserve_ms=40),
    "expander": StageBudget(budget_ms=300, reserve_ms=0),
    "rechecker": StageBudget(budget_ms=150, reserve_ms=15),
    "reranker": StageBudget(budget_ms=1200, reserve_ms=0),
    "assembler": StageBudget(budget_ms=120, reserve_ms=10),
}
# Why the rechecker drops what the caller may not see or what is not there any more.
_HIDDEN = frozenset({"gone", "forbidden", "inactive", "expired"})


class ChainConfig(BaseModel):
    """How long the chain takes and how often it looks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_ms: int = Field(2000, ge=1, description="Whole search; a caller may ask for less, never for more.")
    budgets: dict[str, StageBudget] = Field(
        _BUDGETS, description="Per stage. Tight ones answer sooner and degrade oftener."
    )
    score_threshold: float | None = Field(
        None, ge=0, le=1, description="Used when a request gives none; null keeps every hit."
    )
    limit: int = Field(
        100,
        ge=1,
        le=1000,
        description="Candidates from each recall in the first round. More find more and cost time (about linear).",
    )
    deeper: int = Field(4, ge=1, le=10, description="Factor on the limit of the second round; 1 never looks again.")
    breaker: BreakerConfig = BreakerConfig()
    max_events: int = Field(200, ge=0, description="Events kept for a detailed trace; bounds the answer's size.")
    max_event_bytes: int = Field(65_536, ge=0, description="Their size as JSON; bounds it too.")


@dataclass(frozen=True)
class Stages:
    """The seven stages of the chain, as objects or as handles."""

    planner: Stage[PlanRequest, Plan]
    embedder: Stage[EmbedRequest, QueryVectors]
    seed_search: Stage[SeedRequest, SeedResult]
    expander: Stage[ExpandRequest, ExpandResult]
    rechecker: Stage[RecheckRequest, RecheckResult]
    reranker: Stage[RerankRequest, RerankResult]
    assembler: Stage[AssembleRequest, Assembly]


class Chain:
    """``search_memory``: planner → embedder → seed search → expander → rechecker → reranker → assembler.

    Args:
        stages: As objects or as handles; ``self.stages`` are the same behind their circuit breakers.
        config: How long it takes and how often it looks.
        observer: Told what the stages do.
        at_once: How many searches are worked on at once; others wait in the order they came. All of them by default.
    """

    def __init__(
        self, stages: Stages, config: ChainConfig, observer: Observer | None = None, at_once: int | None = None
    ) -> None:
        self._config = config
        self._observer = observer or Silent()
        self._budgets = {**_BUDGETS, **config.budgets}
        self._turns = Turns(at_once)
        self.stages = Stages(**{name: self._guarded(name, getattr(stages, name)) for name in STAGES})

    async def search(
        self,
        ctx: RequestContext,
        request: SearchMemoryRequest,
        must: Filter | None = None,
        *,
        rerank: bool = True,
        rerank_ms: int | None = None,
    ) -> SearchMemoryResponse:
        """Answer a search within the deadline; what is missing is named in ``degraded`` and ``trace.warnings`` (C30).

        Args:
            ctx: Who asks.
            request: What is asked.
            must: Holds for every hit, beside the caller's own filter.
            rerank: Whether the reranker is asked.
            rerank_ms: Longest wait for it, where that is less than its budget.

        Raises:
            RequestError: The caller is at fault: nothing was searched.
            Overloaded: The time was over before its turn came.
        """
        request.check()
        target = None if request.target_uri is None else check_target(ctx, request.target_uri)
        own = parse_filter(request.filter) if request.filter is not None else None
        caller = None if must is None and own is None else all_of(must, own)
        timeout = min(request.timeout_ms or self._config.timeout_ms, self._config.timeout_ms)
        detailed = request.include_debug and request.trace_level == "detailed"
        deadline = Deadline.after(timeout / 1000)
        run = self.run(ctx, deadline, rerank_ms=rerank_ms, detailed=detailed)
        async with self._turns.one(deadline):
            return await _Search(self.stages, self._config, run, request, target, caller, rerank=rerank).answer()

    def run(
        self, ctx: RequestContext, deadline: Deadline, *, rerank_ms: int | None = None, detailed: bool = False
    ) -> Run:
        """The books of one walk through ``stages``, with this chain's budgets and observer."""
        budgets = self._budgets
        if rerank_ms is not None:
            own = budgets["reranker"]
            budgets = budgets | {"reranker": own.model_copy(update={"budget_ms": min(own.budget_ms, rerank_ms)})}
        events = Events(self._config.max_events, self._config.max_event_bytes) if detailed else None
        return Run(ctx, deadline, budgets, self._observer, events)

    def _guarded(self, name: str, stage: Stage[Any, Any]) -> Stage[Any, Any]:
        budget = self._budgets[name].budget_ms / 1000
        return Guarded(name, stage, budget, self._config.breaker, self._observer, FITS[name])


@dataclass(frozen=True)
class _Round:
    """What one round found; ``failed`` when that is nothing because the recall failed."""

    plan: Plan
    seeds: SeedResult
    hits: list[list[NodeHit]]
    failed: bool


class _Search:
    """One search on its way through the stages."""

    def __init__(
        self,
        stages: Stages,
        config: ChainConfig,
        run: Run,
        request: SearchMemoryRequest,
        target: str | None,
        caller: Filter | None,
        *,
        rerank: bool,
    ) -> None:
        self._stages = stages
        self._reranks = rerank
        self._config = config
        self._run = run
        self._request = request
        self._caller = caller
        self._plan_request = plan_request(request, target)
        self._vectors: QueryVectors | None = None

    async def answer(self) -> SearchMemoryResponse:
        plan = await self._plan(self._plan_request)
        self._vectors = await self._embed(plan)
        found = await self._round(plan, self._config.limit)
        if self._too_few(found.hits) and not found.failed:
            found = await self._second_round(found)
        hits = found.hits
        if self._reranks:
            hits = await rerank(self._run, self._stages.reranker, RerankRequest(found.plan.queries, hits))
        assembly = await self._assemble(found.plan, hits)
        return SearchMemoryResponse(
            request_id=self._run.ctx.request_id,
            typed_queries=found.plan.queries,
            seed_hits=_seed_hits(found.seeds.hits, self._request.top_k),
            hits=assembly.blocks,
            next_actions=assembly.next_actions,
            trace=self._run.finish(),
            thinking_trace=self._run.thinking(),
            degraded=tuple(self._run.degraded),
            retryable=found.failed,
        )

    async def _plan(self, request: PlanRequest) -> Plan:
        plan = await self._run.stage(
            "planner", self._stages.planner, request, lambda: three_queries(self._run.ctx, request)
        )
        if plan.unsure:
            self._run.fall_back("planner", PLANNER_UNSURE)
        for query in plan.queries:
            self._run.event("planner", "planned", context_type=query.context_type, categories=query.categories)
        return plan

    async def _embed(self, plan: Plan) -> QueryVectors | None:
        request = EmbedRequest(tuple(query.text for query in plan.queries))
        embedder: Stage[EmbedRequest, QueryVectors | None] = self._stages.embedder
        vectors = await self._run.stage("embedder", embedder, request, _nothing, count=_rows)
        if vectors:
            self._run.event("embedder", "embedded", queries=vectors.rows, model=vectors.model.name)
        if vectors and vectors.truncated:
            self._run.warn("embedder: the query is longer than the model reads; its end counts for keywords only.")
        return vectors

    async def _round(self, plan: Plan, limit: int) -> _Round:
        """Recall, expand, recheck."""
        queries, vectors = plan.queries, self._vectors
        request = SeedRequest(queries, vectors, self._caller, limit)
        recalled = await recall(self._run, self._stages.seed_search, request)
        seeds = recalled or SeedResult([[] for _ in queries], more=False)
        if seeds.absent_targets:
            self._run.fall_back("seed_search", TARGET_ABSENT)
            queries = tuple(msgspec.structs.replace(query, target_uri=None) for query in queries)
        for query, found in zip(queries, seeds.hits, strict=True):
            self._run.event("seed_search", "recalled", context_type=query.context_type, hits=len(found))
        expanded = await expand(
            self._run,
            self._stages.expander,
            ExpandRequest(queries, None if seeds.keyword_only else vectors, self._caller, seeds.hits),
        )
        self._run.event("expander", "expanded", depth=expanded.depth, nodes=expanded.nodes, capped=expanded.capped)
        checked = await recheck(self._run, self._stages.rechecker, queries, self._caller, expanded.hits)
        shown = {hit.uri for found in checked.hits for hit in found}
        for drop in checked.drops:
            if drop.exclude_reason in _HIDDEN:
                # Which record it was, and why it is hidden, is not for the caller to know.
                self._run.event("rechecker", "dropped", exclude_reason="unavailable")
            else:
                shown.add(drop.uri)
                self._run.event("rechecker", "dropped", uri=drop.uri, exclude_reason=drop.exclude_reason)
        visible = [[hit for hit in found if hit.uri in shown] for found in seeds.hits]
        return _Round(plan, msgspec.structs.replace(seeds, hits=visible), checked.hits, failed=recalled is None)

    async def _second_round(self, first: _Round) -> _Round:
        """Look again, deeper and over all context types, when fewer hits are left than were asked for (decision 6).

        Nothing is gained, and nothing done, where the first round saw all there is. When the second recall fails, what
        the first one found stands.
        """
        pinned = self._plan_request.hints is not None and bool(self._plan_request.hints.context_types)
        widen = len(first.plan.queries) < len(CONTEXT_TYPES) and not pinned
        deepen = first.seeds.more and self._config.deeper > 1
        if not widen and not deepen:
            return first
        plan = await self._widened() if widen else first.plan
        limit = min(1000, self._config.limit * self._config.deeper if deepen else self._config.limit)
        self._run.event("chain", "second_round", widened=widen, limit=limit)
        second = await self._round(plan, limit)
        return replace(first, failed=not any(first.hits)) if second.failed else second

    async def _widened(self) -> Plan:
        self._run.warn("planner: too few hits in the planned context types; searched all of them.")
        plan = await self._plan(msgspec.structs.replace(self._plan_request, widen=True))
        if self._vectors is not None:
            # All typed queries of a request have the same text.
            first = self._vectors.unpack()[:1].tobytes()
            self._vectors = msgspec.structs.replace(
                self._vectors, rows=len(plan.queries), data=first * len(plan.queries)
            )
        return plan

    async def _assemble(self, plan: Plan, hits: list[list[NodeHit]]) -> Assembly:
        given = self._request.score_threshold
        request = AssembleRequest(
            queries=plan.queries,
            hits=hits,
            limit=self._request.top_k,
            threshold=self._config.score_threshold if given is None else given,
            gte=self._request.score_gte,
        )
        assembly = await self._run.stage(
            "assembler",
            self._stages.assembler,
            request,
            lambda: _raw_assembly(request),
            failed=AssemblyFailed,
            count=candidates,
        )
        self._run.event(
            "assembler", "assembled", hits=len(assembly.blocks), threshold_filtered=assembly.threshold_filtered
        )
        return assembly

    def _too_few(self, hits: list[list[NodeHit]]) -> bool:
        return len({hit.uri for found in hits for hit in found}) < self._request.top_k


def _raw_assembly(request: AssembleRequest) -> Assembly:
    chosen, filtered = select(request)
    return Assembly(tuple(map(block, chosen)), NextActions(), filtered)


def _seed_hits(hits: list[list[NodeHit]], top_k: int) -> tuple[SeedHit, ...]:
    """The best seeds, as many as the answer has hits: enough to see what the first round was about."""
    return tuple(hit.seed() for hit in best_by_uri(hit for found in hits for hit in found)[:top_k])


def _nothing() -> None:
    return None


def _rows(part: Any) -> int:
    return part.rows if isinstance(part, QueryVectors) else len(part.texts)

"""Hierarchical expander: from the roots and the seeds down the tree, with the parents' relevance as a soft prior (C12).

A child is scored from its index entry alone: its own relevance, and through ``hierarchy`` the lexical relevance of the
nodes above it. The prior lifts, it never cuts: pruning to the best few parents loses on real dialogues.
"""

from collections.abc import Iterable, Sequence

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.filters import Eq, Filter, In, Or, Range, all_of
from contracts.hits import NodeHit
from contracts.ports import Recalled, RecallQuery, SearchIndex, Vectors
from contracts.query import TypedQuery
from contracts.records import ModelRef
from contracts.scope import search_filter
from contracts.stages import ExpandRequest, ExpandResult
from contracts.uri import depth_of, parent_of
from stages.scoring import Scorer, ScoringConfig, degradations, missing, rank_key, with_hierarchy

STAGE = "expander"
# Depth of the nodes right below a root node: `strata://space/root/child` (contracts.uri.depth_of).
_BELOW_ROOTS = 2


class ExpanderConfig(BaseModel):
    """How far the expansion goes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_depth: int = Field(2, ge=0, le=8, description="Levels walked down; each costs one index call (C12: 2).")
    frontier: int = Field(10, ge=1, le=100, description="Nodes expanded a level and typed query, the most relevant.")
    children: int = Field(50, ge=1, le=1000, description="Best children taken a level and typed query.")
    max_nodes: int = Field(400, ge=1, le=10_000, description="Nodes a typed query may hold; beyond, the worst go.")
    reserve_ms: int = Field(10, ge=0, description="Stops going deeper when less than this is left of the budget.")


class Expander:
    """The expander stage."""

    def __init__(self, index: SearchIndex, config: ExpanderConfig, scoring: ScoringConfig) -> None:
        self._index = index
        self._config = config
        self._scoring = scoring

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: ExpandRequest) -> ExpandResult:
        """Expand all typed queries together: one index call a level, for all their frontiers and all their parents.

        Returns:
            Seeds and reached nodes, best first, within the caps on depth, nodes and time.
        """
        rows = request.vectors.unpack() if request.vectors else [None] * len(request.queries)
        model = request.vectors.model if request.vectors else None
        trees = [
            _Tree(ctx, query, position, row, model, request.caller, hits, self._config, self._scoring)
            for position, (query, row, hits) in enumerate(zip(request.queries, rows, request.hits, strict=True))
            if hits
        ]
        depth = 0
        answers: list[Recalled] = []
        while depth < self._config.max_depth and self._has_time(depth, deadline):
            found = await self._step(trees, deadline)
            if not found:
                break
            answers += found
            depth += 1
        hits: list[list[NodeHit]] = [[] for _ in request.queries]
        for tree in trees:
            hits[tree.position] = tree.ranked()
        nodes = sum(map(len, hits)) - sum(len(h) for h in request.hits)
        capped = any(tree.capped for tree in trees)
        return ExpandResult(hits, depth, max(0, nodes), capped, degradations(STAGE, answers))

    def _has_time(self, depth: int, deadline: Deadline) -> bool:
        return depth == 0 or deadline.left() * 1000 >= self._config.reserve_ms

    async def _step(self, trees: Sequence["_Tree"], deadline: Deadline) -> list[Recalled]:
        """One level; what the index answered, nothing when there was nothing to ask."""
        asked = [(tree, query, kind) for tree in trees for kind, query in tree.questions()]
        if not asked:
            return []
        answers = await self._index.recall([query for _, query, _ in asked], deadline)
        for (tree, _, kind), answer in zip(asked, answers, strict=True):
            tree.take(kind, answer)
        return answers


class _Tree:
    """What is known of the tree around the seeds of one typed query."""

    def __init__(
        self,
        ctx: RequestContext,
        query: TypedQuery,
        position: int,
        vector: Vectors | None,
        model: ModelRef | None,
        caller: Filter | None,
        seeds: Sequence[NodeHit],
        config: ExpanderConfig,
        scoring: ScoringConfig,
    ) -> None:
        self.position = position
        self.capped = False
        self._query = query
        self._vector = vector
        self._model = model
        self._scope = search_filter(ctx, query, caller)
        # Parents are looked at within the caller's visible scope, but outside the query's own narrowing.
        self._above = search_filter(ctx, msgspec.structs.replace(query, target_uri=None))
        self._config = config
        self._scoring = scoring
        self._nodes: dict[str, NodeHit] = {hit.uri: hit for hit in seeds}
        self._text: dict[str, float] = {hit.uri: hit.scores.keyword for hit in seeds}
        self._expanded: set[str] = set()
        self._first = True

    def questions(self) -> Iterable[tuple[str, RecallQuery]]:
        """The children of this level's frontier, and the parents whose relevance is not yet known."""
        frontier = self._frontier()
        conditions: list[Filter] = [In("parent_uri", tuple(frontier))] if frontier else []
        if self._first:
            conditions.extend(self._from_roots())
        self._first = False
        self._expanded.update(frontier)
        if conditions:
            condition = all_of(self._scope, Or(tuple(conditions)))
            yield (
                "children",
                RecallQuery(self._query.text, self._vector, condition, self._config.children, self._model),
            )
        unknown = sorted(self._unknown_parents())
        if unknown:
            condition = all_of(self._above, In("uri", tuple(unknown)))
            yield "parents", RecallQuery(self._query.text, None, condition, len(unknown))
            self._text.update(dict.fromkeys(unknown, 0.0))

    def _from_roots(self) -> Iterable[Filter]:
        """The roots of the walk with their children: below the target, or of the whole scope.

        Where no seed lies deeper than they do, the seed search has seen them all, and they are not asked for again.
        """
        root = self._query.target_uri
        floor = depth_of(root) + 1 if root else _BELOW_ROOTS
        if any(hit.depth > floor for hit in self._nodes.values()):
            yield Eq("parent_uri", root) if root else Range("depth", lte=floor)

    def take(self, kind: str, answer: Recalled) -> None:
        """Note what the index said."""
        if kind == "parents":
            self._text.update({hit.uri: hit.keyword for hit in answer.hits})
            return
        scored = Scorer(self._query, self.position, self._scoring, missing(answer, self._vector))
        for hit in answer.hits:
            self._text[hit.uri] = hit.keyword
            if hit.uri not in self._nodes:
                self._nodes[hit.uri] = scored(hit, f"expanded:{hit.parent_uri}")

    def ranked(self) -> list[NodeHit]:
        """All nodes with their parents' relevance in the score, best first, within the cap."""
        weights = self._scoring.weights
        priors = {parent: self._prior(parent) for parent in self._parents()}
        # A root is its own path, or every node below one would have the start of it.
        hits = sorted(
            (
                with_hierarchy(hit, priors[hit.parent_uri] if hit.parent_uri else hit.scores.relevance, weights)
                for hit in self._nodes.values()
            ),
            key=rank_key,
        )
        self.capped = len(hits) > self._config.max_nodes
        return hits[: self._config.max_nodes]

    def _frontier(self) -> list[str]:
        open_nodes = [hit for hit in self._nodes.values() if hit.has_children and hit.uri not in self._expanded]
        return [hit.uri for hit in sorted(open_nodes, key=rank_key)[: self._config.frontier]]

    def _parents(self) -> set[str]:
        return {hit.parent_uri for hit in self._nodes.values() if hit.parent_uri}

    def _unknown_parents(self) -> set[str]:
        above = {uri for parent in self._parents() for uri in _ancestors(parent, self._config.max_depth)}
        return above - self._text.keys()

    def _prior(self, parent: str) -> float:
        """The strongest lexical relevance among the nodes above, each level further up weighing ``decay`` less."""
        decay = self._scoring.depth_decay
        above = enumerate(_ancestors(parent, self._config.max_depth))
        return max((self._text.get(uri, 0.0) * decay**distance for distance, uri in above), default=0.0)


def _ancestors(parent: str, levels: int) -> Iterable[str]:
    while parent and levels:
        yield parent
        parent, levels = parent_of(parent), levels - 1

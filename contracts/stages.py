"""What goes into each stage and what comes out; compact structs that msgspec packs into a few kilobytes.

A stage is a callable of (context, deadline, request). All typed queries of a request travel together (design
decision 2); lists named ``hits`` hold one list a typed query.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec
import numpy as np

from contracts.breaker import BreakerState
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.filters import Filter
from contracts.hits import NodeHit, RetrievedBlock
from contracts.ports import NodeMeta, TextRole, Vectors
from contracts.query import ContextType, TimeRange, TypedQuery
from contracts.records import ModelRef
from contracts.trace import Degradation

In_contra = TypeVar("In_contra", contravariant=True)
Out_co = TypeVar("Out_co", covariant=True)


class Stage(Protocol[In_contra, Out_co]):
    """A stage, in-process or behind a Serve handle; the chain can't tell which (design decision 1)."""

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: In_contra, /) -> Out_co:
        """Answer before ``deadline``, or be cancelled.

        Raises:
            RequestError: The caller is at fault.
            StageError: The stage could not do its part.
        """
        ...


class PlannerHints(msgspec.Struct, frozen=True, gc=False):
    """How the caller steers the planner; every part optional."""

    intent: str | None = None
    context_types: tuple[ContextType, ...] = ()
    categories: tuple[str, ...] = ()
    must_have_terms: tuple[str, ...] = ()
    exclude_terms: tuple[str, ...] = ()


class SessionArchive(msgspec.Struct, frozen=True, gc=False):
    """What the session so far was about; every part optional.

    Args:
        topics: Key words of the session; they complete a query that is too short to stand by itself.
        context_types: Types searched lately; they decide where the query's own words do not.
    """

    topics: tuple[str, ...] = ()
    context_types: tuple[ContextType, ...] = ()


class PlanRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the planner."""

    query: str
    top_k: int
    categories: tuple[str, ...] = ()
    target_uri: str | None = None
    owner_space: str | None = None
    time_range: TimeRange | None = None
    session: SessionArchive | None = None
    hints: PlannerHints | None = None
    # Search all three context types whatever the words say: the chain's second round.
    widen: bool = False


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """Typed queries in priority memory > skill > resource; ``unsure`` is RET-4221."""

    queries: tuple[TypedQuery, ...]
    unsure: bool = False


class QueryVectors(msgspec.Struct, frozen=True, array_like=True):
    """Vectors as they travel: float32 bytes, row-major."""

    model: ModelRef
    rows: int
    data: bytes
    truncated: tuple[int, ...] = ()

    @classmethod
    def pack(cls, model: ModelRef, vectors: Vectors, truncated: tuple[int, ...] = ()) -> "QueryVectors":
        """From an array of shape (rows, dimensions)."""
        return cls(model, len(vectors), np.ascontiguousarray(vectors, dtype=np.float32).tobytes(), truncated)

    def unpack(self) -> Vectors:
        """To a read-only array of shape (rows, dimensions)."""
        return np.frombuffer(self.data, dtype=np.float32).reshape(self.rows, self.model.dimensions)


class EmbedRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the embedder."""

    texts: tuple[str, ...]
    role: TextRole = "query"


class SeedRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the seed search.

    Args:
        queries: Typed queries.
        vectors: One row a query, or ``None`` when the embedder is down: keyword recall only.
        caller: The caller's own filter.
        limit: Candidates from each recall.
    """

    queries: tuple[TypedQuery, ...]
    vectors: QueryVectors | None
    caller: Filter | None
    limit: int


class SeedResult(msgspec.Struct, array_like=True):
    """Seeds, best first, and whether a deeper recall could find more.

    ``absent_targets`` are target URIs in scope that hold nothing; their restriction was ignored (RET-4041).
    ``keyword_only`` says that there were no vectors, or that they were refused: later stages must not use them either.
    """

    hits: list[list[NodeHit]]
    more: bool
    absent_targets: tuple[str, ...] = ()
    keyword_only: bool = False
    degraded: tuple[Degradation, ...] = ()


class ExpandRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the expander: what the seed search got, and what it found."""

    queries: tuple[TypedQuery, ...]
    vectors: QueryVectors | None
    caller: Filter | None
    hits: list[list[NodeHit]]


class ExpandResult(msgspec.Struct, array_like=True):
    """Seeds and the nodes reached from them and from the roots, best first, with the hierarchy prior in the score."""

    hits: list[list[NodeHit]]
    depth: int = 0
    nodes: int = 0
    capped: bool = False
    degraded: tuple[Degradation, ...] = ()


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a check needs of a hit."""

    uri: str
    name: str


class RecheckRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the rechecker; made of hits by :meth:`of`."""

    queries: tuple[TypedQuery, ...]
    caller: Filter | None
    hits: list[list[Candidate]]

    @classmethod
    def of(
        cls, queries: tuple[TypedQuery, ...], caller: Filter | None, hits: Sequence[Sequence[NodeHit]]
    ) -> "RecheckRequest":
        """To check these hits, a list of them a query."""
        return cls(queries, caller, [[Candidate(hit.uri, hit.name) for hit in found] for found in hits])


class Drop(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A candidate dropped by the rechecker, and why (C13)."""

    uri: str
    query: int
    exclude_reason: str


class RecheckResult(msgspec.Struct, array_like=True):
    """Survivors, as ascending places in the request, and what was dropped."""

    kept: list[list[int]]
    drops: tuple[Drop, ...] = ()

    def of(self, hits: Sequence[Sequence[NodeHit]]) -> list[list[NodeHit]]:
        """The survivors of the hits that the request was made of."""
        return [[found[place] for place in kept] for found, kept in zip(hits, self.kept, strict=True)]


class RerankRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the reranker."""

    queries: tuple[TypedQuery, ...]
    hits: list[list[NodeHit]]


class Ranked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A hit in its new order: its place in the request, its new score, and the reranker's probability, if any."""

    place: int
    score: float
    rerank: float | None = None


class RerankResult(msgspec.Struct, array_like=True):
    """The same hits in a new order; ``scored`` of ``total`` got a rerank score in time."""

    ranked: list[list[Ranked]]
    scored: int = 0
    total: int = 0

    @classmethod
    def as_before(cls, hits: Sequence[Sequence[NodeHit]], total: int = 0) -> "RerankResult":
        """All in the order they came, none of ``total`` scored."""
        return cls([[Ranked(place, hit.score) for place, hit in enumerate(found)] for found in hits], 0, total)

    def of(self, hits: Sequence[Sequence[NodeHit]]) -> list[list[NodeHit]]:
        """The hits of the request in their new order, with their new scores."""
        return [
            [_rescored(found[each.place], each) for each in ranked]
            for found, ranked in zip(hits, self.ranked, strict=True)
        ]


def _rescored(hit: NodeHit, ranked: Ranked) -> NodeHit:
    if ranked.rerank is None and ranked.score == hit.score:
        return hit
    scores = msgspec.structs.replace(hit.scores, rerank=ranked.rerank)
    return msgspec.structs.replace(hit, score=ranked.score, scores=scores)


class AssembleRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the assembler. ``limit`` is the number of blocks wanted over all queries."""

    queries: tuple[TypedQuery, ...]
    hits: list[list[NodeHit]]
    limit: int
    threshold: float | None = None
    gte: bool = False


class NextActions(msgspec.Struct, frozen=True):
    """URIs worth reading next (C6); nothing is read by the search itself."""

    recommended_read_l1_uris: tuple[str, ...] = ()
    recommended_read_l2_uris: tuple[str, ...] = ()


class Assembly(msgspec.Struct, array_like=True):
    """The answer's blocks, best first."""

    blocks: tuple[RetrievedBlock, ...]
    next_actions: NextActions
    threshold_filtered: int = 0


class ReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """Input of the reader. ``level`` is L1 or L2; ``describe`` asks for ``nodes`` and ``revision`` too."""

    uris: tuple[str, ...]
    level: str = "L1"
    expand_relations: bool = False
    max_relations: int = 0
    describe: bool = False


class ReadResult(msgspec.Struct, array_like=True):
    """Blocks in the order of the request; ``forbidden`` are those that may not be read or do not exist (C22).

    Where the request says ``describe``, ``nodes`` is the metadata of each block, without the abstract that its block
    has, and ``revision`` that of ``SearchIndex.revision``, read no earlier than the request came.
    """

    blocks: tuple[RetrievedBlock, ...]
    forbidden: tuple[str, ...] = ()
    read_ms: int = 0
    relations_ms: int = 0
    nodes: tuple[NodeMeta, ...] = ()
    revision: str = ""


class Observer(Protocol):
    """Told what the chain does, for metrics; never the query text."""

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        """A stage answered."""
        ...

    def fallback(self, name: str, code: str) -> None:
        """A stage's degradation answered in its place, or a part of what it should do was left out."""
        ...

    def circuit(self, name: str, state: BreakerState) -> None:
        """A stage's circuit breaker stands so now; told at the start and at each change."""
        ...

"""A chain of the product's own stages on a stand-in index, for unit tests of what the chain does."""

import asyncio
from dataclasses import replace
from typing import Any

from contracts.breaker import BreakerState
from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import EmbedRequest, QueryVectors
from stages.assembler import Assembler, AssemblerConfig
from stages.chain import Chain, ChainConfig, Stages
from stages.expander import Expander, ExpanderConfig
from stages.planner import Planner, PlannerConfig
from stages.rechecker import Rechecker, RecheckerConfig
from stages.reranker import Reranker, RerankerConfig
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig
from tests.support.fake_index import FAKE_MODEL, FakeIndex, record

CTX = RequestContext("acme", "user", "user:ann", request_id="r-1")
RECORDS = [
    record("strata://shared/guide", "deploy guide", has_children=True),
    record("strata://shared/guide/rollback", "rollback a deploy"),
    record("strata://user:ann/likes", "prefers short deploy windows", context_type="memory"),
    record("strata://user:bob/likes", "deploy secrets", context_type="memory"),
]


async def fake_embedder(ctx: RequestContext, deadline: Deadline, request: EmbedRequest) -> QueryVectors:
    """An embedder for which all texts mean the same."""
    return QueryVectors(FAKE_MODEL, len(request.texts), b"\0\0\x80?\0\0\0\0" * len(request.texts))


def stages(index: FakeIndex) -> Stages:
    """The seven stages on an index."""
    scoring = ScoringConfig()
    return Stages(
        planner=Planner(PlannerConfig()),
        embedder=fake_embedder,
        seed_search=SeedSearch(index, SeedSearchConfig(), scoring),
        expander=Expander(index, ExpanderConfig(), scoring),
        rechecker=Rechecker(index, RecheckerConfig()),
        reranker=Reranker(RerankerConfig(), None),
        assembler=Assembler(AssemblerConfig()),
    )


class Recorder:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.fallbacks: list[tuple[str, str]] = []
        self.circuits: dict[str, BreakerState] = {}

    def stage(self, name: str, seconds: float, items_in: int, items_out: int) -> None:
        """A stage answered."""
        self.stages.append(name)

    def fallback(self, name: str, code: str) -> None:
        """Less than was asked for was answered."""
        self.fallbacks.append((name, code))

    def circuit(self, name: str, state: BreakerState) -> None:
        """A circuit breaker stands so now."""
        self.circuits[name] = state


async def search(
    query: str = "deploy", *, index: FakeIndex | None = None, config: ChainConfig | None = None, **changes: Any
) -> SearchMemoryResponse:
    """One search by Ann; ``changes`` are fields of the request, stages by name, or ``observer``."""
    fields = {name: changes.pop(name) for name in list(changes) if name in SearchMemoryRequest.model_fields}
    observer = changes.pop("observer", None)
    parts = replace(stages(index or FakeIndex(RECORDS)), **changes)
    return await Chain(parts, config or ChainConfig(), observer).search(CTX, SearchMemoryRequest(query=query, **fields))


def uris(response: SearchMemoryResponse) -> set[str]:
    """What was found."""
    return {hit.uri for hit in response.hits}


async def raises(ctx: object, deadline: object, request: object) -> Any:
    """A stage that fails."""
    raise RuntimeError("with a secret in it")


async def hangs(ctx: object, deadline: object, request: object) -> Any:
    """A stage that never answers."""
    await asyncio.Event().wait()

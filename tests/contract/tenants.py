"""Tenants of an index, and searches and reads of theirs through the product's own stages; look-ups are counted."""

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.hits import Level, Relation
from contracts.ports import Embeddable, NodeMeta, Recalled, RecallQuery
from contracts.records import Document, Node
from contracts.requests import SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.uri import parent_of
from models.deterministic import DeterministicEmbedder
from stages.assembler import Assembler, AssemblerConfig
from stages.chain import Chain, ChainConfig, Stages
from stages.embedder import EmbedderStage
from stages.expander import Expander, ExpanderConfig
from stages.planner import Planner, PlannerConfig
from stages.reader import Reader, ReaderConfig
from stages.rechecker import Rechecker, RecheckerConfig
from stages.redaction import RedactionConfig, Redactor
from stages.reranker import Reranker, RerankerConfig
from stages.run import StageBudget
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearch, SeedSearchConfig
from tests.contract.conftest import Index
from tests.contract.corpus import vectors

EMBEDDER = DeterministicEmbedder(8)
PAST, FUTURE = 1, 2**52
SOURCE = "source"
SPACES = ("shared", "user:ann", "user:bob", "agent:planner", "team:x")
PATHS = ("a", "a/b", "a/b/c", "ab", "d/e", "文")
URIS = [f"strata://{space}/{path}" for space in SPACES for path in PATHS]
ANN = RequestContext("", "user", "user:ann", spaces=("team:x",))
# Accounts that no test used before.
names = (f"tenant {number}" for number in itertools.count())
# Nobody waits here, on a machine however busy: a stage that gives up would hide what it would have let pass.
PATIENT = {stage: StageBudget(budget_ms=120_000, reserve_ms=0) for stage in Stages.__dataclass_fields__}


class CountingIndex:
    """An index that notes which look-ups reach it, and can be made to show what it held earlier."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.asked: list[Any] = []
        self._kept: list[list[Recalled]] | None = None

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        self.asked.append(queries)
        if self._kept:
            return self._kept[min(len(self.asked), len(self._kept)) - 1]
        return await self._index.recall(queries, deadline)

    async def lag(self, search: Callable[[], Awaitable[object]]) -> None:
        """From now on a search finds what it finds now, however the records change: the index lags behind."""
        self.asked, kept = [], []
        recall = self.recall

        async def keep(queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
            kept.append(await recall(queries, deadline))
            return kept[-1]

        self.recall = keep  # type: ignore[method-assign]
        await search()
        self.recall, self.asked, self._kept = recall, [], kept  # type: ignore[method-assign]

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        self.asked.append(uris)
        return await self._index.meta(account_id, uris)

    async def revision(self, account_id: str) -> str:
        return await self._index.revision(account_id)

    async def model(self) -> Any:
        return await self._index.model()

    async def read(self, account_id: str, uris: Sequence[str], level: Level) -> dict[str, str]:
        if uris:
            self.asked.append(uris)
        return await self._index.read(account_id, uris, level)

    async def edges(self, account_id: str, uri: str, limit: int) -> list[Relation]:
        self.asked.append(uri)
        return await self._index.edges(account_id, uri, limit)


def chain(index: Any, *, limit: int = 100, candidates: int = 100) -> Chain:
    """The chain on an index; with vectors, it finds every record."""
    scoring = ScoringConfig()
    stages = Stages(
        planner=Planner(PlannerConfig()),
        embedder=EmbedderStage(EMBEDDER),
        seed_search=SeedSearch(index, SeedSearchConfig(), scoring),
        expander=Expander(index, ExpanderConfig(), scoring),
        rechecker=Rechecker(index, RecheckerConfig(candidates=candidates)),
        reranker=Reranker(RerankerConfig()),
        assembler=Assembler(AssemblerConfig()),
    )
    return Chain(stages, ChainConfig(timeout_ms=600_000, budgets=PATIENT, limit=limit))


def reader(index: Any) -> Reader:
    """The reader on an index."""
    return Reader(index, index, index, ReaderConfig(), Redactor(RedactionConfig()))


async def search(index: Any, ctx: RequestContext, **fields: Any) -> SearchMemoryResponse:
    """A search to which nothing is missing; ``fields`` are those of the request."""
    answer = await chain(index).search(ctx, SearchMemoryRequest(**({"query": "common", "top_k": 50} | fields)))
    assert not answer.degraded
    return answer


def shown(answer: SearchMemoryResponse) -> set[str]:
    """All URIs that an answer names anywhere."""
    found = {hit.uri for hit in answer.hits}
    advised = answer.next_actions
    others = {*advised.recommended_read_l1_uris, *advised.recommended_read_l2_uris, *(s.uri for s in answer.seed_hits)}
    traced = {
        event.detail["uri"]
        for event in (answer.thinking_trace.events if answer.thinking_trace else ())
        if "uri" in event.detail
    }
    assert others | traced <= found
    return found


def made(uri: str, **changes: Any) -> Node:
    """A node with sensible defaults."""
    parent = parent_of(uri) if uri.count("/") > 3 else ""
    plain = Node(uri, parent, uri.rpartition("/")[2], "section", "resource", "guide", "common words", "l1", "l2")
    return msgspec.structs.replace(plain, **changes)


async def store(index: Index, account: str, nodes: Sequence[Node]) -> None:
    """Make these nodes all that an account has."""
    embeddable = Embeddable(Document("d", str(time.perf_counter_ns()), tuple(nodes)), vectors(len(nodes)))
    await index.put(account, SOURCE, [embeddable], EMBEDDER.model)

"""A corpus, its two paths, a reader and a switch made up for unit tests of the core."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import MissingDimension
from contracts.filters import Eq
from contracts.hits import RetrievedBlock, ScoreBreakdown
from contracts.ports import NodeMeta
from contracts.stages import ReadRequest, ReadResult
from contracts.uri import space_of
from corpora.rag.cache import CacheConfig, RankingCache
from corpora.rag.core import Core
from corpora.rag.documents import index_source
from corpora.rag.paths import Paths
from corpora.rag.retrieve_config import RetrieveConfig
from corpora.rag.texts import Texts
from corpora.rag.types import (
    CorpusHit,
    CorpusQuery,
    Decision,
    Path,
    Ranked,
    Ranking,
    Raw,
    RetrieveEvent,
    Scope,
    ShadowEvent,
    SourceDocument,
)
from stages.redaction import RedactionConfig, Redactor

CTX = RequestContext("acme", "user", "user:ann", request_id="r-1")
SPACE = "user:ann"


def uri(name: str) -> str:
    """The URI of a source of the corpus ``notes``."""
    return f"strata://{SPACE}/notes/{name}"


def node(name: str, **changes: Any) -> NodeMeta:
    """A live node of that corpus, of session s1."""
    made = NodeMeta(
        account_id="acme",
        source_id=index_source(SPACE, "notes"),
        uri=uri(name),
        owner_space=SPACE,
        status="active",
        context_type="memory",
        attrs={"session": ("s1",), "source": (name,), "title": (f"Title of {name}",), "start": ("0",), "end": ("9",)},
        has_content=True,
        updated_at=5,
    )
    return msgspec.structs.replace(made, **changes)


def ranking(*names: str, **changes: Any) -> Ranking:
    """Hits in this order, each a little less relevant than the one before it."""
    scores = [0.9 - number / 100 for number in range(len(names))]
    hits = (Ranked(uri(name), score, score, ScoreBreakdown()) for name, score in zip(names, scores, strict=True))
    return Ranking(tuple(hits), **changes)


class FakeCorpus:
    """A corpus with one mandatory dimension, ``session``; counts what it is asked, and orders as the test says."""

    name = "notes"

    def __init__(self) -> None:
        self.order: Callable[[Sequence[CorpusHit]], list[CorpusHit]] = list
        self.raws: list[Raw] = []

    def build_ingest_documents(self, ctx: RequestContext, raw: Raw) -> list[SourceDocument]:
        raise NotImplementedError

    def build_retrieve_filter(self, ctx: RequestContext, raw: Raw) -> Scope:
        self.raws.append(raw)
        if not raw.get("session"):
            raise MissingDimension("session is missing.", field="session")
        return Scope(SPACE, Eq("attrs.session", raw["session"]), "memory")

    def arrange(self, raw: Raw, hits: Sequence[CorpusHit]) -> list[CorpusHit]:
        self.raws.append(raw)
        return self.order(hits)


class FakePath:
    """A path that answers what the test says, and notes what it is asked."""

    def __init__(self, *names: str) -> None:
        self.asked: list[tuple[RequestContext, CorpusQuery]] = []
        self.act: Callable[[], Awaitable[Ranking]] = self.answer
        self.result = ranking(*names)

    async def retrieve(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery) -> Ranking:
        self.asked.append((ctx, query))
        return await self.act()

    async def answer(self) -> Ranking:
        return self.result

    def fail(self, error: Exception) -> None:
        """From now on raise."""

        async def failing() -> Ranking:
            raise error

        self.act = failing

    async def hang(self) -> Ranking:
        await asyncio.Event().wait()
        raise AssertionError("It hangs.")


class FakeReader:
    """A reader over live nodes."""

    def __init__(self, *names: str) -> None:
        self.nodes = {uri(name): node(name) for name in names}
        self.revision = "1"
        self.asked: list[ReadRequest] = []
        self.error: Exception | None = None

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: ReadRequest) -> ReadResult:
        self.asked.append(request)
        if self.error:
            raise self.error
        shown = [self.nodes[each] for each in request.uris if each in self.nodes and ctx.may_see(space_of(each))]
        return ReadResult(tuple(map(_block, shown)), nodes=tuple(shown), revision=self.revision)


class FakeSwitch:
    """Decides as the test says."""

    def __init__(self, path: Path = "rag", *, shadow: bool = False) -> None:
        self.decision = Decision(path, shadow)
        self.asked: list[tuple[str, str]] = []
        self.error: Exception | None = None

    async def decide(self, corpus: str, user: str) -> Decision:
        self.asked.append((corpus, user))
        if self.error:
            raise self.error
        return self.decision


class Events:
    """An observer that remembers; ``compared`` is set by each shadow."""

    def __init__(self) -> None:
        self.retrievals: list[RetrieveEvent] = []
        self.shadows: list[ShadowEvent] = []
        self.compared = asyncio.Event()

    def retrieved(self, event: RetrieveEvent) -> None:
        self.retrievals.append(event)

    def shadowed(self, event: ShadowEvent) -> None:
        self.shadows.append(event)
        self.compared.set()


class World:
    """A core with all that it stands on."""

    def __init__(self, *names: str, cache: CacheConfig | None = None, **config: Any) -> None:
        self.corpus = FakeCorpus()
        self.graph, self.keyword, self.reader = FakePath(*names), FakePath(*names), FakeReader(*names)
        self.switch, self.events = FakeSwitch(), Events()
        self.config = RetrieveConfig(**config)
        self.cache = RankingCache(cache or CacheConfig())
        reserve = self.config.reader_reserve_ms / 1000
        paths = Paths({"rag": self.graph, "keyword": self.keyword}, Texts(self.reader), self.cache, reserve, "m")
        redactor = Redactor(RedactionConfig())
        self.core = Core({"notes": self.corpus}, paths, self.config, self.switch, redactor, self.events)


def _block(shown: NodeMeta) -> RetrievedBlock:
    return RetrievedBlock(
        uri=shown.uri,
        level_hit="L2",
        score=1.0,
        category=shown.category,
        owner_space=shown.owner_space,
        abstract="",
        overview=None,
        content_excerpt=f"text of {shown.attrs['source'][0]}",
        relations=(),
        has_overview=False,
        has_content=True,
        read_recommendation="none",
        match_reason="read",
    )

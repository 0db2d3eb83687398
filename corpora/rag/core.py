"""The one core under every corpus: from a request to hits, whatever of it fails (R1, R3).

::

    adapter: where to look → cache → graph, or the old keyword search → threshold → texts, and what may show now
    → adapter: order → the best

One deadline holds for all. What fails costs a part of the answer and is named in ``degraded``: without its reranker the
graph keeps its order, and a graph that can't search leaves the answer to the keyword search. Only when that fails too
does the caller get an error, which says so.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidBody, StageFailed, StrataError
from contracts.filters import Eq, all_of, parse_filter
from contracts.scope import narrowed
from contracts.trace import Degradation
from corpora.rag.documents import index_source
from corpora.rag.paths import Found, Paths
from corpora.rag.ports import CorpusAdapter, CorpusObserver, Switch
from corpora.rag.requests import RetrieveRequest
from corpora.rag.retrieve_config import RetrieveConfig
from corpora.rag.shadow import Shadows
from corpora.rag.types import (
    CacheUse,
    CorpusHit,
    CorpusQuery,
    Decision,
    Path,
    Raw,
    Retrieved,
    RetrieveEvent,
    Scope,
    ShadowEvent,
)
from stages.redaction import Redactor

logger = logging.getLogger(__name__)

# The stage that a degradation names when a corpus could not order its hits; and the names of unknown corpora.
ADAPTER, UNKNOWN = "corpus", "unknown"
_SHOWN_NAME = 64
_OTHER: Mapping[Path, Path] = {"rag": "keyword", "keyword": "rag"}


class Silent:
    """An observer that looks away."""

    def retrieved(self, event: RetrieveEvent) -> None:
        """Nothing."""

    def shadowed(self, event: ShadowEvent) -> None:
        """Nothing."""


class Core:
    """Retrieves from corpora.

    Args:
        corpora: Adapters by the name of their corpus.
        paths: Find hits.
        config: Limits.
        switch: Which path answers whom.
        redactor: Masks secrets in titles; texts come masked from the reader.
        observer: Told of each retrieval.
    """

    def __init__(
        self,
        corpora: Mapping[str, CorpusAdapter],
        paths: Paths,
        config: RetrieveConfig,
        switch: Switch,
        redactor: Redactor,
        observer: CorpusObserver | None = None,
    ) -> None:
        self._corpora = corpora
        self._paths = paths
        self._config = config
        self._switch = switch
        self._redactor = redactor
        self._observer = observer or Silent()
        self._shadows = Shadows(config.max_shadows, config.shadow_timeout_ms / 1000, self._observer)

    async def close(self) -> None:
        """End what still goes on beside answers."""
        await self._shadows.close()

    async def retrieve(self, ctx: RequestContext, corpus: str, request: RetrieveRequest) -> Retrieved:
        """Answer a retrieval within its deadline; what is missing is named in ``degraded``.

        Args:
            ctx: Who asks.
            corpus: Name of the corpus.
            request: What is asked.

        Raises:
            RequestError: The caller is at fault, and nothing was searched; or there is no room.
            StageError: Neither path could answer.
        """
        began = time.perf_counter()
        try:
            answer, cache = await self._retrieve(ctx, corpus, request)
        except StrataError as error:
            name = corpus if corpus in self._corpora else UNKNOWN
            event = RetrieveEvent(ctx.request_id, ctx.account_id, name, "none", error.code, _ms(began))
            self._observer.retrieved(event)
            raise
        event = RetrieveEvent(
            trace_id=ctx.request_id,
            account_id=ctx.account_id,
            corpus=corpus,
            path=answer.path,
            outcome="degraded" if answer.degraded else "ok",
            latency_ms=_ms(began),
            hit_count=len(answer.hits),
            below_threshold=answer.below_threshold,
            fallback_reasons=tuple(dict.fromkeys(map(_reason, answer.degraded))),
            cache=cache,
        )
        self._observer.retrieved(event)
        return answer

    async def _retrieve(self, ctx: RequestContext, corpus: str, request: RetrieveRequest) -> tuple[Retrieved, CacheUse]:
        longest = self._config.timeout_ms
        deadline = Deadline.after(min(request.timeout_ms or longest, longest) / 1000)
        request.check()
        adapter, raw = self._adapter(corpus), request.raw()
        query = self._query(corpus, _scope(adapter, ctx, raw), request)
        inside = narrowed(ctx, query.scope.space)
        arranged = partial(self._answer, ctx.request_id, corpus, adapter, raw, request.top_k or self._config.top_k)
        decision = await self._decision(corpus, ctx)
        began = time.perf_counter()
        found = await self._paths.find(inside, deadline, corpus, query, decision.path)
        answer = arranged(found)
        # A remembered answer says nothing about how fast its path is, nor one of the other path about this one.
        if decision.shadow and found.cache != "hit" and found.path == decision.path:
            self._shadows.begin(
                answer,
                time.perf_counter() - began,
                partial(self._shadow, inside, query, _OTHER[found.path], arranged),
            )
        return answer, found.cache

    async def _shadow(
        self, ctx: RequestContext, query: CorpusQuery, path: Path, arranged: Callable[[Found], Retrieved]
    ) -> Retrieved:
        deadline = Deadline.after(self._config.shadow_timeout_ms / 1000)
        return arranged(await self._paths.search(ctx, deadline, query, path))

    def _adapter(self, corpus: str) -> CorpusAdapter:
        try:
            return self._corpora[corpus]
        except KeyError:
            known = ", ".join(sorted(self._corpora))
            raise InvalidBody(
                f"There is no corpus {corpus[:_SHOWN_NAME]!r}.", field="corpus", remedy=f"Use one of {known}."
            ) from None

    def _query(self, corpus: str, scope: Scope, request: RetrieveRequest) -> CorpusQuery:
        config = self._config
        own = parse_filter(request.filter) if request.filter is not None else None
        source = index_source(scope.space, corpus)
        return CorpusQuery(
            # The planner cuts blanks off too. Nothing else is done to a text: a model may read it differently.
            text=request.query.strip(),
            scope=scope,
            condition=all_of(Eq("owner_space", scope.space), Eq("source_id", source), scope.must, own),
            candidates=max(config.candidates, request.top_k or config.top_k),
            threshold=config.threshold if request.threshold is None else request.threshold,
            rerank=config.rerank if request.rerank is None else request.rerank,
        )

    async def _decision(self, corpus: str, ctx: RequestContext) -> Decision:
        """The switch's; the graph where it can't say."""
        user = f"{ctx.account_id}/{ctx.user_space or ctx.agent_space}"
        try:
            async with asyncio.timeout(self._config.switch_timeout_ms / 1000):
                return await self._switch.decide(corpus, user)
        except Exception as error:
            logger.warning("The switch of corpus %s does not answer: %s", corpus, type(error).__name__)
            return Decision("rag")

    def _answer(
        self, request_id: str, corpus: str, adapter: CorpusAdapter, raw: Raw, top_k: int, found: Found
    ) -> Retrieved:
        hits, failed = _arranged(adapter, raw, found.hits)
        degraded = (*found.degraded, *failed)
        return Retrieved(
            request_id=request_id,
            corpus=corpus,
            hits=tuple(map(self._shown, hits[:top_k])),
            path=found.path,
            cached=found.cache == "hit",
            below_threshold=found.below_threshold,
            degraded=degraded,
            # The reranker finds nothing, nor does the adapter.
            retryable=any(part.stage not in {"reranker", ADAPTER} for part in degraded),
        )

    def _shown(self, hit: CorpusHit) -> CorpusHit:
        title = self._redactor.shown(hit.title, "L2")
        return hit if title == hit.title else msgspec.structs.replace(hit, title=title)


def _scope(adapter: CorpusAdapter, ctx: RequestContext, raw: Raw) -> Scope:
    try:
        return adapter.build_retrieve_filter(ctx, raw)
    except StrataError:
        raise
    except Exception as error:
        raise StageFailed(f"The corpus could not read the request ({type(error).__name__}).", stage=ADAPTER) from error


def _arranged(
    adapter: CorpusAdapter, raw: Raw, hits: Sequence[CorpusHit]
) -> tuple[Sequence[CorpusHit], tuple[Degradation, ...]]:
    """The hits as the adapter orders them, and nothing that was not among them; as they are when it fails."""
    given = {hit.uri for hit in hits}
    try:
        return [hit for hit in adapter.arrange(raw, hits) if hit.uri in given], ()
    except Exception as error:
        return hits, (Degradation(ADAPTER, f"{StageFailed.code}: {type(error).__name__}", 0),)


def _reason(part: Degradation) -> str:
    return f"{part.stage}:{part.reason.split(':', 1)[0]}"


def _ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)

"""The graph of this product as the upstream: searches of the memory corpus in one owner's space."""

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StageError
from contracts.filters import Filter, all_of
from contracts.trace import Degradation
from gateway import memories
from gateway.agentic import Agentic, Found
from gateway.concurrently import side_by_side
from gateway.config import GraphUpstreamConfig
from gateway.dsl import compiled
from gateway.llm import ABSENT, LanguageModel, reason
from gateway.memories import CONDITIONS, RANKED, Memory
from gateway.requests import ALL
from gateway.rerank import LanguageModelReranker
from gateway.scopes import Filters
from gateway.upstream import MemoryArray, UpstreamAnswer, UpstreamQuery, User
from gateway.walk import Walk, WalkMethod, WalkQuery

_RERANK = "llm_rerank"
# Kept for the answer's way back.
_MARGIN_S = 0.2


class GraphUpstream:
    """The graph behind the protocol of an upstream.

    Args:
        walk: Searches.
        config: How many, and how far.
        model: Plans and reranks; ``None`` for none.
        must: Holds for every memory, beside all else: for instance what users are cleared for.
    """

    def __init__(
        self, walk: Walk, config: GraphUpstreamConfig, model: LanguageModel | None = None, must: Filter | None = None
    ) -> None:
        self._walk = walk
        self._config = config
        self._model = model
        self._must = must
        self._agentic = Agentic(model, config.agentic)
        self._reranker = LanguageModelReranker(model, config.rerank) if model else None

    def check(self, filters: Filters | None) -> None:
        """See ``gateway.upstream.Upstream``."""
        if filters:
            compiled(filters)

    async def search(self, user: User, deadline: Deadline, query: UpstreamQuery) -> UpstreamAnswer:
        """See ``gateway.upstream.Upstream``.

        ``top_k`` holds for each array. Profiles are the owner's, whatever filters and radius say of the rest.

        Raises:
            InvalidFilter: The filters are malformed; nothing was searched.
            StageError: Nothing could be searched or read.
        """
        # What is late shall cost its own part of the answer, not all of it.
        deadline = Deadline(deadline.at - min(_MARGIN_S, deadline.left() / 4))
        custom = compiled(query.filters, scoped=True) if query.filters else None
        space = memories.space_of(user, query.owner)
        if not space:
            return UpstreamAnswer()
        ctx = RequestContext(user.account_id, "agent", agent_space=space, request_id=query.request_id)
        own = all_of(memories.in_owner(space, query), self._must)
        search = _Search(self._walk, ctx, deadline, query, self._limit(query.top_k))
        work = [self._ranked(search, all_of(own, custom))]
        if query.include_profile and query.owner.kind == "user_id":
            work.append(search.find(query.query, "hybrid", ("profiles",), own, radius=0.0))
        found = await side_by_side(work)
        return UpstreamAnswer(
            **{
                array: tuple(memories.shown(memory, array, query) for memory in each)
                for part in found
                for array, each in part.arrays.items()
            },
            degraded=tuple(dict.fromkeys(note for part in found for note in part.degraded)),
        )

    async def close(self) -> None:
        """Close the language model's connections."""
        if self._model:
            await self._model.close()

    async def _ranked(self, search: "_Search", condition: Filter) -> Found:
        query, arrays = search.query, RANKED[search.query.owner.kind]
        radius = query.radius or 0.0
        if query.method == "agentic":

            async def find(text: str) -> Found:
                return await search.find(text, "hybrid", arrays, condition, radius)

            found = await self._agentic.search(query.query, find, search.deadline, search.limit)
        else:
            found = await search.find(query.query, query.method, arrays, condition, radius)
        if query.enable_llm_rerank and query.method in {"hybrid", "agentic"}:
            return await self._reranked(search, found)
        return found

    async def _reranked(self, search: "_Search", found: Found) -> Found:
        """All arrays ordered together, so that their scores can be compared."""
        if self._reranker is None:
            return _noted(found, ABSENT)
        try:
            ordered = await self._reranker.order(search.query.query, found.best(), search.deadline)
        except StageError as error:
            return _noted(found, reason(error))
        array_of = {memory.node.uri: array for array, each in found.arrays.items() for memory in each}
        arrays: dict[MemoryArray, tuple[Memory, ...]] = {
            array: tuple(memory for memory in ordered if array_of[memory.node.uri] == array) for array in found.arrays
        }
        return Found(arrays, found.degraded)

    def _limit(self, top_k: int) -> int:
        return self._config.max_top_k if top_k == ALL else min(top_k, self._config.max_top_k)


class _Search:
    """What all walks of one search share."""

    def __init__(self, walk: Walk, ctx: RequestContext, deadline: Deadline, query: UpstreamQuery, limit: int) -> None:
        self._walk = walk
        self._ctx = ctx
        self.deadline = deadline
        self.query = query
        self.limit = limit

    async def find(
        self, text: str, method: WalkMethod, arrays: tuple[MemoryArray, ...], condition: Filter, radius: float
    ) -> Found:
        """Search each array by itself, so that one can't crowd out another."""
        walked = await side_by_side(
            self._walk.find(
                self._ctx,
                self.deadline,
                WalkQuery(text, method, all_of(condition, CONDITIONS[array]), self.limit, radius),
            )
            for array in arrays
        )
        return Found(
            {array: each.memories for array, each in zip(arrays, walked, strict=True)},
            tuple(dict.fromkeys(note for each in walked for note in each.degraded)),
        )


def _noted(found: Found, why: str) -> Found:
    return Found(found.arrays, (*found.degraded, Degradation(_RERANK, why, 0)))

"""The knowledge base as other applications see it (K7): to search, and to write."""

from collections.abc import Callable, Collection, Mapping, Sequence

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidInput
from contracts.ports import Embedder
from contracts.records import ModelRef
from contracts.stages import Stage
from corpora.knowledge_base import checks
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.gaps import Gaps, clustered
from corpora.knowledge_base.store import Store
from corpora.knowledge_base.types import (
    Asset,
    Chunk,
    ChunkText,
    Entity,
    EntityStatus,
    Gap,
    GapCluster,
    SearchOutcome,
    SearchRequest,
)

Searching = Stage[SearchRequest, SearchOutcome]


class Searcher:
    """Searches the knowledge base, wherever it runs.

    Args:
        stage: The search: an object in this process, or one behind a Serve handle.
        timeout_ms: Of a whole search.
    """

    def __init__(self, stage: Searching, timeout_ms: int) -> None:
        self._stage = stage
        self._timeout_ms = timeout_ms

    async def search(
        self,
        query_text: str,
        user_ctx: RequestContext,
        entity_types: Sequence[str] = (),
        occasion: str | None = None,
        body_shape: str | None = None,
        rule_boost: Mapping[str, float] | None = None,
        top_k: int | None = None,
        *,
        filters: Mapping[str, str | Sequence[str]] | None = None,
        timeout_ms: int | None = None,
    ) -> SearchOutcome:
        """Find the chunks that answer a question best, of entities that pass all hard filters (K1).

        Args:
            query_text: 1..8192 characters.
            user_ctx: Who asks; nothing of another account is seen.
            entity_types: Only entities of one of these; empty for any.
            occasion: Only entities for this occasion; the hard filter of that name.
            body_shape: No entity that this body shape should avoid; the hard filter of that name.
            rule_boost: By chunk id, 0..1; larger ones are divided by the largest.
            top_k: Results wanted, 1..200; ``None`` for the configured number.
            filters: Values for further hard filters that the deployment declares, by name.
            timeout_ms: At most the configured time.

        Raises:
            RequestError: The caller is at fault; nothing was searched.
            DatabaseDown: The candidates could not be checked against the source of truth.
            StageTimeout: They could not be checked in time.
        """
        given = dict(filters or {})
        given |= {
            name: value for name, value in (("occasion", occasion), ("body_shape", body_shape)) if value is not None
        }
        request = SearchRequest(
            query_text,
            tuple(entity_types),
            {name: (value,) if isinstance(value, str) else tuple(value) for name, value in given.items()},
            dict(rule_boost or {}),
            top_k,
        )
        milliseconds = min(timeout_ms or self._timeout_ms, self._timeout_ms)
        return await self._stage(user_ctx, Deadline.after(milliseconds / 1000), request)


class KnowledgeBase(Searcher):
    """All of the knowledge base, in a process that reaches its database.

    What is written shows once the index has caught up, within ``outbox.poll_s`` and the time to embed; what is
    withdrawn is gone with the next search.

    Args:
        stage: The search.
        store: Entities, chunks, assets.
        gaps: What was asked in vain.
        embedder: Of the chunks.
        config: Declared attributes, filters, limits.
        wake: Called after each write, so that a worker in this process need not wait.
    """

    def __init__(
        self,
        stage: Searching,
        store: Store,
        gaps: Gaps,
        embedder: Embedder,
        config: KnowledgeBaseConfig,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(stage, config.timeout_ms)
        self.store = store
        self.gaps = gaps
        self.config = config
        self._embedder = embedder
        self._wake = wake

    @property
    def model(self) -> ModelRef:
        """Of the vectors of what is written from now on."""
        return self._embedder.model

    async def put_entities(self, ctx: RequestContext, entities: Sequence[Entity]) -> int:
        """Write entities, replacing those of the same id; all of them or none. Returns how many are new or changed.

        Raises:
            InvalidInput: One can't be stored, or has an attribute that is not declared or of another kind.
        """
        ready = [checks.entity(entity, self.config) for entity in entities]
        return self._noted(await self.store.put_entities(ctx.account_id, ready))

    async def set_status(self, ctx: RequestContext, entity_ids: Collection[str], status: EntityStatus) -> None:
        """Publish or withdraw entities.

        Raises:
            InvalidInput: One does not exist; the others are done.
        """
        known = await self.store.set_status(ctx.account_id, entity_ids, status)
        self._wake()
        if missing := sorted(set(entity_ids) - known):
            raise InvalidInput(f"There is no entity {missing[0]!r}.", field="entity_id")

    async def delete_entities(self, ctx: RequestContext, entity_ids: Collection[str]) -> int:
        """Remove entities with their chunks and assets; returns how many there were."""
        return self._noted(len(await self.store.delete_entities(ctx.account_id, entity_ids)))

    async def upsert_chunks(self, ctx: RequestContext, chunks: Sequence[ChunkText]) -> None:
        """Write chunks, replacing those of the same id; all of them or none. Each gets the model and its version (K4).

        Raises:
            InvalidInput: One can't be stored, its entity does not exist, or another entity has it.
        """
        ready = [checks.chunk(chunk) for chunk in chunks]
        await self.store.put_chunks(ctx.account_id, ready, self.model)
        self._wake()

    async def replace_chunks(self, ctx: RequestContext, entity_id: str, texts: Mapping[str, str]) -> None:
        """Make these the chunks of an entity, by id; all others of it go.

        Raises:
            InvalidInput: As :meth:`upsert_chunks`.
        """
        ready = [checks.chunk(ChunkText(chunk_id, entity_id, text)) for chunk_id, text in texts.items()]
        await self.store.replace_chunks(ctx.account_id, entity_id, ready, self.model)
        self._wake()

    async def chunks(self, ctx: RequestContext, entity_id: str) -> list[Chunk]:
        """The chunks of an entity, whatever its status."""
        return await self.store.chunks(ctx.account_id, entity_id)

    async def put_assets(self, ctx: RequestContext, assets: Sequence[Asset]) -> None:
        """Write assets, replacing those of the same id; all of them or none (K6).

        Raises:
            InvalidInput: One can't be stored, or its entity does not exist.
        """
        await self.store.put_assets(ctx.account_id, [checks.asset(asset) for asset in assets])

    async def assets(self, ctx: RequestContext, entity_id: str, tryon_ready: bool | None = None) -> list[Asset]:
        """The assets of an entity, those alone that can be tried on or can't, where asked for (K6)."""
        return await self.store.assets(ctx.account_id, entity_id, tryon_ready)

    async def list_gaps(self, ctx: RequestContext, *, resolved: bool = False, limit: int | None = None) -> list[Gap]:
        """The gaps, most hits first (K5)."""
        return await self.gaps.list(ctx.account_id, resolved=resolved, limit=limit)

    async def gap_clusters(self, ctx: RequestContext, similarity: float | None = None) -> list[GapCluster]:
        """The open gaps, those that ask for the same together, most hits first."""
        least = self.config.gap_similarity if similarity is None else similarity
        return await clustered(await self.gaps.list(ctx.account_id), self._embedder, least)

    async def resolve_gaps(self, ctx: RequestContext, gap_ids: Collection[str], note: str = "") -> int:
        """Close gaps; asked in vain again, one opens again. Returns how many were open."""
        return await self.gaps.resolve(ctx.account_id, gap_ids, note)

    def _noted(self, count: int) -> int:
        if count:
            self._wake()
        return count

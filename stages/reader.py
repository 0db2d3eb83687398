"""Reader: L1 overviews and L2 contents by URI, after a second access check (C7, C22, C23)."""

import time

from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidUri
from contracts.hits import Relation, RetrievedBlock
from contracts.ports import ContentStore, NodeMeta, RelationStore, SearchIndex
from contracts.stages import ReadRequest, ReadResult
from contracts.uri import parse, space_of
from stages.redaction import redact


class ReaderConfig(BaseModel):
    """How much is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(
        20_000, ge=100, description="Characters of a text handed out; longer ones are cut and end with an ellipsis."
    )


class Reader:
    """The reader: a walk of its own beside the chain."""

    def __init__(
        self, index: SearchIndex, content: ContentStore, relations: RelationStore, config: ReaderConfig
    ) -> None:
        self._index = index
        self._content = content
        self._relations = relations
        self._config = config

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: ReadRequest) -> ReadResult:
        """Read the texts of one level.

        Returns:
            Blocks in the order asked; what may not be read or does not exist is in ``forbidden``, the two not told
            apart. A node without that level gives a block whose text is ``None``.
        """
        started = time.perf_counter()
        visible = await self._visible(ctx, request.uris)
        texts = await self._content.read(ctx.account_id, list(visible), "L1" if request.level == "L1" else "L2")
        read_ms = _ms(started)
        started = time.perf_counter()
        blocks = []
        for uri, node in visible.items():
            relations = await self._edges(ctx, uri, request.max_relations) if request.expand_relations else ()
            blocks.append(self._block(node, request.level, texts.get(uri), relations))
        forbidden = tuple(uri for uri in request.uris if _canonical(uri) not in visible)
        return ReadResult(tuple(blocks), forbidden, read_ms, _ms(started))

    async def _visible(self, ctx: RequestContext, uris: tuple[str, ...]) -> dict[str, NodeMeta]:
        """Live metadata of the URIs the caller may read, in the order asked."""
        wanted = [uri for uri in dict.fromkeys(map(_canonical, uris)) if uri and ctx.may_see(space_of(uri))]
        nodes = await self._index.meta(ctx.account_id, wanted) if wanted else {}
        now = time.time() * 1000
        return {
            uri: node
            for uri in wanted
            if (node := nodes.get(uri))
            and ctx.may_see(node.owner_space)
            and node.status == "active"
            and not 0 < node.expires_at <= now
        }

    async def _edges(self, ctx: RequestContext, uri: str, limit: int) -> tuple[Relation, ...]:
        """One hop of relations, without those to nodes the caller may not read."""
        edges = await self._relations.edges(ctx.account_id, uri, limit) if limit else []
        visible = await self._visible(ctx, tuple(edge.to_uri for edge in edges))
        return tuple(edge for edge in edges if edge.to_uri in visible)

    def _block(self, node: NodeMeta, level: str, text: str | None, relations: tuple[Relation, ...]) -> RetrievedBlock:
        excerpt = self._excerpt(text)
        return RetrievedBlock(
            uri=node.uri,
            level_hit="L1" if level == "L1" else "L2",
            score=1.0,
            category=node.category,
            owner_space=node.owner_space,
            abstract=node.abstract,
            overview=excerpt if level == "L1" else None,
            content_excerpt=redact(excerpt) if level == "L2" and excerpt is not None else None,
            relations=relations,
            has_overview=node.has_overview,
            has_content=node.has_content,
            read_recommendation="read_l2" if level == "L1" and node.has_content else "none",
            match_reason="read",
        )

    def _excerpt(self, text: str | None) -> str | None:
        limit = self._config.max_chars
        return text if text is None or len(text) <= limit else text[: limit - 1] + "…"


def _canonical(uri: str) -> str:
    """The canonical URI, or empty for one that can't be: it can't exist, so it reads as forbidden."""
    try:
        return parse(uri)
    except InvalidUri:
        return ""


def _ms(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)

"""Reader: L1 overviews and L2 contents by URI, after a second access check (C7, C22, C23)."""

import asyncio
import time
from typing import Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import InvalidUri
from contracts.filters import predicate
from contracts.hits import Relation, RetrievedBlock
from contracts.ports import ContentStore, NodeMeta, RelationStore, SearchIndex
from contracts.scope import system_filter
from contracts.stages import ReadRequest, ReadResult
from contracts.uri import parse, space_of
from stages.redaction import Redactor


class ReaderConfig(BaseModel):
    """How much is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(
        20_000, ge=100, description="Characters of a text handed out; longer ones are cut and end with an ellipsis."
    )
    max_edges: int = Field(
        200,
        ge=1,
        le=5_000,
        description="Heaviest relations of a node looked at, to find those wanted among the ones that may be seen.",
    )


class Reader:
    """The reader: a walk of its own beside the chain.

    Args:
        index: Tells what may be read.
        content: The texts.
        relations: The edges.
        config: How much is read.
        redactor: Masks secrets in what leaves.
    """

    def __init__(
        self,
        index: SearchIndex,
        content: ContentStore,
        relations: RelationStore,
        config: ReaderConfig,
        redactor: Redactor,
    ) -> None:
        self._index = index
        self._content = content
        self._relations = relations
        self._config = config
        self._redactor = redactor

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: ReadRequest) -> ReadResult:
        """Read the texts of one level.

        Returns:
            Blocks in the order asked; what may not be read or does not exist is in ``forbidden``, the two not told
            apart. A node without that level gives a block whose text is ``None``.
        """
        started = time.perf_counter()
        level: Literal["L1", "L2"] = "L1" if request.level == "L1" else "L2"
        visible, revision = await asyncio.gather(
            self._visible(ctx, request.uris), self._revision(ctx.account_id, describe=request.describe)
        )
        texts = await self._content.read(ctx.account_id, list(visible), level)
        read_ms = _ms(started)
        started = time.perf_counter()
        wanted = request.max_relations if request.expand_relations else 0
        edges = await asyncio.gather(*(self._edges(ctx, uri, wanted) for uri in visible))
        blocks = tuple(
            self._block(node, level, texts.get(uri), found)
            for (uri, node), found in zip(visible.items(), edges, strict=True)
        )
        forbidden = tuple(uri for uri in request.uris if _canonical(uri) not in visible)
        nodes = map(_described, visible.values()) if request.describe else ()
        return ReadResult(blocks, forbidden, read_ms, _ms(started), tuple(nodes), revision)

    async def _visible(self, ctx: RequestContext, uris: tuple[str, ...]) -> dict[str, NodeMeta]:
        """Live metadata of the URIs the caller may read, in the order asked; of other spaces none is looked up."""
        wanted = [uri for uri in dict.fromkeys(map(_canonical, uris)) if uri and ctx.may_see(space_of(uri))]
        nodes = await self._index.meta(ctx.account_id, wanted) if wanted else {}
        visible = predicate(system_filter(ctx))
        return {uri: node for uri in wanted if (node := nodes.get(uri)) and visible(node.get)}

    async def _revision(self, account_id: str, *, describe: bool) -> str:
        return await self._index.revision(account_id) if describe else ""

    async def _edges(self, ctx: RequestContext, uri: str, wanted: int) -> tuple[Relation, ...]:
        """One hop of relations, heaviest first; those to nodes the caller may not read are not counted either."""
        if not wanted:
            return ()
        edges = await self._relations.edges(ctx.account_id, uri, self._config.max_edges)
        visible = await self._visible(ctx, tuple(edge.to_uri for edge in edges))
        return tuple(edge for edge in edges if edge.to_uri in visible)[:wanted]

    def _block(
        self, node: NodeMeta, level: Literal["L1", "L2"], text: str | None, relations: tuple[Relation, ...]
    ) -> RetrievedBlock:
        excerpt = None if text is None else self._redactor.excerpt(text, level, self._config.max_chars)
        return RetrievedBlock(
            uri=node.uri,
            level_hit=level,
            score=1.0,
            category=node.category,
            owner_space=node.owner_space,
            abstract=self._redactor.shown(node.abstract, "L0"),
            overview=excerpt if level == "L1" else None,
            content_excerpt=excerpt if level == "L2" else None,
            relations=relations,
            has_overview=node.has_overview,
            has_content=node.has_content,
            read_recommendation="read_l2" if level == "L1" and node.has_content else "none",
            match_reason="read",
        )


def _described(node: NodeMeta) -> NodeMeta:
    """A node's metadata as it may leave: its abstract is in the block, with what is secret masked."""
    return msgspec.structs.replace(node, abstract="")


def _canonical(uri: str) -> str:
    """The canonical URI, or empty for one that can't be: it can't exist, so it reads as forbidden."""
    try:
        return parse(uri)
    except InvalidUri:
        return ""


def _ms(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)

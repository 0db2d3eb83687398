"""Reads what a ranking found: its texts, and by the source of truth whether they may show now."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.filters import predicate
from contracts.hits import RetrievedBlock
from contracts.ports import NodeMeta
from contracts.stages import ReadRequest, ReadResult, Stage
from corpora.rag.types import END, SOURCE_ID, START, TITLE, CorpusHit, CorpusQuery, Ranked

_OURS = frozenset({SOURCE_ID, TITLE, START, END})


class Read(NamedTuple):
    """Hits that may show now, in the order of the ranking, and the account's revision from the same moment."""

    hits: list[CorpusHit]
    revision: str


class Texts:
    """One call of the reader stage, which looks at the source of truth.

    Args:
        reader: The stage, behind its circuit breaker.
    """

    def __init__(self, reader: Stage[ReadRequest, ReadResult]) -> None:
        self._reader = reader

    async def read(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery, ranked: Sequence[Ranked]) -> Read:
        """Read hits; those that are gone, may not be seen, or no longer satisfy the query's condition are left out.

        Raises:
            StageError: The reader did not answer.
        """
        result = await self._reader(ctx, deadline, ReadRequest(tuple(hit.uri for hit in ranked), "L2", describe=True))
        shows = predicate(query.condition)
        shown = {
            block.uri: (block, node)
            for block, node in zip(result.blocks, result.nodes, strict=True)
            if block.content_excerpt and shows(node.get)
        }
        hits = [_hit(hit, *shown[hit.uri]) for hit in ranked if hit.uri in shown]
        return Read(hits, result.revision)

    async def revision(self, ctx: RequestContext, deadline: Deadline) -> str:
        """The account's revision now; see ``SearchIndex.revision``.

        Raises:
            StageError: The reader did not answer.
        """
        return (await self._reader(ctx, deadline, ReadRequest((), "L2", describe=True))).revision


def _hit(ranked: Ranked, block: RetrievedBlock, node: NodeMeta) -> CorpusHit:
    attrs = node.attrs
    return CorpusHit(
        uri=ranked.uri,
        source_id=_first(attrs, SOURCE_ID),
        title=_first(attrs, TITLE),
        text=block.content_excerpt or "",
        score=ranked.score,
        relevance=ranked.relevance,
        scores=ranked.scores,
        attrs={name: values for name, values in attrs.items() if name not in _OURS},
        start=_offset(attrs, START),
        end=_offset(attrs, END),
        updated_at=node.updated_at,
        expires_at=node.expires_at,
    )


def _first(attrs: Mapping[str, tuple[str, ...]], name: str) -> str:
    return next(iter(attrs.get(name, ())), "")


def _offset(attrs: Mapping[str, tuple[str, ...]], name: str) -> int:
    value = _first(attrs, name)
    return int(value) if value.isdecimal() else -1

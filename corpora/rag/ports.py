"""The interfaces of the core (R1), each as narrow as its caller needs.

The embedder of R1 is ``contracts.ports.Embedder``: its role ``passage`` is R1's action add or update, ``query`` its
action search. The reranker of R1 is the graph's own stage, ``Stage[RerankRequest, RerankResult]``; ``reranker.kind:
none`` is the NoopReranker.
"""

from collections.abc import Sequence
from typing import Protocol

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.ports import Embeddable, NodeMeta, Recalled, RecallQuery
from contracts.records import ModelRef, Node
from corpora.rag.types import (
    CorpusHit,
    CorpusQuery,
    Decision,
    Ranking,
    Raw,
    RetrieveEvent,
    Scope,
    ShadowEvent,
    SourceDocument,
)


class CorpusAdapter(Protocol):
    """What makes a corpus: how its input becomes documents, where a retrieval looks, and how hits are ordered.

    A package adds one under the entry point group ``strata.corpora``: a callable without arguments, or with the
    corpus's own settings, that returns an adapter.
    """

    @property
    def name(self) -> str:
        """Names the corpus in URLs, settings and metrics: lower-case letters, digits and ``-``."""
        ...

    def build_ingest_documents(self, ctx: RequestContext, raw: Raw) -> list[SourceDocument]:
        """Read one ingest body.

        Args:
            ctx: Who writes.
            raw: The decoded body, not checked yet.

        Raises:
            InvalidBody: A field is unknown, missing or of the wrong type; names it.
            MissingDimension: A mandatory dimension is missing; names it (R6).
            TargetForbidden: The caller may not write there.
        """
        ...

    def build_retrieve_filter(self, ctx: RequestContext, raw: Raw) -> Scope:
        """Read the dimensions and options of one retrieval; nothing is searched before.

        Raises:
            MissingDimension: A mandatory dimension is missing; names it (R6).
            InvalidBody: A dimension or option is unknown or of the wrong type.
            TargetForbidden: The caller may not see what it names, whether it exists or not.
        """
        ...

    def arrange(self, raw: Raw, hits: Sequence[CorpusHit]) -> list[CorpusHit]:
        """Weigh, fold and order hits that passed the threshold; it drops or lowers, and adds nothing."""
        ...


class Retriever(Protocol):
    """Finds chunks in one scope, by the graph or by the old keyword search."""

    async def retrieve(self, ctx: RequestContext, deadline: Deadline, query: CorpusQuery) -> Ranking:
        """Find, best first, before the texts are read and any corpus has arranged the hits.

        Args:
            ctx: Already narrowed to the scope's space.
            deadline: When the ranking is due.
            query: What is asked.

        Raises:
            StageError: Nothing could be searched.
        """
        ...


class Switch(Protocol):
    """Says which path answers a user of a corpus, live (R8)."""

    async def decide(self, corpus: str, user: str) -> Decision:
        """The decision for a user, the same one each time while the switch stands; at once, and without raising."""
        ...


class CorpusObserver(Protocol):
    """Told what happens in corpora, for metrics and logs (R7); never the query text."""

    def retrieved(self, event: RetrieveEvent) -> None:
        """A retrieval was answered, refused or failed."""
        ...

    def shadowed(self, event: ShadowEvent) -> None:
        """A shadow was compared with the answer, failed, or had no room."""
        ...


class VectorStore(Protocol):
    """Where chunks lie; the index backends seen from a corpus."""

    async def upsert(
        self, account_id: str, space: str, corpus: str, documents: Sequence[Embeddable], model: ModelRef
    ) -> None:
        """Store sources with all their chunks, replacing what they had; each shows whole or not at all."""
        ...

    async def search(self, query: RecallQuery) -> Recalled:
        """Dense and keyword recall."""
        ...

    async def delete(self, account_id: str, space: str, corpus: str, source_ids: Sequence[str]) -> None:
        """Remove sources with all their chunks; ids that do not exist are ignored."""
        ...

    async def get(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """Live metadata by URI."""
        ...


class Chunker(Protocol):
    """Cuts a source into the nodes that are searched."""

    def chunk(self, corpus: str, document: SourceDocument) -> tuple[Node, ...]:
        """The nodes of a source, in order; each chunk is a slice of the text, and none of the text is lost (R2)."""
        ...

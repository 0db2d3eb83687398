"""The narrow protocols through which stages meet index backends and models; each contract is written here, once."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.deadline import Deadline
from contracts.filters import Filter, predicate
from contracts.hits import Level, Relation
from contracts.records import Document, ModelRef, Node

Vectors = NDArray[np.float32]
TextRole = Literal["query", "passage"]


class Embedder(Protocol):
    """Turns texts into unit vectors (K3)."""

    @property
    def model(self) -> ModelRef:
        """The model whose vectors these are."""
        ...

    async def embed(self, texts: Sequence[str], role: TextRole) -> "Embedded":
        """Embed texts.

        Args:
            texts: Any number, any length, not blank.
            role: Chooses the prefix that the model wants.

        Returns:
            One L2-normalised row a text, in order, and which texts were cut at the model's limit.
        """
        ...


class Embedded(msgspec.Struct, frozen=True):
    """Vectors, float32 of shape (n, dimensions), and the positions of texts that were cut."""

    vectors: Vectors
    truncated: tuple[int, ...] = ()


class PairScorer(Protocol):
    """Scores (query, passage) pairs, the engine of a cross-encoder reranker."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Relevance in 0..1 a pair, in order. Blocking: the caller chooses the thread and the batch."""
        ...


class RecallQuery(msgspec.Struct, frozen=True):
    """One query to the index.

    Args:
        text: What keyword recall looks for; empty for none.
        vector: float32 of shape (dimensions,), L2-normalised; ``None`` for keyword recall only.
        condition: Hard pre-filter of both recalls; names one account, see ``contracts.filters.account_of``.
        limit: Candidates from each of the two recalls, 1..1000.
        model: The model of ``vector``, compared with that of the index; ``None`` when the caller knows they agree.
    """

    text: str
    vector: Vectors | None
    condition: Filter
    limit: int
    model: ModelRef | None = None


class RecallHit(msgspec.Struct, frozen=True, gc=False):
    """A record found: metadata, abstract and its two true scores, whichever recall found it."""

    uri: str
    parent_uri: str
    name: str
    kind: str
    category: str
    owner_space: str
    context_type: str
    depth: int
    abstract: str
    has_overview: bool
    has_content: bool
    has_children: bool
    vector: float
    keyword: float
    found_by: Literal["dense", "keyword", "both"]


Recall = Literal["dense", "keyword"]
# Why dense recall is refused when vectors can't be compared (design decision 9).
OTHER_MODEL = "the query was embedded by another model than the index"


class Recalled(msgspec.Struct, frozen=True):
    """What one query found, best first by nothing in particular: ranking is the stages' business.

    Args:
        hits: Each record once.
        failed: Recalls that failed, with the reason.
        more: Whether a higher limit could find further records.
        partial: Recalls that looked at a part of the index only, with the reason; their hits count.
    """

    hits: tuple[RecallHit, ...]
    failed: Mapping[Recall, str]
    more: bool
    partial: Mapping[Recall, str] = {}


class NodeMeta(msgspec.Struct, frozen=True, gc=False):
    """Live metadata of a node, from the source of truth: all that a filter can name, and what a reader shows."""

    account_id: str
    source_id: str
    uri: str
    owner_space: str
    status: str
    context_type: str
    level: int = 0
    depth: int = 0
    parent_uri: str = ""
    category: str = ""
    kind: str = ""
    tags: tuple[str, ...] = ()
    attrs: dict[str, tuple[str, ...]] = {}
    created_at: int = 0
    updated_at: int = 0
    expires_at: int = 0
    abstract: str = ""
    has_overview: bool = False
    has_content: bool = False

    def satisfies(self, condition: Filter) -> bool:
        """Whether the node satisfies a filter now, by the meaning of the algebra."""
        return predicate(condition)(self.get)

    def get(self, field: str) -> Any:
        """The value of a field, as a ``contracts.filters.predicate`` asks for it."""
        return getattr(self, field, None)


class SearchIndex(Protocol):
    """Dense and keyword recall over L0 records."""

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        """Run all queries side by side in one call.

        A candidate found by one recall gets its true score of the other too. When one recall fails, the other's hits
        come back and ``failed`` says so; a vector of another model fails dense recall.

        Args:
            queries: Any number, of any accounts.
            deadline: When work on them should stop; a backend may stop earlier.

        Raises:
            RecallFailed: Both recalls of a query failed.
            InvalidFilter: A condition names no account, or a field the index lacks.
        """
        ...

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """Live metadata by URI; URIs that do not exist are left out."""
        ...

    async def revision(self, account_id: str) -> str:
        """Names what of an account shows now: another name after each write that shows, by whatever process.

        What was found after a name was read, and before a call that gives the same name, is what would be found now.
        A name never comes again once another one has been given; it says nothing about what is written.
        """
        ...

    async def model(self) -> ModelRef | None:
        """The model whose vectors the index holds; ``None`` while it is empty."""
        ...


class ContentStore(Protocol):
    """L1 and L2 texts by URI."""

    async def read(self, account_id: str, uris: Sequence[str], level: Level) -> dict[str, str]:
        """Texts by URI; a node without that level is left out. Does no access check: the reader does."""
        ...


class RelationStore(Protocol):
    """Edges between nodes."""

    async def edges(self, account_id: str, uri: str, limit: int) -> list[Relation]:
        """Outgoing edges of a node, heaviest first, at most ``limit``. Does no access check: the reader does."""
        ...


class IndexWriter(Protocol):
    """Writes documents so that all parts of one show together (design decision 10)."""

    async def put(self, account_id: str, source_id: str, documents: Sequence["Embeddable"], model: ModelRef) -> None:
        """Store documents, replacing earlier ones of the same id: all their records, texts and relations.

        Idempotent: repeating it after a crash leaves the same state.

        Raises:
            ConfigError: ``model`` is not the model of the vectors already there.
        """
        ...

    async def drop(self, account_id: str, source_id: str, document_ids: Sequence[str]) -> None:
        """Remove documents with everything that belongs to them; ids that do not exist are ignored."""
        ...

    async def documents(self, account_id: str, source_id: str) -> dict[str, str]:
        """Fingerprint by document id of what is stored whole for a source."""
        ...

    async def optimize(self) -> None:
        """Merge what has piled up, index new rows, and drop old versions."""
        ...


JournalState = Literal["parsed", "embedded", "indexed", "stored", "failed"]


class JournalEntry(msgspec.Struct, frozen=True, gc=False):
    """How far the ingest of one document got; ``detail`` says why it failed."""

    source_id: str
    document_id: str
    state: JournalState
    detail: str = ""
    updated_at: int = 0


class IngestJournal(Protocol):
    """The durable record of what an ingest has done (design decision 10)."""

    async def record(
        self, account_id: str, source_id: str, document_ids: Sequence[str], state: JournalState, detail: str = ""
    ) -> None:
        """Note that documents reached a state."""
        ...

    async def unfinished(self, account_id: str) -> list[JournalEntry]:
        """Documents whose last state is not ``stored``: what a crash or a failure left to do."""
        ...


class IndexStats(msgspec.Struct, frozen=True):
    """Size of an index: nodes by account and kind, and bytes on disk."""

    nodes: dict[str, dict[str, int]]
    bytes: int


class ReadableIndex(SearchIndex, ContentStore, RelationStore, Protocol):
    """All that a stage may ask of an open index."""

    async def stats(self) -> IndexStats:
        """Count nodes and bytes; looks at everything, so it is for people, not for requests."""
        ...

    async def close(self) -> None:
        """Wait for what is under way and let go of all resources."""
        ...


class WritableIndex(ReadableIndex, IndexWriter, IngestJournal, Protocol):
    """An index opened for writing."""


class Embeddable(msgspec.Struct, frozen=True):
    """A document with the vectors of its nodes, float32 of shape (number of nodes, dimensions)."""

    document: Document
    vectors: Vectors

    def rows(self) -> list[tuple[Node, Vectors]]:
        """Each node with its vector."""
        return list(zip(self.document.nodes, self.vectors, strict=True))

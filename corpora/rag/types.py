"""What corpora take in and give back."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from contracts.filters import Filter
from contracts.hits import ScoreBreakdown
from contracts.query import ContextType
from contracts.trace import Degradation

# What a caller sends of a corpus's own: its dimensions and options, read by its adapter alone.
Raw = Mapping[str, Any]
Path = Literal["rag", "keyword"]
ReceiptState = Literal["pending", "stored", "failed"]
CacheUse = Literal["hit", "miss", "off"]
# Attributes of the nodes of every corpus, told apart from those that the corpus gave: the id and title of the source,
# and where in its text, in characters, a node's text begins and ends.
SOURCE_ID, TITLE, START, END = "source", "title", "start", "end"


class Passage(msgspec.Struct, frozen=True):
    """A piece of a source that the adapter has cut itself, a turn of a dialogue for instance; it is kept whole.

    Args:
        text: What is handed out.
        name: Its title, searched too.
        search_text: What keyword recall matches; empty means ``text``.
        vector_texts: Texts whose mean embedding is its vector; empty means ``text``.
        attrs: Keyword values beside those of the source.
        kind: Of its node; lexical statistics, and how words weigh against meaning, are kept per kind.
    """

    text: str
    name: str = ""
    search_text: str = ""
    vector_texts: tuple[str, ...] = ()
    attrs: dict[str, tuple[str, ...]] = {}
    kind: str = "chunk"


class SourceDocument(msgspec.Struct, frozen=True):
    """What an adapter makes of its input: the unit that is stored, replaced, expires and is deleted as a whole.

    Args:
        source_id: The caller's name of it, unique in its corpus and space; the same id again replaces it.
        space: Owner space, which decides who may see it.
        kind: What it is, for instance ``memory`` or ``page``; lexical statistics are kept per kind.
        context_type: memory, skill or resource.
        text: Cut into chunks by the core. Beside passages it is not cut: it is what the node above them holds.
        passages: Ready-made pieces in order; empty when there is a text.
        title: Stands before each chunk where it is embedded.
        category: Finer class within the context type.
        tags: Keywords to filter by.
        attrs: The dimensions that every retrieval must name, and the corpus's metadata.
        created_at: Milliseconds since the epoch.
        updated_at: Milliseconds since the epoch.
        expires_at: Milliseconds since the epoch after which it never shows and is swept; 0 for never (R4 ``ttl_at``).
    """

    source_id: str
    space: str
    kind: str
    context_type: ContextType
    text: str = ""
    passages: tuple[Passage, ...] = ()
    title: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    attrs: dict[str, tuple[str, ...]] = {}
    created_at: int = 0
    updated_at: int = 0
    expires_at: int = 0


class Scope(msgspec.Struct, frozen=True):
    """Where one retrieval looks, as its adapter says.

    Args:
        space: The one owner space it sees; the adapter has checked that the caller may see it.
        must: The mandatory dimensions and what else the corpus demands, as a hard pre-filter.
        context_type: Of the corpus's records.
    """

    space: str
    must: Filter
    context_type: ContextType


class CorpusQuery(msgspec.Struct, frozen=True):
    """What a retriever is asked.

    Args:
        text: The query, 1..8192 characters.
        scope: Where to look.
        condition: The owner space AND the corpus AND ``scope.must`` AND the caller's own filter.
        candidates: Hits wanted at most, before the corpus arranges them; 1..50.
        threshold: Least relevance of a hit, 0..1.
        rerank: Whether the graph's reranker orders them.
    """

    text: str
    scope: Scope
    condition: Filter
    candidates: int
    threshold: float
    rerank: bool


class Ranked(msgspec.Struct, frozen=True, gc=False):
    """A chunk found, before its text is read.

    Args:
        uri: Of its node.
        score: What it is ranked by, 0..1.
        relevance: On the calibrated scale, 0..1.
        scores: What the relevance was made from.
    """

    uri: str
    score: float
    relevance: float
    scores: ScoreBreakdown


class Ranking(msgspec.Struct, frozen=True):
    """What a retriever found: hits that passed the threshold, best first; see ``Retrieved`` for the rest."""

    hits: tuple[Ranked, ...]
    below_threshold: int = 0
    degraded: tuple[Degradation, ...] = ()


class CorpusHit(msgspec.Struct, frozen=True):
    """A chunk found, with its text.

    Args:
        uri: Of its node.
        source_id: As it was ingested.
        title: Of the source.
        text: Redacted like every L2.
        score: What it is ranked by, 0..1: ``relevance``, or the reranker's score, weighed by the corpus.
        relevance: On the calibrated scale of ``corpora.calibrations``, 0..1; the threshold is held against this.
        scores: What the relevance was made from.
        attrs: The source's metadata.
        start: Offset of the text in its source, in characters; -1 where it is no slice of it.
        end: Where it ends.
        updated_at: Milliseconds since the epoch.
        expires_at: Milliseconds since the epoch; 0 for never.
    """

    uri: str
    source_id: str
    title: str
    text: str
    score: float
    relevance: float
    scores: ScoreBreakdown
    attrs: dict[str, tuple[str, ...]] = {}
    start: int = -1
    end: int = -1
    updated_at: int = 0
    expires_at: int = 0


class Retrieved(msgspec.Struct, frozen=True):
    """The answer to a retrieval.

    Args:
        request_id: Of the request.
        corpus: Name of the corpus.
        hits: Best first.
        path: Which of the two answered (R8).
        cached: Whether the ranking came from the cache (R9).
        below_threshold: Candidates left out by the threshold.
        degraded: What was missing, with reason codes.
        retryable: Whether the same request may find more a moment later.
    """

    request_id: str
    corpus: str
    hits: tuple[CorpusHit, ...]
    path: Path = "rag"
    cached: bool = False
    below_threshold: int = 0
    degraded: tuple[Degradation, ...] = ()
    retryable: bool = False


class Decision(msgspec.Struct, frozen=True):
    """Which path answers (R8); ``shadow`` has the other one run beside it, to be compared."""

    path: Path
    shadow: bool = False


class RetrieveEvent(msgspec.Struct, frozen=True):
    """One retrieval, for metrics and logs (R7); holds no text of the request.

    Args:
        trace_id: The request's id.
        account_id: The tenant; for logs only.
        corpus: Name of the corpus.
        path: Which path answered; ``none`` where none did.
        outcome: ``ok``, ``degraded`` or an error code.
        latency_ms: Milliseconds.
        hit_count: Hits answered.
        below_threshold: Candidates left out by the threshold.
        fallback_reasons: ``stage:code`` of each degradation, in order, each once.
        cache: Whether the ranking came from the cache; ``off`` where it was not asked.
    """

    trace_id: str
    account_id: str
    corpus: str
    path: Path | Literal["none"]
    outcome: str
    latency_ms: float
    hit_count: int = 0
    below_threshold: int = 0
    fallback_reasons: tuple[str, ...] = ()
    cache: CacheUse = "off"


class ShadowEvent(msgspec.Struct, frozen=True):
    """The other path, run beside an answer (R8).

    Args:
        trace_id: The request's id.
        corpus: Name of the corpus.
        path: Which path gave the answer.
        outcome: Of the shadow: ``ok``, ``degraded``, an error code, or ``dropped`` when there were too many at once.
        overlap: Share of hits that both have, of the longer list, 0..1; ``None`` without a shadow's answer.
        latency_difference_ms: The shadow's time less the answer's, milliseconds.
    """

    trace_id: str
    corpus: str
    path: Path
    outcome: str
    overlap: float | None = None
    latency_difference_ms: float = 0.0


class SourceReceipt(msgspec.Struct, frozen=True):
    """How far one source got; ``reason`` says why it is not stored yet, without any of its text."""

    source_id: str
    state: ReceiptState
    reason: str = ""
    chunks: int = 0


class Receipt(msgspec.Struct, frozen=True):
    """What an ingest or a deletion is answered with, once the work is recorded durably (R2).

    Args:
        receipt_id: Asks for the state later.
        corpus: Name of the corpus.
        state: ``stored`` when all of it shows (or is gone), ``failed`` when a part was given up, else ``pending``.
        sources: Each source by itself.
        request_id: Of the request.
    """

    receipt_id: str
    corpus: str
    state: ReceiptState
    sources: tuple[SourceReceipt, ...]
    request_id: str = ""

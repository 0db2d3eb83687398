"""What corpora tell of themselves, beside the events of the core."""

from typing import Literal, Protocol

import msgspec

from corpora.rag.ports import CorpusObserver
from corpora.rag.types import RetrieveEvent, ShadowEvent

WriteAction = Literal["ingest", "ingest_batch", "delete"]


class WriteEvent(msgspec.Struct, frozen=True):
    """An ingest or a deletion that was acknowledged, or refused.

    Args:
        trace_id: The request's id.
        account_id: The tenant; for logs only.
        corpus: Name of the corpus.
        action: What was asked.
        outcome: ``ok``, an error code, or ``abandoned`` by its caller.
        latency_ms: Until it was acknowledged; whatever the caller waited for afterwards is not in it.
        sources: How many were acknowledged.
        refused: Bodies of a batch that were refused.
    """

    trace_id: str
    account_id: str
    corpus: str
    action: WriteAction
    outcome: str
    latency_ms: float
    sources: int = 0
    refused: int = 0


class Observer(CorpusObserver, Protocol):
    """Told of reads and writes."""

    def wrote(self, event: WriteEvent) -> None:
        """An ingest or a deletion was acknowledged, or refused."""
        ...


class Everyone:
    """Several observers as one.

    Args:
        observers: All are told, in order.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def retrieved(self, event: RetrieveEvent) -> None:
        """See ``CorpusObserver``."""
        for observer in self._observers:
            observer.retrieved(event)

    def shadowed(self, event: ShadowEvent) -> None:
        """See ``CorpusObserver``."""
        for observer in self._observers:
            observer.shadowed(event)

    def wrote(self, event: WriteEvent) -> None:
        """See ``Observer``."""
        for observer in self._observers:
            observer.wrote(event)


class Silent(Everyone):
    """Tells nobody."""

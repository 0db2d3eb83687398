"""A test collection as callers of a corpus would send it, and its documents in what they get back."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from contracts.errors import InvalidInput
from corpora.canonical_url import canonical
from corpora.context.dialogue import DialogueSource
from corpora.context.turns import Session
from corpora.rag.types import CorpusHit, Raw
from evaluation.datasets import CORPUS, Dataset, Question

USER = "eval"
# Of a body; far below what a corpus takes.
_AT_ONCE = 50


class Bodies(Protocol):
    """How a collection goes into one corpus."""

    corpus: str

    def ingest(self) -> Iterator[Raw]:
        """Bodies of ingests, all documents once."""
        ...

    def dimensions(self, question: Question) -> Raw:
        """Where a question is asked."""
        ...

    def document(self, hit: CorpusHit) -> str | None:
        """The document of the collection that a hit is a part of."""
        ...


class Dialogues:
    """Conversations as one user's memories, each turn a document.

    Args:
        folder: Where the collection lies.
    """

    corpus = "memory"

    def __init__(self, folder: Path) -> None:
        self._source = DialogueSource(folder / CORPUS)

    def ingest(self) -> Iterator[Raw]:
        """See ``Bodies``.

        Raises:
            InvalidInput: A line can't be understood.
        """
        for conversation, sessions in groupby(self._sessions(), lambda session: str(session.conversation)):
            yield self._where(conversation) | {"dialogues": list(map(_dialogue, sessions))}

    def dimensions(self, question: Question) -> Raw:
        """See ``Bodies``."""
        return self._where(question.conv)

    def document(self, hit: CorpusHit) -> str | None:
        """See ``Bodies``."""
        return next(iter(hit.attrs.get("id", ())), None)

    def _sessions(self) -> Iterator[Session]:
        for found in self._source.sessions():
            if not isinstance(found, tuple):
                raise InvalidInput(f"{found.file}, line {found.line}: {found.message}", field=CORPUS)
            yield found[1]

    def _where(self, conversation: str) -> dict[str, object]:
        return {"user_id": USER, "assistant_id": USER, "conversation_id": conversation}


class Pages:
    """Documents as the pages of one session.

    Args:
        dataset: The collection.
    """

    corpus = "web"

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._documents: Mapping[str, str] = {canonical(_url(each.id)): each.id for each in dataset.passages}

    def ingest(self) -> Iterator[Raw]:
        """See ``Bodies``."""
        passages = self._dataset.passages
        for start in range(0, len(passages), _AT_ONCE):
            pages = [
                {"url": _url(each.id), "title": each.title, "content": each.text}
                for each in passages[start : start + _AT_ONCE]
            ]
            yield {"session_id": USER, "pages": pages}

    def dimensions(self, question: Question) -> Raw:
        """See ``Bodies``."""
        return {"session_id": USER}

    def document(self, hit: CorpusHit) -> str | None:
        """See ``Bodies``."""
        return self._documents.get(next(iter(hit.attrs.get("url", ())), ""))


def bodies_of(folder: Path, dataset: Dataset) -> Bodies:
    """Dialogues where the set has conversations, else pages."""
    return Dialogues(folder) if dataset.conversational else Pages(dataset)


def _dialogue(session: Session) -> dict[str, object]:
    turns = [
        {"text": turn.text, "speaker": turn.speaker, "id": str(turn.id), "time": turn.time} for turn in session.turns
    ]
    return {"session_id": str(session.session_id), "date": session.date, "turns": turns}


def _url(document: str) -> str:
    return f"https://documents.invalid/{quote(document, safe='')}"

"""Test collections on disk: ``corpus.jsonl``, ``queries.jsonl`` and ``qrels.tsv`` in one folder.

::

    corpus.jsonl    {"id": "d1", "title": "…", "text": "…", "conv": "c1"}     title and conv may be missing
    queries.jsonl   {"id": "q1", "text": "…", "conv": "c1"}                   further fields are ignored
    qrels.tsv       q1<TAB>d1<TAB>1                                           relevance, a whole number from 0 up

``conv`` says that a query may find documents of that conversation only; a set has it everywhere or nowhere.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from contracts.errors import InvalidInput

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels.tsv"
_QREL_FIELDS = 3


class Passage(msgspec.Struct, frozen=True):
    """A document of a collection."""

    id: str
    text: str
    title: str = ""
    conv: str = ""


class Question(msgspec.Struct, frozen=True):
    """A query of a collection."""

    id: str
    text: str
    conv: str = ""


class Dataset(msgspec.Struct, frozen=True):
    """A collection.

    Args:
        name: The folder's name.
        passages: In the order of the file.
        questions: Those with at least one judgement, in the order of the file.
        qrels: Relevance by document id by query id.
    """

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    qrels: dict[str, dict[str, int]]

    @property
    def conversational(self) -> bool:
        """Whether each query is restricted to its conversation."""
        return bool(self.passages[0].conv)


def load(folder: Path, limit: int | None = None) -> Dataset:
    """Read a collection.

    Args:
        folder: Where the three files lie.
        limit: At most this many queries, taken evenly over the whole file; ``None`` for all.

    Raises:
        InvalidInput: A file is missing or a line can't be understood; names the file and the line.
    """
    passages = tuple(_records(folder / CORPUS, Passage))
    qrels = _qrels(folder / QRELS)
    questions = [question for question in _records(folder / QUERIES, Question) if qrels.get(question.id)]
    if not passages or not questions:
        raise InvalidInput(f"{folder} has no documents or no judged queries.", field=str(folder))
    if len({bool(p.conv) for p in passages} | {bool(q.conv) for q in questions}) > 1:
        raise InvalidInput(f"{folder} names a conversation (conv) in some lines only.", field="conv")
    if limit is not None and limit < len(questions):
        questions = [questions[i * len(questions) // limit] for i in range(limit)]
    return Dataset(
        name=folder.resolve().name,
        passages=passages,
        questions=tuple(questions),
        qrels={question.id: qrels[question.id] for question in questions},
    )


Line = TypeVar("Line", Passage, Question)


def _records(path: Path, kind: type[Line]) -> Iterator[Line]:
    decoder = msgspec.json.Decoder(kind)
    for where, line in _lines(path):
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"{where}: {error}", field=path.name) from None


def _qrels(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for where, line in _lines(path):
        parts = line.split("\t")
        if len(parts) != _QREL_FIELDS or not parts[2].isdecimal():
            raise InvalidInput(f"{where}: expected query<TAB>document<TAB>relevance.", field=path.name)
        qrels.setdefault(parts[0], {})[parts[1]] = int(parts[2])
    return qrels


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines that hold something, with ``file, line n`` for errors."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"A collection is a folder with {CORPUS}, {QUERIES} and {QRELS}."
        raise InvalidInput(f"{path} can't be read: {error}.", field=path.name, remedy=remedy) from None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line

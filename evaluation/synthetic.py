"""Synthetic records shaped like real ones, the same for the same seed: to measure how fast and complete an index is.

* Accounts are skewed: the first holds half of all records, the others share the rest by Zipf's law.
* A document is a root and 19 nodes about one topic, mostly Chinese or mostly English; every fourth is a dialogue.

Words and vectors are those of ``material``.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from contracts.filters import Eq, Filter
from contracts.ports import Embeddable, Vectors
from contracts.records import Document, ModelRef, Node
from evaluation.material import SPREAD, STRAY, Space, text, words, zipf
from index.rows import unit

SOURCE = "synthetic"
DOCUMENT_NODES = 20
_ABSTRACT_WORDS = 20
_QUESTION_WORDS = (3, 8)
_SHORTEST, _LONGEST = 40, 80


class Shape(msgspec.Struct, frozen=True):
    """What is made.

    Args:
        rows: Records in all, at least twice as many as accounts.
        dimensions: Of the vectors.
        accounts: 2 or more.
        seed: The same seed makes the same records.
    """

    rows: int
    dimensions: int = 384
    accounts: int = 50
    seed: int = 0

    @property
    def model(self) -> ModelRef:
        """Whose vectors these would be."""
        return ModelRef("synthetic", str(self.seed), self.dimensions)

    def sizes(self) -> dict[str, int]:
        """Records by account, largest first."""
        first = self.rows - self.rows // 2
        shares = 1 / np.arange(1, self.accounts)
        bounds = np.cumsum(shares) / shares.sum() * (self.rows - first - (self.accounts - 1))
        rest = sorted(np.diff(np.rint(bounds).astype(int), prepend=0) + 1, reverse=True)
        return {f"tenant-{number:03d}": int(size) for number, size in enumerate([first, *rest])}


class Question(NamedTuple):
    """A question about a record: some of its words, and a vector near its own."""

    text: str
    vector: Vectors


def percent(share: int) -> Filter:
    """A condition that keeps 1 % or 10 % of any account's records, spread over all topics."""
    return Eq("tags", {1: "hundredth-00", 10: "tenth-0"}[share])


class Account:
    """The records of an account.

    Args:
        shape: What is made.
        number: Of the account, from 0, largest first.
    """

    def __init__(self, shape: Shape, number: int) -> None:
        self.name, self.size = list(shape.sizes().items())[number]
        self.model = shape.model
        self._shape = shape
        self._number = number
        draw = np.random.default_rng((shape.seed, number))
        documents = -(-self.size // DOCUMENT_NODES)
        self._space = Space(shape.seed, shape.rows, shape.dimensions)
        topics = self._space.topics()
        topic = draw.choice(len(topics), documents, p=zipf(len(topics), 0)).repeat(DOCUMENT_NODES)[: self.size]
        self.vectors: Vectors = unit(topics[topic] + self._space.steps(draw, self.size, SPREAD))
        self._hundredth = draw.integers(100, size=self.size)
        self._lengths = draw.integers(_SHORTEST, _LONGEST + 1, self.size)
        chinese = draw.random(documents).repeat(DOCUMENT_NODES)[: self.size, None] < 1 / 2
        self._words = words(draw, chinese, _LONGEST)
        self.uris = [f"{self._document(row)}/{row % DOCUMENT_NODES:02d}" for row in range(self.size)]

    def documents(self) -> Iterator[Embeddable]:
        """All records with their vectors."""
        for start in range(0, self.size, DOCUMENT_NODES):
            rows = range(start, min(start + DOCUMENT_NODES, self.size))
            document = Document(f"document-{start:07d}", str(self._shape.seed), tuple(map(self._node, rows)))
            yield Embeddable(document, self.vectors[rows.start : rows.stop])

    def questions(self, count: int) -> list[Question]:
        """Questions about records drawn at random."""
        draw = np.random.default_rng((self._shape.seed, self._number, count))
        rows = draw.integers(self.size, size=count)
        vectors = unit(self.vectors[rows] + self._space.steps(draw, count, STRAY))
        chosen = (draw.permutation(self._words[row, : self._lengths[row]]) for row in rows)
        low, high = _QUESTION_WORDS
        return [
            Question(text(found[: draw.integers(low, high + 1)]), vector)
            for found, vector in zip(chosen, vectors, strict=True)
        ]

    def count(self, share: int) -> int:
        """Records in a share, in percent: 100, or what ``percent`` takes."""
        return int(np.count_nonzero(self._hundredth < share))

    def nearest(self, vector: Vectors, count: int, share: int = 100) -> list[str]:
        """URIs of the records with the highest cosine, best first, by comparing all.

        Args:
            vector: Of a question.
            count: At most so many.
            share: Of the records, see ``count``.
        """
        cosines = np.where(self._hundredth < share, self.vectors @ vector, -np.inf)
        return [self.uris[row] for row in np.argsort(-cosines)[: min(count, self.count(share))]]

    def _document(self, row: int) -> str:
        return f"strata://shared/{self.name}/{row // DOCUMENT_NODES:06d}"

    def _node(self, row: int) -> Node:
        written, root = self._words[row, : self._lengths[row]], row % DOCUMENT_NODES == 0
        kinds = ("session", "turn") if row // DOCUMENT_NODES % 4 == 0 else ("document", "section")
        hundredth, content = int(self._hundredth[row]), text(written)
        return Node(
            uri=self.uris[row],
            parent_uri="" if root else self.uris[row - row % DOCUMENT_NODES],
            name=text(written[:2]),
            kind=kinds[0] if root else kinds[1],
            context_type="resource",
            category="synthetic",
            abstract=text(written[:_ABSTRACT_WORDS]),
            content=content,
            search_text=content,
            tags=(f"hundredth-{hundredth:02d}", f"tenth-{hundredth // 10}"),
            has_children=root,
        )

"""Synthetic records shaped like real ones, the same for the same seed: to measure how fast and complete an index is.

* Accounts are skewed: the first holds half of all records, the others share the rest by Zipf's law.
* A document is a root and 19 nodes about one topic, mostly Chinese or mostly English; every fourth is a dialogue.
* Words follow Zipf's law with its head cut off, as in texts without stop words.
* Vectors lie around their topic's centre, mostly within a few directions that all topics share, as embeddings do.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from math import isqrt
from typing import NamedTuple

import msgspec
import numpy as np
import rjieba
from numpy.typing import NDArray

from contracts.filters import Eq, Filter
from contracts.ports import Embeddable, Vectors
from contracts.records import Document, ModelRef, Node
from index.rows import unit

SOURCE = "synthetic"
DOCUMENT_NODES = 20
_ABSTRACT_WORDS = 20
_QUESTION_WORDS = (3, 8)
_SHORTEST, _LONGEST = 40, 80
# Share of words of a document's other language, and the words of each.
_FOREIGN, _VOCABULARY = 0.1, 14_000
# Ranks that stop words would have taken.
_HEAD = 30
# Directions that vectors vary in, and how far from a centre of length 1; how far questions are from their record.
_DIRECTIONS, _SPREAD, _NOISE, _STRAY = 32, 0.8, 0.3, 0.5
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
_CHARACTERS = (
    "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所"
    "民得经十三之进着等部度家电力里如水化高自二理起小物现实加量都两体制机当使点从业本去把性好应开它合还因由其些然前外天政四日"
    "那社义事平形相全表间样与关各重新线内数正心反你明看原又么利比或但质气第向道命此变条只没结解问意建月公无系军很情者最立代想"
    "已通并提直题党程展五果料象员革位入常文总次品式活设及管特件长求老头基资边流路级少图山统接知较将组见计别她手角期根论运农指"
    "几九区强放决西被干做必战先回则任取据处队南给色光门即保治北造百规热领七海口东导器压志世金增争济阶油思术极交受联什认六共权"
    "收证改清己美再采转更单风切打白教速花带安场身车例真务具万每目至达走积示议声报斗完类八离华名确才科张信马节话米整空元况今集"
    "温传土许步群广石记需段研界拉林律叫且究观越织装影算低持音众书布复容儿须际商非验连断深难近矿千周委素技备半办青省列习响约支"
    "般史感劳便团往酸历市克何除消构府称太准精值号率族维划选标写存候毛亲快效斯院查江型眼王按格养易置派层片始却专状育厂京识适属"
)


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
        topics = _topics(shape)
        topic = draw.choice(len(topics), documents, p=_zipf(len(topics), 0)).repeat(DOCUMENT_NODES)[: self.size]
        self.vectors: Vectors = unit(topics[topic] + _steps(draw, self.size, shape, _SPREAD))
        self._hundredth = draw.integers(100, size=self.size)
        self._lengths = draw.integers(_SHORTEST, _LONGEST + 1, self.size)
        chinese = draw.random(documents).repeat(DOCUMENT_NODES)[: self.size, None] < 1 / 2
        ranks = draw.choice(_VOCABULARY, (self.size, _LONGEST), p=_zipf(_VOCABULARY, _HEAD))
        foreign = draw.random(ranks.shape) < _FOREIGN
        self._words = ranks + _VOCABULARY * (chinese ^ foreign)
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
        vectors = unit(self.vectors[rows] + _steps(draw, count, self._shape, _STRAY))
        chosen = (draw.permutation(self._words[row, : self._lengths[row]]) for row in rows)
        low, high = _QUESTION_WORDS
        return [
            Question(_text(words[: draw.integers(low, high + 1)]), vector)
            for words, vector in zip(chosen, vectors, strict=True)
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
        words, root = self._words[row, : self._lengths[row]], row % DOCUMENT_NODES == 0
        kinds = ("session", "turn") if row // DOCUMENT_NODES % 4 == 0 else ("document", "section")
        hundredth, text = int(self._hundredth[row]), _text(words)
        return Node(
            uri=self.uris[row],
            parent_uri="" if root else self.uris[row - row % DOCUMENT_NODES],
            name=_text(words[:2]),
            kind=kinds[0] if root else kinds[1],
            context_type="resource",
            category="synthetic",
            abstract=_text(words[:_ABSTRACT_WORDS]),
            content=text,
            search_text=text,
            tags=(f"hundredth-{hundredth:02d}", f"tenth-{hundredth // 10}"),
            has_children=root,
        )


def _zipf(count: int, head: int) -> NDArray[np.float64]:
    """Probabilities by rank (Zipf–Mandelbrot with exponent 1)."""
    weights = 1 / np.arange(head + 1, head + count + 1)
    return np.asarray(weights / weights.sum())


@cache
def _topics(shape: Shape) -> Vectors:
    """Centres of the topics, about as many as there are records in each."""
    draw = np.random.default_rng((shape.seed, shape.rows, shape.dimensions))
    return unit(draw.standard_normal((max(8, isqrt(shape.rows)), shape.dimensions), np.float32))


@cache
def _directions(shape: Shape) -> Vectors:
    """Directions that vectors vary in."""
    draw = np.random.default_rng((shape.seed, shape.dimensions))
    return unit(draw.standard_normal((_DIRECTIONS, shape.dimensions), np.float32))


def _steps(draw: np.random.Generator, count: int, shape: Shape, length: float) -> Vectors:
    """Steps of about a length along the common directions, and of about _NOISE in any."""
    along = draw.standard_normal((count, _DIRECTIONS), np.float32) @ _directions(shape) * (length / _DIRECTIONS**0.5)
    noise = draw.standard_normal((count, shape.dimensions), np.float32) * (_NOISE / shape.dimensions**0.5)
    return np.asarray(along + noise, np.float32)


def _text(words: NDArray[np.int64]) -> str:
    return "".join(map(_vocabulary().__getitem__, words)).strip()


@cache
def _vocabulary() -> list[str]:
    """English-like words, each with a space after it, then Chinese ones; both most frequent first."""
    draw = np.random.default_rng(0)
    syllables = ["".join(parts) for parts in product(_CONSONANTS, _VOWELS)]
    english = ["".join(parts) + " " for parts in product(syllables, repeat=3)]
    pairs = ["".join(parts) for parts in product(_CHARACTERS, repeat=2)]
    # Of all pairs of characters those that jieba's dictionary has.
    chinese = [pair for pair in pairs if len(rjieba.cut(pair, False)) == 1]
    return [str(word) for words in (english, chinese) for word in draw.permutation(words)[:_VOCABULARY]]

"""Synthetic notes in trees of a given fan-out and depth, spread evenly over tenants; the same for the same seed.

* A document is one tree about one topic, of one context type, mostly English or mostly Chinese. Each node is a note:
  a title, and one to a few sentences.
* On every level one node, drawn at random, has ``fan_out`` children, and these are the next level. So fan-out and depth
  are what they claim to be and change one without the other, while a tree grows with their product, not as a power; one
  node in about ``fan_out`` has children, as in a tree that is full.
* Trees are made one at a time, each from its own seed: memory does not grow with the records, and a question about any
  record costs one tree.

Words and vectors are those of ``evaluation.material``.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from contracts.errors import ConfigError
from contracts.ports import Embeddable, Vectors
from contracts.query import CONTEXT_TYPES, ContextType
from contracts.records import Document, ModelRef, Node
from evaluation.material import SPREAD, STRAY, Space, text, words, zipf
from index.rows import unit

SOURCE = "growth"
# Records a part, about: what one ``put`` takes.
_PART = 10_000
# Words of a note and of its sentences, the longest included.
_NOTE, _SENTENCE = (8, 40), (5, 12)
_TITLE_WORDS = 3
_QUESTION_WORDS = (3, 8)
# Of memory, skill and resource.
_SHARES = (0.25, 0.25, 0.5)
_CATEGORIES: dict[ContextType, str] = {"memory": "event", "skill": "procedure", "resource": "document"}
# What a question may start with, so that the planner sees which context type is meant; each in English and Chinese.
_CUES: dict[ContextType, tuple[str, str]] = {
    "memory": ("remember ", "记得"),
    "skill": ("how to ", "如何"),
    "resource": ("documentation ", "文档"),
}


class Forest(msgspec.Struct, frozen=True):
    """What is made.

    Args:
        records: In all, at least one a tenant.
        tenants: Accounts; they share the records evenly.
        fan_out: Children of a node that has any; at least 1.
        depth: Levels of a tree, the root's among them; at least 1. The last tree of a tenant may be cut short.
        dimensions: Of the vectors.
        seed: The same seed makes the same records and questions.
    """

    records: int
    tenants: int
    fan_out: int
    depth: int
    dimensions: int = 384
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what can't be made.

        Raises:
            ConfigError: A number is too small.
        """
        for name in ("tenants", "fan_out", "depth", "dimensions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1.", field=name)
        if self.records < self.tenants:
            raise ConfigError(
                f"{self.records} records are fewer than {self.tenants} tenants.",
                field="records",
                remedy="Take at least one record a tenant.",
            )

    @property
    def model(self) -> ModelRef:
        """Whose vectors these would be."""
        return ModelRef("synthetic", str(self.seed), self.dimensions)

    @property
    def tree(self) -> int:
        """Nodes of a tree that is not cut short."""
        return 1 + self.fan_out * (self.depth - 1)

    def size(self, tenant: int) -> int:
        """Records of a tenant, 0 ≤ ``tenant`` < ``tenants``."""
        return self.records // self.tenants + (tenant < self.records % self.tenants)

    def parts(self) -> Iterator[tuple[str, list[Embeddable]]]:
        """All documents with their vectors: some of an account each time, in about ten thousand records."""
        at_once = max(1, _PART // self.tree)
        for tenant in range(self.tenants):
            trees = range(-(-self.size(tenant) // self.tree))
            for start in range(0, len(trees), at_once):
                found = (Tree(self, tenant, number) for number in trees[start : start + at_once])
                yield account(tenant), [tree.embeddable() for tree in found]

    def questions(self, count: int) -> list["Question"]:
        """Questions about records drawn at random, of tenants drawn at random."""
        draw = np.random.default_rng((self.seed, count))
        found = []
        for tenant in draw.integers(self.tenants, size=count).tolist():
            number, node = divmod(int(draw.integers(self.size(tenant))), self.tree)
            found.append(Tree(self, tenant, number).question(node, draw))
        return found


class Question(NamedTuple):
    """A question about a record: some of its words, and a vector near its own.

    Every second one says which context type it is about; of the others the planner makes three typed queries.
    """

    account_id: str
    text: str
    vector: Vectors


def account(tenant: int) -> str:
    """The account of a tenant."""
    return f"tenant-{tenant:04d}"


class Tree:
    """A tree.

    Args:
        forest: What is made.
        tenant: Whose it is.
        number: Of the tree among the tenant's, from 0.
    """

    def __init__(self, forest: Forest, tenant: int, number: int) -> None:
        self._forest = forest
        self._tenant = tenant
        self._number = number
        self.size = min(forest.tree, forest.size(tenant) - number * forest.tree)
        self._draw = draw = np.random.default_rng((forest.seed, tenant, number))
        self._context_type = CONTEXT_TYPES[int(draw.choice(len(CONTEXT_TYPES), p=_SHARES))]
        self._chinese = bool(draw.random() < 1 / 2)
        self._words = words(draw, np.full((self.size, 1), self._chinese), _NOTE[1])
        self._lengths = draw.integers(*_NOTE, self.size, endpoint=True)
        self._sentences = draw.integers(*_SENTENCE, self.size, endpoint=True)
        # Of each level but the last, which of its nodes has children.
        self._inner = draw.integers(forest.fan_out, size=max(0, forest.depth - 2)).tolist()

    @cached_property
    def uris(self) -> list[str]:
        """Of the nodes, the root's first, then level by level."""
        found = [f"strata://shared/notes-{self._number:06d}"]
        for node in range(1, self.size):
            found.append(f"{found[self.parent(node)]}/{(node - 1) % self._forest.fan_out}")
        return found

    def parent(self, node: int) -> int:
        """Which node is above another one that is not the root."""
        level = (node - 1) // self._forest.fan_out
        return 1 + (level - 1) * self._forest.fan_out + int(self._inner[level - 1]) if level else 0

    def embeddable(self) -> Embeddable:
        """The tree as a document, with its vectors."""
        inner = {self.parent(node) for node in range(1, self.size)}
        nodes = tuple(self._node(node, has_children=node in inner) for node in range(self.size))
        return Embeddable(Document(f"notes-{self._number:06d}", str(self._forest.seed), nodes), self._vectors)

    def question(self, node: int, draw: np.random.Generator) -> Question:
        """A question about a node."""
        chosen = draw.permutation(self._words[node, : self._lengths[node]])
        asked = text(chosen[: draw.integers(*_QUESTION_WORDS, endpoint=True)])
        cue = _CUES[self._context_type][self._chinese] if draw.random() < 1 / 2 else ""
        near = self._vectors[node] + self._space.steps(draw, 1, STRAY)[0]
        return Question(account(self._tenant), cue + asked, unit(near))

    @cached_property
    def _vectors(self) -> Vectors:
        topics = self._space.topics()
        topic = topics[self._draw.choice(len(topics), p=zipf(len(topics), 0))]
        return unit(topic + self._space.steps(self._draw, self.size, SPREAD))

    @property
    def _space(self) -> Space:
        return Space(self._forest.seed, self._forest.records, self._forest.dimensions)

    def _node(self, node: int, *, has_children: bool) -> Node:
        used = self._words[node, : self._lengths[node]]
        sentences = [
            self._sentence(text(used[start : start + self._sentences[node]]))
            for start in range(0, len(used), self._sentences[node])
        ]
        note = ("" if self._chinese else " ").join(sentences)
        return Node(
            uri=self.uris[node],
            parent_uri=self.uris[self.parent(node)] if node else "",
            name=text(used[:_TITLE_WORDS]),
            kind="section" if node else "document",
            context_type=self._context_type,
            category=_CATEGORIES[self._context_type],
            abstract=sentences[0],
            content=note,
            search_text=note,
            has_children=has_children,
        )

    def _sentence(self, said: str) -> str:
        return f"{said}。" if self._chinese else f"{said[:1].upper()}{said[1:]}."

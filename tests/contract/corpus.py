"""Records for the contract tests, and what an index must answer about them, computed by brute force."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import Any

import msgspec
import numpy as np

from contracts.filters import Eq, Filter, all_of, matches
from contracts.ports import Embeddable, RecallHit, RecallQuery, Vectors
from contracts.records import Document, ModelRef, Node
from contracts.uri import depth_of, space_of
from index.text import analyze

MODEL = ModelRef("contract-test", "1", 8)
ACCOUNT, SOURCE = "acme", "handbook"

# Strings that have broken quoting, tokenising or storing somewhere before.
HOSTILE = (
    "it's",
    'a"b',
    "' OR '1'='1",
    "'; DROP TABLE nodes; --",
    "\\' OR true --",
    "back\\slash\\",
    "100%",
    "a_b",
    "`tick` ${x} {y}",
    "nul\x00inside",
    "line\nbreak\ttab",
    "naïve café",
    "中文，标点",
    "🙂 emoji",
    "a=b",
    "NULL",
    "true",
)


def node(path: str, text: str = "", **changes: Any) -> Node:
    """A node at ``strata://shared/<path>`` whose name is the last segment."""
    uri = f"strata://shared/{path}"
    plain = Node(uri, uri.rpartition("/")[0], path.rpartition("/")[2], "section", "resource", "guide", text)
    return msgspec.structs.replace(plain, **changes)


def vectors(count: int, seed: int = 0) -> Vectors:
    """Random unit vectors of the test model, float32 of shape (count, 8)."""
    rows = np.random.default_rng(seed).standard_normal((count, MODEL.dimensions)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def document(name: str, *nodes: Node, seed: int = 0, fingerprint: str = "") -> Embeddable:
    """A document of these nodes with random vectors."""
    return Embeddable(Document(name, fingerprint or f"print of {name}", nodes), vectors(len(nodes), seed))


def ask(
    text: str = "",
    vector: Vectors | None = None,
    *,
    account: str = ACCOUNT,
    limit: int = 100,
    where: Filter | None = None,
) -> RecallQuery:
    """A query within one account."""
    return RecallQuery(text, vector, all_of(Eq("account_id", account), where), limit)


class Reference:
    """The records an index should hold, and the answers it should give, without any index."""

    def __init__(self, account: str = ACCOUNT, source: str = SOURCE) -> None:
        self.account = account
        self.source = source
        self.documents: dict[str, Embeddable] = {}

    def put(self, documents: Iterable[Embeddable]) -> None:
        """Documents that were put."""
        self.documents |= {item.document.document_id: item for item in documents}

    def drop(self, names: Iterable[str]) -> None:
        """Documents that were dropped."""
        for name in names:
            self.documents.pop(name, None)

    def nodes(self) -> dict[str, Node]:
        """Nodes by URI."""
        return {node.uri: node for item in self.documents.values() for node in item.document.nodes}

    def matching(self, condition: Filter) -> set[str]:
        """URIs of the nodes that satisfy a filter."""
        return {
            uri for uri, node in self.nodes().items() if matches(condition, record(self.account, self.source, node))
        }

    def cosine(self, uri: str, vector: Vectors) -> float:
        """Cosine of a node's vector with another, negative clipped to 0."""
        rows = {node.uri: row for item in self.documents.values() for node, row in item.rows()}
        row = rows[uri]
        return max(0.0, float(row @ vector / (np.linalg.norm(row) * np.linalg.norm(vector))))

    def coverage(self, uri: str, text: str) -> float:
        """BM25 over the sum of idf, word by word, as ``index.bm25`` defines it."""
        kind = self.nodes()[uri].kind
        k1, b = (0.6, 0.3) if kind == "turn" else (1.2, 0.75)
        peers = {peer: terms(n) for peer, n in self.nodes().items() if n.kind == kind}
        query = analyze(text)
        words, most_words = _bm25([p[0] for p in peers.values()], peers[uri][0], query.words, k1, b)
        if not query.bigrams:
            return words / most_words if most_words else 0.0
        pairs, most_pairs = _bm25([p[1] for p in peers.values()], peers[uri][1], query.bigrams, k1, b)
        return (0.7 * words + 0.3 * pairs) / (0.7 * most_words + 0.3 * most_pairs)


def terms(node: Node) -> tuple[list[str], list[str]]:
    """Words and bigrams by which a node is found."""
    words, bigrams = analyze(f"{node.name}\n{node.search_text or node.abstract}")
    return words, bigrams


def record(account: str, source: str, node: Node) -> Mapping[str, Any]:
    """A node as the filter algebra sees it."""
    return msgspec.structs.asdict(node) | {
        "account_id": account,
        "source_id": source,
        "owner_space": space_of(node.uri),
        "depth": depth_of(node.uri),
        "level": 0,
    }


def uris(hits: Iterable[RecallHit]) -> set[str]:
    """URIs of hits, each of which must come once."""
    found = [hit.uri for hit in hits]
    assert len(found) == len(set(found))
    return set(found)


def _bm25(
    texts: Sequence[Sequence[str]], text: Sequence[str], query: Sequence[str], k1: float, b: float
) -> tuple[float, float]:
    filled = [t for t in texts if t]
    average = sum(map(len, filled)) / len(filled) if filled else 1
    counts, score, most = Counter(text), 0.0, 0.0
    for term in set(query):
        df = sum(term in t for t in filled)
        idf = log(1 + (len(filled) - df + 0.5) / (df + 0.5))
        most += idf
        score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(text) / average))
    return score, most

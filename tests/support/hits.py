"""Candidates made by hand, for unit tests."""

from typing import Any

from contracts.hits import NodeHit, ScoreBreakdown
from contracts.uri import parent_of, space_of


def node_hit(uri: str, score: float = 0.5, **fields: Any) -> NodeHit:
    """A candidate with sensible defaults."""
    base: dict[str, Any] = {
        "uri": uri,
        "parent_uri": parent_of(uri),
        "name": uri.rsplit("/", 1)[-1],
        "kind": "section",
        "category": "document",
        "owner_space": space_of(uri),
        "context_type": "resource",
        "depth": 1,
        "abstract": "an abstract",
        "has_overview": True,
        "has_content": True,
        "has_children": False,
        "score": score,
        "scores": ScoreBreakdown(),
        "match_reason": "recalled:both",
    }
    return NodeHit(**base | fields)

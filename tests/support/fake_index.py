"""A brute-force index in memory: the stand-in that unit tests of the stages search."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from contracts.deadline import Deadline
from contracts.filters import matches
from contracts.hits import Level, Relation
from contracts.ports import OTHER_MODEL, NodeMeta, Recall, Recalled, RecallHit, RecallQuery
from contracts.records import ModelRef
from contracts.uri import depth_of, parent_of, space_of

FAKE_MODEL = ModelRef("fake", "1", 2)


def record(uri: str, abstract: str = "", **fields: Any) -> dict[str, Any]:
    """A record with sensible defaults; ``vector`` is a unit vector of two dimensions."""
    base: dict[str, Any] = {
        "uri": uri,
        "account_id": "acme",
        "owner_space": space_of(uri),
        "parent_uri": parent_of(uri) if depth_of(uri) > 1 else "",
        "name": uri.rsplit("/", 1)[-1],
        "kind": "section",
        "category": "document",
        "context_type": "resource",
        "status": "active",
        "source_id": "source",
        "tags": (),
        "attrs": {},
        "level": 0,
        "depth": depth_of(uri),
        "abstract": abstract,
        "has_overview": True,
        "has_content": True,
        "has_children": False,
        "expires_at": 0,
        "created_at": 1,
        "updated_at": 1,
        "vector": (1.0, 0.0),
        "overview": f"overview of {uri}",
        "content": f"content of {uri}",
    }
    return base | fields


class FakeIndex:
    """SearchIndex, ContentStore and RelationStore over a list of records; counts what it is asked."""

    def __init__(self, records: Sequence[Mapping[str, Any]], edges: Mapping[str, Sequence[Relation]] | None = None):
        self.records = {str(r["uri"]): dict(r) for r in records}
        self.relations = edges or {}
        self.recalls: list[Sequence[RecallQuery]] = []
        self.metas: list[Sequence[str]] = []
        self.reads: list[tuple[Sequence[str], Level]] = []
        self.failing: dict[Recall, str] = {}
        self.partial: dict[Recall, str] = {}
        self.shown = "1"

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        self.recalls.append(queries)
        return [self._recall(query) for query in queries]

    def _recall(self, query: RecallQuery) -> Recalled:
        words = query.text.lower().split()
        failing = dict(self.failing)
        if query.model not in (None, FAKE_MODEL):
            query, failing["dense"] = msgspec.structs.replace(query, vector=None), OTHER_MODEL
        hits = []
        for r in self.records.values():
            if not matches(query.condition, r):
                continue
            text = f"{r['name']} {r['abstract']}".lower().split()
            keyword = sum(word in text for word in words) / max(1, len(words))
            vector = 0.0 if query.vector is None else float(np.clip(np.dot(query.vector, r["vector"]), 0, 1))
            if keyword or query.vector is not None:
                found = "both" if keyword and vector else "keyword" if keyword else "dense"
                names = RecallHit.__struct_fields__[:-3]
                hits.append(RecallHit(**{n: r[n] for n in names}, vector=vector, keyword=keyword, found_by=found))
        hits.sort(key=lambda hit: -(hit.keyword + hit.vector))
        return Recalled(tuple(hits[: query.limit]), failing, len(hits) > query.limit, dict(self.partial))

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        self.metas.append(uris)
        return {
            uri: NodeMeta(**{name: r[name] for name in NodeMeta.__struct_fields__})
            for uri in uris
            if (r := self.records.get(uri)) and r["account_id"] == account_id
        }

    async def revision(self, account_id: str) -> str:
        return self.shown

    async def model(self) -> ModelRef | None:
        return FAKE_MODEL

    async def read(self, account_id: str, uris: Sequence[str], level: Level) -> dict[str, str]:
        self.reads.append((uris, level))
        key = "overview" if level == "L1" else "content"
        return {uri: self.records[uri][key] for uri in uris if self.records[uri][key]}

    async def edges(self, account_id: str, uri: str, limit: int) -> list[Relation]:
        return list(self.relations.get(uri, ()))[:limit]

"""Knowledge gaps: what was asked in vain, counted, and grouped so that an editor sees the real ones (K5)."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import select

from contracts.ports import Embedder, Vectors
from corpora.knowledge_base import sql
from corpora.knowledge_base.types import Gap, GapCluster
from database.engine import Database
from database.tables import kb_gaps
from database.upsert import insert_into

_GAP = [kb_gaps.c[name] for name in Gap.__struct_fields__]


class Gaps:
    """The gaps of all accounts.

    Args:
        database: Where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, account_id: str, query_text: str, filter_ctx: Mapping[str, Any]) -> Gap:
        """Count a question without an answer; one that had been resolved is open again.

        Args:
            account_id: The tenant.
            query_text: As it was asked.
            filter_ctx: Entity types and hard filters that it was asked under; order within lists counts.

        Returns:
            The gap with its new count, exact however many record it at once.
        """
        now = sql.now_ms()
        gap = Gap(gap_id(query_text, filter_ctx), query_text, dict(filter_ctx), 1, now, now)
        async with self._database.writing() as connection:
            statement = insert_into(connection, kb_gaps).values(account_id=account_id, **msgspec.structs.asdict(gap))
            changes = {
                "hit_count": kb_gaps.c.hit_count + 1,
                "last_seen_at": statement.excluded.last_seen_at,
                "resolved_at": 0,
            }
            keys = ["account_id", "gap_id"]
            counted = statement.on_conflict_do_update(index_elements=keys, set_=changes).returning(*_GAP)
            return Gap(*(await connection.execute(counted)).one())

    async def list(self, account_id: str, *, resolved: bool = False, limit: int | None = None) -> list[Gap]:
        """The open gaps, or those that were resolved, most hits first."""
        query = (
            select(*_GAP)
            .where(kb_gaps.c.account_id == account_id)
            .where(kb_gaps.c.resolved_at > 0 if resolved else kb_gaps.c.resolved_at == 0)
            .order_by(kb_gaps.c.hit_count.desc(), kb_gaps.c.gap_id)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            return [Gap(*row) for row in await connection.execute(query)]

    async def resolve(self, account_id: str, gap_ids: Collection[str], note: str = "") -> int:
        """Close gaps; returns how many were open."""
        closed = 0
        async with self._database.writing() as connection:
            for part in sql.pages(sorted(set(gap_ids))):
                done = await connection.execute(
                    kb_gaps.update()
                    .where(kb_gaps.c.account_id == account_id, kb_gaps.c.gap_id.in_(part), kb_gaps.c.resolved_at == 0)
                    .values(resolved_at=sql.now_ms(), note=note)
                )
                closed += done.rowcount
        return closed


def gap_id(query_text: str, filter_ctx: Mapping[str, Any]) -> str:
    """The same for the same text and filters, in whatever order these are named."""
    return hashlib.sha256(msgspec.json.encode([query_text, dict(filter_ctx)], order="sorted")).hexdigest()[:16]


async def clustered(gaps: Sequence[Gap], embedder: Embedder, similarity: float) -> list[GapCluster]:
    """Group gaps that ask for the same, under whatever filters.

    Args:
        gaps: Any.
        embedder: Tells how near two questions are; case and spacing do not count.
        similarity: Cosine from which two count as the same, 0..1.

    Returns:
        Most hits first; the same gaps always give the same groups.
    """
    ordered = sorted(gaps, key=lambda gap: (-gap.hit_count, gap.gap_id))
    texts = list(dict.fromkeys(_folded(gap.query_text) for gap in ordered))
    if not texts:
        return []
    vectors = (await embedder.embed(texts, "query")).vectors
    group_of = dict(zip(texts, leaders(vectors, similarity), strict=True))
    members: dict[int, list[Gap]] = {}
    for gap in ordered:
        members.setdefault(group_of[_folded(gap.query_text)], []).append(gap)
    clusters = [
        GapCluster(group[0].query_text, sum(gap.hit_count for gap in group), tuple(group)) for group in members.values()
    ]
    return sorted(clusters, key=lambda cluster: (-cluster.hit_count, cluster.gaps[0].gap_id))


def leaders(vectors: Vectors, similarity: float) -> list[int]:
    """Leader clustering (Hartigan: Clustering algorithms, 1975): no chains, and one pass.

    Args:
        vectors: Unit rows, shape (n, dimensions), the weightiest first.
        similarity: Cosine from which a row joins.

    Returns:
        For each row the row that leads its group: the nearest leader before it that is near enough, else itself.
    """
    chosen: list[int] = []
    result: list[int] = []
    for row in range(len(vectors)):
        cosines = vectors[chosen] @ vectors[row]
        best = int(np.argmax(cosines)) if chosen else 0
        if chosen and cosines[best] >= similarity:
            result.append(chosen[best])
        else:
            chosen.append(row)
            result.append(row)
    return result


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()) or text

"""Recall and metadata: dense and keyword candidates from LanceDB, each with its two true scores."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
from lancedb.query import MatchQuery

from contracts.filters import account_of
from contracts.ports import NodeMeta, Recall, Recalled, RecallQuery, Vectors
from contracts.records import ModelRef
from index.candidates import SHOWN, Candidates, Key, check_dimensions, refuse_other_model, require_some
from index.embedded.config import EmbeddedConfig
from index.embedded.filter_sql import one_of, where
from index.embedded.resident.accounts import Accounts
from index.embedded.store import Store
from index.embedded.table import NodeTable, attributes
from index.rows import unit
from index.text import Analysis, Countable, analyze

_SCORED = ("account_id", "words", "bigrams")


class Search:
    """Reads of the nodes table."""

    def __init__(self, nodes: NodeTable, store: Store, config: EmbeddedConfig) -> None:
        self._nodes = nodes
        self._store = store
        self._config = config
        self.accounts = Accounts(nodes, store.state, config.resident, config.bm25)

    async def close(self) -> None:
        """Let go of what is in memory."""
        await self.accounts.close()

    async def table(self) -> lancedb.AsyncTable | None:
        """The table of nodes; ``None`` while there is no document, when a writer may just be making the table."""
        if self._store.state.model() is None:
            return None
        return await self._nodes.get()

    async def recall(self, queries: Sequence[RecallQuery]) -> list[Recalled]:
        """See ``SearchIndex.recall``.

        Raises:
            ConfigError: A query's vector has another dimension than the index.
        """
        names = [account_of(query.condition) for query in queries]
        if (held := self._store.state.model()) is not None:
            check_dimensions(held, queries)
        accounts = {name: self.accounts.get(name) for name in set(names)}
        in_memory = [account for name in names if (account := accounts[name]) is not None]
        if len(in_memory) == len(queries):
            return [account.recall(query) for account, query in zip(in_memory, queries, strict=True)]
        return await self._on_disk(queries, held)

    async def _on_disk(self, queries: Sequence[RecallQuery], held: ModelRef | None) -> list[Recalled]:
        conditions = [where(query.condition) for query in queries]
        table = await self.table()
        if table is None or held is None:
            return [Recalled((), {}, more=False) for _ in queries]
        answers = (self._answer(table, held, *asked) for asked in zip(queries, conditions, strict=True))
        return list(await asyncio.gather(*answers))

    async def meta(self, account_id: str, uris: Sequence[str]) -> dict[str, NodeMeta]:
        """See ``SearchIndex.meta``."""
        if (account := self.accounts.get(account_id)) is not None:
            return account.meta(uris)
        rows = await self.lookup(account_id, uris, NodeMeta.__struct_fields__)
        return {node.uri: node for node in map(_node_meta, rows)}

    async def lookup(self, account_id: str, uris: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Columns of the nodes with these URIs that exist, in any order."""
        table = await self.table()
        if table is None or not uris:
            return []
        condition = f"{one_of('account_id', [account_id])} AND {one_of('uri', set(uris))}"
        found = await table.query().where(condition).select(list(columns)).to_arrow()
        return _tuples(found, columns)

    async def _answer(self, table: lancedb.AsyncTable, held: ModelRef, query: RecallQuery, condition: str) -> Recalled:
        terms = analyze(query.text)
        query, failed = refuse_other_model(query, held)
        recalls: dict[Recall, Any] = {}
        if query.vector is not None:
            recalls["dense"] = self._dense(table, unit(query.vector), condition, query.limit)
        if terms.words or terms.bigrams:
            recalls["keyword"] = self._keyword(table, terms, condition, query.limit)
        outcomes = dict(zip(recalls, await asyncio.gather(*recalls.values(), return_exceptions=True), strict=True))
        failed |= {recall: _reason(error) for recall, error in outcomes.items() if isinstance(error, BaseException)}
        found = {recall: tables for recall, tables in outcomes.items() if recall not in failed}
        require_some(failed, found)
        return await asyncio.to_thread(self._merge, query, terms, found, failed)

    async def _dense(self, table: lancedb.AsyncTable, vector: Vectors, condition: str, limit: int) -> list[pa.Table]:
        search = table.query().nearest_to(vector).distance_type("dot")
        # Both are without effect, and search exact, before there is a vector index.
        search = search.nprobes(self._config.ann_probes).refine_factor(self._config.ann_refine)
        return [await search.where(condition).select([*SHOWN, *_SCORED, "_distance"]).limit(limit).to_arrow()]

    async def _keyword(self, table: lancedb.AsyncTable, terms: Analysis, condition: str, limit: int) -> list[pa.Table]:
        depth = round(limit * self._config.keyword_oversampling)
        columns = [*SHOWN, *_SCORED, "vector", "_score"]
        searches = [
            table.query().nearest_to_text(MatchQuery(" ".join(dict.fromkeys(wanted)), column))
            for column, wanted in terms._asdict().items()
            if wanted
        ]
        return list(
            await asyncio.gather(*(s.where(condition).select(columns).limit(depth).to_arrow() for s in searches))
        )

    def _merge(
        self, query: RecallQuery, terms: Analysis, found: dict[Recall, list[pa.Table]], failed: dict[Recall, str]
    ) -> Recalled:
        """Each record once, with both scores; of the keyword candidates the ``limit`` best by coverage."""
        candidates = Candidates(query.limit)
        cosines: dict[Key, float] = {}
        for recall, tables in found.items():
            for table in tables:
                keys = _tuples(table, ("account_id", "kind", "uri"))
                pairs = _tuples(table, ("words", "bigrams"))
                texts = ((Countable.of(words), Countable.of(bigrams)) for words, bigrams in pairs)
                candidates.add(recall, keys, _tuples(table, SHOWN), texts)
                cosines.update(zip(keys, _cosines(table, query.vector), strict=True))
        candidates.score(terms, partial(self._store.statistics, query=terms), self._config.bm25)
        return candidates.recalled(cosines, failed, {})


def _node_meta(row: tuple[Any, ...]) -> NodeMeta:
    fields = dict(zip(NodeMeta.__struct_fields__, row, strict=True))
    return msgspec.convert(fields | {"attrs": attributes(fields["attrs"])}, NodeMeta)


def _reason(error: BaseException) -> str:
    # LanceDB's messages quote the condition, which holds what the caller asked for: they go no further.
    return f"LanceDB raised {type(error).__name__}"


def _cosines(table: pa.Table, vector: Vectors | None) -> list[float]:
    """Cosine with the query's vector, negative clipped to 0; stored vectors have length 1."""
    if vector is None:
        return [0.0] * len(table)
    if "_distance" in table.column_names:
        scores = 1 - table["_distance"].to_numpy()
    else:
        stored = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), len(vector))
        scores = stored @ unit(vector)
    return np.clip(scores, 0, 1).tolist()  # type: ignore[no-any-return]


def _tuples(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table[column].to_pylist() for column in columns), strict=True))

"""The LanceDB half of the embedded index: one table, one row a node."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS, Bitmap, BTree, HnswSq, LabelList

from contracts.ports import Embeddable
from contracts.records import Node
from index.embedded.config import EmbeddedConfig
from index.rows import row, unit

NAME = "nodes"
_TEXT, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.bool_()
_LIST = pa.list_(pa.field("item", pa.string(), nullable=False))
_COLUMNS = {
    "account_id": _TEXT,
    "source_id": _TEXT,
    "document_id": _TEXT,
    "revision": _NUMBER,
    "uri": _TEXT,
    "parent_uri": _TEXT,
    "name": _TEXT,
    "owner_space": _TEXT,
    "context_type": _TEXT,
    "category": _TEXT,
    "kind": _TEXT,
    "status": _TEXT,
    "tags": _LIST,
    "attrs": _LIST,
    "level": _NUMBER,
    "depth": _NUMBER,
    "created_at": _NUMBER,
    "updated_at": _NUMBER,
    "expires_at": _NUMBER,
    "abstract": _TEXT,
    "has_overview": _FLAG,
    "has_content": _FLAG,
    "has_children": _FLAG,
    "words": _TEXT,
    "bigrams": _TEXT,
}
# Our analysis has cut and stemmed the text already: terms are taken as they are.
_FTS = FTS(
    base_tokenizer="whitespace",
    lower_case=False,
    stem=False,
    remove_stop_words=False,
    ascii_folding=False,
    max_token_length=None,
)
# With all filterable columns indexed, a pre-filter is answered without looking at rows.
_INDEXES = {
    **dict.fromkeys(("words", "bigrams"), _FTS),
    **dict.fromkeys(("uri", "parent_uri", "document_id", "created_at", "updated_at", "expires_at"), BTree()),
    **dict.fromkeys(("account_id", "source_id", "owner_space", "context_type", "category", "kind", "status"), Bitmap()),
    **dict.fromkeys(("level", "depth"), Bitmap()),
    **dict.fromkeys(("tags", "attrs"), LabelList()),
}


class NodeTable:
    """The table, opened when it first exists; every read sees the latest commit of any process."""

    def __init__(self, connection: lancedb.AsyncConnection) -> None:
        self._connection = connection
        self._table: lancedb.AsyncTable | None = None

    @classmethod
    async def connect(cls, folder: Path) -> "NodeTable":
        """Connect to the folder that holds, or will hold, the table."""
        # On a local disk the look for a newer version costs far less than a search does.
        return cls(await lancedb.connect_async(folder, read_consistency_interval=timedelta(0)))

    def close(self) -> None:
        """Let go of the table and the connection."""
        if self._table is not None:
            self._table.close()
        self._connection.close()

    async def get(self) -> "lancedb.AsyncTable | None":
        """The table; ``None`` before the first commit."""
        if self._table is None and await self._exists():
            self._table = await self._connection.open_table(NAME)
        return self._table

    async def create(self, dimensions: int) -> "lancedb.AsyncTable":
        """An empty table with its indexes, in place of what was there."""
        mode = "overwrite" if await self._exists() else "create"
        self._table = await self._connection.create_table(NAME, schema=schema(dimensions), mode=mode)
        for column, config in _INDEXES.items():
            await self._table.create_index(column, config=config)
        return self._table

    async def _exists(self) -> bool:
        return NAME in (await self._connection.list_tables()).tables

    async def optimize(self, config: EmbeddedConfig) -> None:
        """Index the vectors once there are enough, merge files, index new rows and remove old versions."""
        table = await self.get()
        if table is None:
            return
        indexed = {column for index in await table.list_indices() for column in index.columns}
        if "vector" not in indexed and await table.count_rows() >= config.ann_rows:
            await table.create_index("vector", config=HnswSq(distance_type="dot"))
        await table.optimize(cleanup_older_than=timedelta(seconds=config.keep_seconds))


def schema(dimensions: int) -> pa.Schema:
    """The table's columns; none is ever null, a missing text is empty."""
    fields = [pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()]
    return pa.schema([*fields, pa.field("vector", pa.list_(pa.float32(), dimensions), nullable=False)])


def rows(account_id: str, source_id: str, documents: Sequence[Embeddable], revisions: Sequence[int]) -> pa.Table:
    """The rows of documents, each in its revision; analyses their texts, so it takes about 0.1 ms a node.

    Raises:
        InvalidInput: An attribute with a name that filters can't name.
    """
    found = [
        {
            "account_id": account_id,
            "source_id": source_id,
            "document_id": item.document.document_id,
            "revision": revision,
        }
        | _columns(node)
        for item, revision in zip(documents, revisions, strict=True)
        for node in item.document.nodes
    ]
    vectors = unit(np.concatenate([item.vectors for item in documents]))
    columns = [pa.array([each[name] for each in found], kind) for name, kind in _COLUMNS.items()]
    columns.append(pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]))
    return pa.Table.from_arrays(columns, schema=schema(vectors.shape[1]))


def attributes(column: Iterable[str]) -> dict[str, list[str]]:
    """A node's attributes, of the column that holds them all; those without a value left no trace there."""
    found: dict[str, list[str]] = {}
    for name, _, value in (entry.partition("=") for entry in column):
        found.setdefault(name, []).append(value)
    return found


def _columns(node: Node) -> dict[str, Any]:
    # One list for all attributes: their names hold no "=", so an entry reads in one way only.
    fields = row(node)
    fields["attrs"] = [f"{name}={value}" for name, values in fields["attrs"].items() for value in values]
    return fields

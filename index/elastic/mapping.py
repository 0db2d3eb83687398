"""What lies in Elasticsearch: three kinds of index, their mappings, and the records in them.

================  ====================================================================================================
``P-nodes-NNNN``  One record a node and revision of its document: what is searched. A version holds the vectors of one
                  model; the alias ``P-nodes`` names the version that serves.
``P-texts``       What is read by URI: L1, L2, relations, and the texts a vector is made of; shared by all versions.
``P-ledger``      Documents with their journal, commits under way, and the state of each account (``ledger``).
================  ====================================================================================================

Ids are digests, so they are short, safe in a URL, and the same each time: writing again changes nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.errors import InvalidInput
from contracts.records import ModelRef, Node
from index.elastic.config import LayoutConfig
from index.rows import row

# Raised whenever stored terms or fields change their meaning.
FORMAT = 1
# The longest term Lucene takes.
MAX_TERM_BYTES = 32_766
_KEYWORD = {"type": "keyword"}
_LONG = {"type": "long"}
_KEPT = {"type": "keyword", "index": False, "doc_values": False}
_FLAG = {"type": "boolean", "index": False, "doc_values": False}
# Our analysis has cut and stemmed the text already: terms are taken as they are.
_TERMS = {"type": "text", "analyzer": "whitespace", "index_options": "freqs"}
_COUNT = {"type": "integer", "index": False}
_FILTERED = ("owner_space", "context_type", "category", "kind", "status", "uri", "parent_uri", "tags")
_NUMBERS = ("level", "depth", "created_at", "updated_at", "expires_at")
_NODES: Mapping[str, Any] = {
    **dict.fromkeys(("account_id", "source_id", "document_id", "key", *_FILTERED, "lineage"), _KEYWORD),
    **dict.fromkeys(("revision", *_NUMBERS), _LONG),
    **dict.fromkeys(("name", "abstract"), _KEPT),
    **dict.fromkeys(("has_overview", "has_content", "has_children"), _FLAG),
    **dict.fromkeys(("words", "bigrams"), _TERMS),
    **dict.fromkeys(("words_count", "bigrams_count"), _COUNT),
    "attrs": {"type": "flattened"},
}
TEXTS: Mapping[str, Any] = {
    "dynamic": "strict",
    "properties": {
        "account_id": _KEYWORD,
        "revision": _LONG,
        "body": {"type": "object", "enabled": False},
    },
}
LEDGER: Mapping[str, Any] = {
    "dynamic": "strict",
    "properties": {
        **dict.fromkeys(("account_id", "source_id", "document_id", "state"), _KEYWORD),
        **dict.fromkeys(("revision", "updated_at"), _LONG),
        "fingerprint": _KEPT | {"index": True},
        "detail": _KEPT,
        "body": {"type": "object", "enabled": False},
    },
}


class Meta(msgspec.Struct, frozen=True):
    """What an index version says of itself, in its mapping.

    Args:
        model: Whose vectors it holds.
        routed: Whether records are routed by account.
        format: Of records and terms.
    """

    model: ModelRef
    routed: bool
    format: int = FORMAT


def nodes_mapping(meta: Meta, layout: LayoutConfig) -> dict[str, Any]:
    """The mapping of an index version."""
    vector = {
        "type": "dense_vector",
        "dims": meta.model.dimensions,
        "index": True,
        # Of unit vectors it orders as the cosine does, and a vector of length 0 is allowed.
        "similarity": "max_inner_product",
        "index_options": {
            "type": "int8_hnsw",
            "m": layout.hnsw_m,
            "ef_construction": layout.hnsw_ef_construction,
        },
    }
    mapping: dict[str, Any] = {
        "dynamic": "strict",
        "_meta": msgspec.to_builtins(meta),
        "properties": {**_NODES, "vector": vector},
    }
    if meta.routed:
        mapping["_routing"] = {"required": True}
    return mapping


def nodes_settings(layout: LayoutConfig) -> dict[str, Any]:
    """The settings of an index version.

    A commit refreshes by itself when it is complete. That may be long before its segments are merged, and searches go
    on looking into the old ones until the next refresh. What that shows of a commit under way is hidden.
    """
    partition = {}
    if layout.routing == "account" and layout.partition > 1:
        # Without as many routing shards as shards, neighbouring parts of an account fall on the same one.
        partition = {"routing_partition_size": layout.partition, "number_of_routing_shards": layout.shards}
    merge = {"segments_per_tier": layout.segments_per_tier, "floor_segment": f"{layout.floor_segment_mb}mb"}
    return {**settings(layout), **partition, "refresh_interval": f"{layout.refresh_seconds}s", "merge.policy": merge}


def settings(layout: LayoutConfig) -> dict[str, Any]:
    """The settings of the other indices."""
    single = layout.replicas.isdigit()
    copies = {"number_of_replicas": int(layout.replicas)} if single else {"auto_expand_replicas": layout.replicas}
    # Removals are remembered for as long as a write may be late, see ``writer``.
    return {"number_of_shards": layout.shards, "gc_deletes": "10m", **copies}


def digest(*parts: str | int) -> str:
    """An id of 32 hexadecimal digits for a tuple of values, other tuples having others."""
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=16).hexdigest()


def routing_of(account_id: str) -> str:
    """Where an account's records lie; account ids themselves may hold what a routing value can't, such as commas."""
    return digest(account_id)


def node_id(account_id: str, uri: str, revision: int) -> str:
    """The id of a node in one revision of its document, in the nodes and in the texts."""
    return digest(account_id, uri, revision)


def node_record(
    account_id: str, source_id: str, document_id: str, revision: int, node: Node, vector: NDArray[np.float32]
) -> dict[str, Any]:
    """The record of a node; empty values are left out, so that they satisfy no condition.

    Args:
        account_id: Its tenant.
        source_id: Its source.
        document_id: Its document.
        revision: Of the document.
        node: The node.
        vector: Of length 1, or 0; shape (dimensions,).

    Raises:
        InvalidInput: A value to filter by is longer than Elasticsearch takes, or an attribute can't be filtered by.
    """
    fields = row(node)
    record = {name: value for name, value in fields.items() if value not in ("", [], {})}
    record |= {
        "account_id": account_id,
        "source_id": source_id,
        "document_id": document_id,
        "revision": revision,
        "key": node_id(account_id, node.uri, revision),
        "lineage": lineage(node.uri),
        "vector": vector,
    }
    for name in ("words", "bigrams"):
        if count := len(fields[name].split()):
            record[f"{name}_count"] = count
    _check_terms(record, node.uri)
    return record


def text_record(account_id: str, revision: int, node: Node) -> dict[str, Any] | None:
    """What is read of a node, rather than searched; ``None`` when there is nothing."""
    body = {
        "overview": node.overview,
        "content": node.content,
        "vector_texts": node.vector_texts,
        "relations": [msgspec.to_builtins(edge) for edge in node.relations],
    }
    filled = {name: value for name, value in body.items() if value}
    return {"account_id": account_id, "revision": revision, "body": filled} if filled else None


def lineage(uri: str) -> list[str]:
    """A URI and all it lies under: ``strata://s/a/b``, ``strata://s/a``, ``strata://s``."""
    found = [uri]
    while (cut := found[-1].rfind("/")) > len("strata://"):
        found.append(found[-1][:cut])
    return found


def _check_terms(record: Mapping[str, Any], uri: str) -> None:
    attributes = ((f"attrs.{name}", name, values) for name, values in record.get("attrs", {}).items())
    plain = ((name, "", record.get(name, ())) for name in (*_FILTERED, "source_id", "document_id"))
    for field, key, found in (*plain, *attributes):
        values: Iterable[str] = (found,) if isinstance(found, str) else found
        if any(len(key.encode()) + len(value.encode()) >= MAX_TERM_BYTES for value in values):
            raise InvalidInput(
                f"{field} of {uri[:200]} is longer than {MAX_TERM_BYTES} bytes.",
                field=field,
                remedy="Shorten it; long texts belong into the abstract, overview or content.",
            )

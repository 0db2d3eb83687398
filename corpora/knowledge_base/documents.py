"""Entities as documents of the index: a node a chunk, with all that the hard filters need."""

import hashlib
from collections.abc import Sequence

import msgspec

from contracts.filters import Eq, Filter, In, all_of
from contracts.records import Document, Node
from corpora.knowledge_base.checks import ROOT
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.types import SPACE, Chunk, Entity

# Of all documents of the knowledge base in its index.
SOURCE = ROOT
_L0_CHARS = 500


def document(entity: Entity, chunks: Sequence[Chunk], config: KnowledgeBaseConfig) -> Document | None:
    """What the index holds of an entity; ``None`` for nothing: only what is published and has chunks is in it."""
    if entity.status != "published" or not chunks:
        return None
    nodes = tuple(_node(entity, chunk, config) for chunk in chunks)
    return Document(entity.entity_id, hashlib.sha256(msgspec.msgpack.encode(nodes)).hexdigest(), nodes)


def condition(entity_types: Sequence[str], hard: Sequence[Filter]) -> Filter:
    """The pre-filter of both recalls (K1): space, entity types and hard filters, as nodes hold them."""
    types = In("category", tuple(entity_types)) if entity_types else None
    return all_of(Eq("owner_space", SPACE), types, *hard)


def ids_of(uri: str) -> tuple[str, str]:
    """Entity id and chunk id of a node's URI."""
    entity_id, _, chunk_id = uri.removeprefix(f"{ROOT}/").partition("/")
    return entity_id, chunk_id


def _node(entity: Entity, chunk: Chunk, config: KnowledgeBaseConfig) -> Node:
    return Node(
        uri=f"{ROOT}/{entity.entity_id}/{chunk.chunk_id}",
        parent_uri="",
        name=entity.name,
        kind="chunk",
        context_type="resource",
        category=entity.type,
        # The text itself is in the database; here it is what a person sees who looks into the index.
        abstract=chunk.text[:_L0_CHARS],
        search_text=chunk.text,
        vector_texts=(chunk.text,),
        attrs={name: tuple(entity.attrs.get(name, ())) for name in config.keyword_attrs if entity.attrs.get(name)},
        updated_at=entity.updated_at,
    )

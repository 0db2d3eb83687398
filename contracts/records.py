"""What is written: nodes, grouped into documents that appear and vanish as a whole."""

from typing import Literal

import msgspec

from contracts.hits import Relation
from contracts.query import ContextType

Status = Literal["active", "archived"]


class ModelRef(msgspec.Struct, frozen=True, gc=False):
    """A named embedding model (design decision 9): vectors of two refs are never compared."""

    name: str
    version: str
    dimensions: int


class Node(msgspec.Struct, frozen=True):
    """One node of the tree: an L0 abstract that is searched, and the L1 and L2 texts read by URI.

    Args:
        uri: Canonical; its space is the owner space.
        parent_uri: The node above; empty for a root.
        name: Title or qualified name, searched as text.
        kind: What it is in its source (folder, document, section, record, session, turn, module, class, function).
            Lexical statistics are kept per account and kind.
        context_type: memory, skill or resource.
        category: Finer class within the context type.
        abstract: L0, one or two sentences.
        overview: L1; empty for none.
        content: L2; empty for none.
        search_text: What keyword recall matches besides ``name``; empty means the abstract.
        vector_texts: Texts whose mean embedding is the node's vector; empty means ``name`` and abstract.
        relations: Edges to other nodes.
        tags: Keywords to filter by.
        attrs: Further keyword values by name.
        created_at: Milliseconds since the epoch.
        updated_at: Milliseconds since the epoch.
        expires_at: Milliseconds since the epoch after which it never shows; 0 for never.
        status: Only ``active`` nodes show.
        has_children: Whether other nodes name this one as parent.
    """

    uri: str
    parent_uri: str
    name: str
    kind: str
    context_type: ContextType
    category: str
    abstract: str
    overview: str = ""
    content: str = ""
    search_text: str = ""
    vector_texts: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    tags: tuple[str, ...] = ()
    attrs: dict[str, tuple[str, ...]] = {}
    created_at: int = 0
    updated_at: int = 0
    expires_at: int = 0
    status: Status = "active"
    has_children: bool = False


class Document(msgspec.Struct, frozen=True):
    """Nodes that are written together: all of them show, or none.

    Args:
        document_id: Unique within its source, for instance a path relative to it.
        fingerprint: Hash of everything that shapes the nodes; the same fingerprint means nothing to do.
        nodes: At least one.
    """

    document_id: str
    fingerprint: str
    nodes: tuple[Node, ...]


def corpus_source(corpus: str, space: str) -> str:
    """The ``source_id`` of a corpus's documents in a space; those of files are URIs, so that none is both."""
    return f"corpus:{corpus}:{space}"

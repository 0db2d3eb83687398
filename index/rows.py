"""Nodes as the flat records that every backend stores, and what is checked before any is stored."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.errors import InvalidFilter, InvalidInput
from contracts.filters import kind_of
from contracts.ports import Embeddable, Vectors
from contracts.records import ModelRef, Node
from contracts.uri import depth_of, space_of
from index.text import analyze


def row(node: Node) -> dict[str, Any]:
    """A node's searchable fields; analyses its text, so it takes about 0.1 ms.

    Raises:
        InvalidInput: An attribute with a name that filters can't name.
    """
    terms = analyze(f"{node.name}\n{node.search_text or node.abstract}")
    return {
        "uri": node.uri,
        "parent_uri": node.parent_uri,
        "name": node.name,
        "owner_space": space_of(node.uri),
        "context_type": node.context_type,
        "category": node.category,
        "kind": node.kind,
        "status": node.status,
        "tags": list(node.tags),
        "attrs": {_attribute(name): list(values) for name, values in node.attrs.items()},
        "level": 0,
        "depth": depth_of(node.uri),
        "created_at": node.created_at,
        "updated_at": node.updated_at,
        "expires_at": node.expires_at,
        "abstract": node.abstract,
        "has_overview": bool(node.overview),
        "has_content": bool(node.content),
        "has_children": node.has_children,
        "words": " ".join(terms.words),
        "bigrams": " ".join(terms.bigrams),
    }


def unit(vectors: Vectors) -> NDArray[np.float32]:
    """The vectors at length 1, so that a dot product is their cosine; a zero vector stays, and is like nothing."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def check(documents: Sequence[Embeddable], model: ModelRef) -> None:
    """Refuse documents that can't be stored, before anything of them is.

    Raises:
        InvalidInput: Nodes and vectors do not fit together, text is not Unicode, or a document id or URI comes twice.
    """
    for item in documents:
        nodes, name = item.document.nodes, item.document.document_id
        if not nodes:
            raise InvalidInput(f"Document {name!r} has no nodes.", field="nodes")
        if item.vectors.shape != (len(nodes), model.dimensions) or not np.isfinite(item.vectors).all():
            raise InvalidInput(
                f"Document {name!r} has {len(nodes)} nodes and vectors of shape {item.vectors.shape}; "
                f"the model {model.name} makes one of {model.dimensions} finite numbers a node.",
                field="vectors",
            )
        try:
            msgspec.msgpack.encode(item.document)
        except UnicodeEncodeError:
            raise InvalidInput(f"Document {name!r} holds text that is not valid Unicode.", field="nodes") from None
    _refuse_repeats("document_id", (item.document.document_id for item in documents))
    _refuse_repeats("uri", (node.uri for item in documents for node in item.document.nodes))


def batches(documents: Sequence[Embeddable], size: int) -> Iterator[list[Embeddable]]:
    """Documents in groups of about ``size`` nodes, none of them split."""
    batch: list[Embeddable] = []
    count = 0
    for item in documents:
        if batch and count + len(item.document.nodes) > size:
            yield batch
            batch, count = [], 0
        batch.append(item)
        count += len(item.document.nodes)
    if batch:
        yield batch


def refuse_foreign(source_id: str, found: Iterable[tuple[str, str, str]]) -> None:
    """Refuse to take over a URI of another source.

    Args:
        source_id: The source that writes.
        found: Source, document and URI of the stored nodes with the URIs to be written.

    Raises:
        InvalidInput: One of them is another source's.
    """
    for owner, document, uri in found:
        if owner != source_id:
            raise InvalidInput(
                f"{uri} belongs to document {document!r} of source {owner!r}.",
                field="uri",
                remedy="Remove that source first, or ingest under another root URI.",
            )


def _refuse_repeats(field: str, values: Iterable[str]) -> None:
    value, count = max(Counter(values).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise InvalidInput(f"{value!r} comes {count} times.", field=field, remedy=f"Make each {field} unique.")


def _attribute(name: str) -> str:
    """An attribute's name, which must be one that filters can name: then every value can be filtered by."""
    try:
        kind_of(f"attrs.{name}")
    except InvalidFilter:
        raise InvalidInput(
            f"The attribute name {name!r} can't be filtered by.", field="attrs", remedy="Use letters, digits and _."
        ) from None
    return name

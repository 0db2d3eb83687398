"""A collection as a source of the product: what it becomes in the index, and where its documents are found there."""

from pathlib import Path

import msgspec

from contracts.errors import InvalidInput
from contracts.query import ContextType
from contracts.records import Document, Node
from corpora.context.dialogue import DialogueSource
from corpora.context.records import RecordsSource
from evaluation.datasets import CORPUS, Dataset
from index.ingest import IngestConfig, Source

SPACE = "shared"


class Placed(msgspec.Struct, frozen=True):
    """Where the documents of a collection are in the index.

    Args:
        documents: Document id by the URI of its node; nodes below belong to the same document.
        targets: URI of the conversation by its name; empty when the set has none.
    """

    documents: dict[str, str]
    targets: dict[str, str]


def context_type(dataset: Dataset) -> ContextType:
    """What its nodes are: dialogues are memory, everything else resource."""
    return "memory" if dataset.conversational else "resource"


def source_of(folder: Path, dataset: Dataset, config: IngestConfig) -> Source:
    """The corpus file through the product's own source: turns of dialogues where it has conversations, else records."""
    if dataset.conversational:
        return DialogueSource(folder / CORPUS, space=SPACE, name=dataset.name, config=config)
    return RecordsSource(folder / CORPUS, space=SPACE, name=dataset.name, config=config)


def place(dataset: Dataset, source: Source) -> Placed:
    """Read the source once more for the URIs it gives to the documents.

    Raises:
        InvalidInput: A document of the collection is not among its nodes.
    """
    documents: dict[str, str] = {}
    parents: dict[str, str] = {}
    for item in source.documents():
        if not isinstance(item, Document):
            raise InvalidInput(f"{item.file}, line {item.line}: {item.message}", field=CORPUS)
        for node in item.nodes:
            parents[node.uri] = node.parent_uri
            if node.kind != "chunk" and (document_id := _document_id(node)):
                documents[node.uri] = document_id
    places = {document_id: uri for uri, document_id in documents.items()}
    if missing := [passage.id for passage in dataset.passages if passage.id not in places]:
        raise InvalidInput(f"{len(missing)} documents were not ingested, the first is {missing[0]}.", field=CORPUS)
    targets: dict[str, str] = {}
    for passage in dataset.passages:
        if passage.conv and passage.conv not in targets:
            session = parents[places[passage.id]]
            targets[passage.conv] = parents[session]
    return Placed(documents, targets)


def _document_id(node: Node) -> str:
    return next(iter(node.attrs.get("id", ())), "")

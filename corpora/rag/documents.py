"""A corpus's source as the nodes that are indexed: where they lie, how they are cut, and what is refused (R2)."""

import re
from hashlib import blake2b

import msgspec

from contracts.errors import InvalidBody, InvalidUri
from contracts.records import Document, Node, corpus_source
from contracts.text import UNSTORABLE
from contracts.uri import MAX_LENGTH, join, parse, parse_space
from corpora.context import nodes
from corpora.context.nodes import Uris, base_uri, chunk_nodes, fits, titled
from corpora.rag.types import END, SOURCE_ID, START, TITLE, Passage, SourceDocument
from index.abstracts import AbstractOptions, Entry, abstract, clip, outline, overview
from index.chunker import ChunkOptions

MAX_SOURCE_ID = 512
# The latest moment that JSON numbers and all stores agree on, milliseconds since the epoch.
_MAX_MILLIS = 2**53
# Marks a name that was made from an id, so no id that holds it is taken as it is.
_MADE = "~"
# Names of the nodes below a source.
_OWN = re.compile(r"(?:chunk|part)-[0-9]+")
_READABLE = 64
_ROOM_BELOW = 32
_MAX_TITLE = 512


class SourceChunker:
    """The core's chunker: see ``corpora.rag.ports.Chunker``.

    A text that fits is one node. A longer one is a parent that holds it whole, over a node of kind ``chunk`` for each
    chunk; passages are a parent over a node each. Only parents have an overview. ``attrs.source`` of every node is the
    source's id, ``attrs.title`` its title; ``attrs.start`` and ``attrs.end`` are offsets in characters where the node
    is a slice of the text, so that ``text[start:end]`` is its L2.

    Args:
        options: How long chunks are; ``None`` cuts nothing.
        abstracts: How long made L0 and L1 texts are.
    """

    def __init__(self, options: ChunkOptions | None = None, abstracts: AbstractOptions | None = None) -> None:
        self._options = options
        self._abstracts = abstracts or AbstractOptions()

    def document(self, corpus: str, source: SourceDocument) -> Document:
        """The source's nodes, to be written together; the fingerprint is of all that they hold.

        Raises:
            InvalidBody: As :func:`check`.
        """
        return nodes.document(source.source_id, self.chunk(corpus, source))

    def chunk(self, corpus: str, document: SourceDocument) -> tuple[Node, ...]:
        """See ``corpora.rag.ports.Chunker``.

        Raises:
            InvalidBody: As :func:`check`.
        """
        check(document)
        root = Node(
            uri=source_uri(document.space, corpus, document.source_id),
            parent_uri="",
            name=document.title,
            kind=document.kind,
            context_type=document.context_type,
            category=document.category or document.kind,
            abstract="",
            tags=document.tags,
            attrs={
                **document.attrs,
                SOURCE_ID: (document.source_id,),
                **({TITLE: (document.title[:_MAX_TITLE],)} if document.title.strip() else {}),
            },
            created_at=document.created_at,
            updated_at=document.updated_at,
            expires_at=document.expires_at,
        )
        return self._passages(root, document) if document.passages else self._text(root, document.text)

    def _text(self, root: Node, text: str) -> tuple[Node, ...]:
        short = fits(text, self._options)
        l0 = self._abstract(text)
        start = len(text) - len(text.lstrip())
        part = text.strip()
        whole = msgspec.structs.replace(
            root,
            abstract=l0,
            overview="" if short else overview(text, self._abstracts) or l0,
            content=part if short else text,
            search_text=part,
            vector_texts=(titled(root.name, part if short else l0),),
        )
        if short:
            return (msgspec.structs.replace(whole, attrs=_placed(whole, start, start + len(part))),)
        chunks = chunk_nodes(whole, text, root.name, Uris(), self._options, self._abstracts)
        # One that is all markup has no sentence to be its abstract.
        named = (
            each if each.abstract else msgspec.structs.replace(each, abstract=self._abstract(each.content))
            for each in chunks
        )
        return msgspec.structs.replace(whole, has_children=True), *named

    def _passages(self, root: Node, source: SourceDocument) -> tuple[Node, ...]:
        given = [passage for passage in source.passages if passage.text.strip()]
        said = [passage.text for passage in given]
        text = source.text or "\n".join(said)
        l0 = self._abstract("\n\n".join(said), lead=0)
        whole = msgspec.structs.replace(
            root,
            abstract=l0,
            overview=outline([Entry(each.name, each.text) for each in given], self._abstracts) or l0,
            content=text,
            search_text=text,
            vector_texts=(titled(root.name, l0),),
            has_children=True,
        )
        return whole, *(self._passage(whole, each, number) for number, each in enumerate(given, 1))

    def _passage(self, whole: Node, passage: Passage, number: int) -> Node:
        return msgspec.structs.replace(
            whole,
            uri=join(whole.uri, f"part-{number}"),
            parent_uri=whole.uri,
            name=passage.name or whole.name,
            kind=passage.kind,
            abstract=self._abstract(passage.text),
            overview="",
            content=passage.text,
            search_text=passage.search_text or passage.text,
            vector_texts=passage.vector_texts or (titled(passage.name or whole.name, passage.text),),
            attrs={**passage.attrs, **whole.attrs},
            has_children=False,
        )

    def _abstract(self, text: str, lead: float = 1.0) -> str:
        """The L0 of a text; its beginning where it is all markup."""
        return abstract(text, self._abstracts, lead) or clip(" ".join(text.split()), self._abstracts.abstract_tokens)


def index_source(space: str, corpus: str) -> str:
    """The ``source_id`` under which the index keeps a corpus in a space.

    Raises:
        InvalidUri: ``space`` is no valid space.
    """
    return corpus_source(corpus, parse_space(space, field="space"))


def source_uri(space: str, corpus: str, source_id: str) -> str:
    """The URI of a source: its id below the corpus where that is a plain path, else a name with a hash of the id.

    Two ids never have the same URI, and none has one that lies among another's chunks by name.

    Raises:
        InvalidUri: ``space`` is no valid space.
    """
    base = base_uri(space, corpus)
    plain = f"{base}/{source_id}"
    try:
        fit = len(plain) <= MAX_LENGTH - _ROOM_BELOW and parse(plain) == plain and _MADE not in source_id
    except InvalidUri:
        fit = False
    if fit and not any(map(_OWN.fullmatch, source_id.split("/"))):
        return plain
    digest = blake2b(source_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{join(base, source_id.replace('/', '-')[:_READABLE])}{_MADE}{digest}"


def check(source: SourceDocument) -> None:
    """Refuse what can't be stored, before it is acknowledged.

    Raises:
        InvalidBody: The id is blank, too long or can't be stored; there is no text; the text is no Unicode; or a time
            lies out of range.
        InvalidUri: The space is not valid.
    """
    check_source_id(source.source_id)
    index_source(source.space, "check")
    if not (source.text.strip() or any(passage.text.strip() for passage in source.passages)):
        raise InvalidBody("The source holds no text.", field="text", remedy="Send some, or delete the source.")
    for field in ("created_at", "updated_at", "expires_at"):
        if not 0 <= getattr(source, field) <= _MAX_MILLIS:
            raise InvalidBody(f"{field} is out of range.", field=field, remedy="Write milliseconds since the epoch.")
    try:
        msgspec.msgpack.encode(source)
    except UnicodeEncodeError:
        raise InvalidBody("The source holds text that is not valid Unicode.", field="text") from None


def check_source_id(source_id: str) -> None:
    """Refuse an id that can't name a source.

    Raises:
        InvalidBody: It is blank, longer than ``MAX_SOURCE_ID`` characters, or holds NUL or lone surrogates.
    """
    if not source_id.strip() or len(source_id) > MAX_SOURCE_ID:
        raise InvalidBody(f"source_id must have 1 to {MAX_SOURCE_ID} characters.", field="source_id")
    if UNSTORABLE.search(source_id):
        raise InvalidBody("source_id holds a character that can't be stored.", field="source_id")


def _placed(node: Node, start: int, end: int) -> dict[str, tuple[str, ...]]:
    return {**node.attrs, START: (str(start),), END: (str(end),)}

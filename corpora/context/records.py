"""A JSON Lines file of records: one ``Document`` a line, with chunks below it where its text is long."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.errors import InvalidInput, RequestError
from contracts.hits import Relation
from contracts.query import ContextType
from contracts.records import Document, Node
from contracts.uri import SCHEME, parse
from corpora.context.lines import Line, decode, read_lines
from corpora.context.nodes import Uris, base_uri, child_uri, chunk_nodes, document, file_name, fits, titled, to_millis
from index.abstracts import abstract, overview
from index.ingest import IngestConfig, Problem

Moment = int | str


class RecordRelation(msgspec.Struct, forbid_unknown_fields=True):
    """An edge to another record, by its id or URI."""

    to: str
    type: str = "related"
    weight: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a line; ``docs/ingest.md`` describes them. One of ``id`` and ``uri`` is needed, and some text."""

    id: str | int = ""
    uri: str = ""
    title: str = ""
    text: str = ""
    content: str = ""
    abstract: str = ""
    overview: str = ""
    search_text: str = ""
    vector_text: str | list[str] = ""
    parent: str | int = ""
    kind: str = "record"
    context_type: ContextType | None = None
    category: str = ""
    tags: list[str] = []
    attrs: dict[str, str | list[str]] = {}
    relations: list[RecordRelation] = []
    created_at: Moment = 0
    updated_at: Moment = 0
    expires_at: Moment = 0
    status: Literal["active", "archived"] = "active"


class _Name(msgspec.Struct):
    """What names a record, read from a line whose other fields may be wrong."""

    id: str | int = ""
    uri: str = ""
    parent: str | int = ""


class RecordsSource:
    """Reads a file of records.

    Args:
        path: The file, one JSON object a line, UTF-8.
        space: Owner space of records that give no ``uri``.
        name: Names the source, and the first segment of the URIs made from ids; the file's name without its ending
            by default.
        context_type: Of records that name none.
        config: Sizes of chunks and abstracts.

    Raises:
        InvalidInput: ``path`` is no file.
        InvalidUri: ``space`` is no valid space.
    """

    def __init__(
        self,
        path: Path,
        *,
        space: str = "shared",
        name: str = "",
        context_type: ContextType = "resource",
        config: IngestConfig | None = None,
    ) -> None:
        if not path.is_file():
            raise InvalidInput(f"{path} is no file.", field="path", remedy="Name a file of JSON Lines.")
        self._path = path
        self._base = base_uri(space, name or file_name(path).partition(".")[0])
        self._context_type: ContextType = context_type
        self._config = config or IngestConfig()
        self.source_id = self._base

    def documents(self) -> Iterator[Document | Problem]:
        """One document a record; its id is the record's URI."""
        parents = self._parents()
        lines: dict[str, int] = {}
        for line in read_lines(self._path):
            uri = self._uri_of(line)
            try:
                record = decode(line.data, Record)
                nodes = self._nodes(record, parents)
            except RequestError as error:
                yield Problem(str(self._path), line.number, f"{error.message} {error.remedy}".rstrip(), uri)
                continue
            first = lines.setdefault(nodes[0].uri, line.number)
            if first == line.number:
                yield document(nodes[0].uri, nodes)
            else:
                yield Problem(str(self._path), line.number, f"Repeats the id or uri of line {first}; left out.", uri)

    def _parents(self) -> set[str]:
        """URIs of all records that others name as parent: a first pass over the file."""
        names = (_name(line) for line in read_lines(self._path))
        return {self._resolved(name.parent) for name in names if name.parent != ""}

    def _uri_of(self, line: Line) -> str:
        """The URI of a line, to protect what is stored under it; empty when the line does not tell."""
        name = _name(line)
        return name.uri or (self._resolved(name.id) if name.id != "" else "")

    def _resolved(self, reference: str | int) -> str:
        """The URI of an id (each ``/`` in it starts a segment), or the URI itself."""
        text = str(reference).strip()
        if text.startswith(SCHEME):
            return text
        uri = self._base
        for part in filter(None, text.split("/")):
            uri = child_uri(uri, part)
        return uri

    def _nodes(self, record: Record, parents: set[str]) -> list[Node]:
        uri = parse(record.uri or self._resolved(record.id))
        if uri == self._base:
            raise InvalidInput("Neither 'id' nor 'uri' is given.", field="id", remedy="Give each record one of them.")
        text = record.text or record.content
        whole = " ".join(part for part in (record.title, text, record.abstract) if part.strip())
        if not whole:
            raise InvalidInput("The record holds no text.", field="text", remedy="Give it 'text' or 'abstract'.")
        short = fits(text, self._config.chunk)
        sizes = self._config.abstracts
        l0 = record.abstract or abstract(text, sizes) or record.title
        given = [record.vector_text] if isinstance(record.vector_text, str) else record.vector_text
        own = tuple(each for each in given if each.strip())
        node = Node(
            uri=uri,
            parent_uri=parse(self._resolved(record.parent), field="parent") if record.parent != "" else "",
            name=record.title,
            kind=record.kind,
            context_type=record.context_type or self._context_type,
            category=record.category or "document",
            abstract=l0,
            overview=record.overview or ("" if short else overview(text, sizes)),
            content=record.content or record.text,
            search_text=record.search_text or text,
            vector_texts=own or (titled(record.title, text if short and text else l0),),
            relations=tuple(Relation(parse(self._resolved(r.to)), r.type, r.weight) for r in record.relations),
            tags=tuple(record.tags),
            attrs=_attrs(record),
            created_at=_millis(record.created_at, "created_at"),
            updated_at=_millis(record.updated_at or record.created_at, "updated_at"),
            expires_at=_millis(record.expires_at, "expires_at"),
            status=record.status,
        )
        chunks = chunk_nodes(node, text, record.title, Uris(), self._config.chunk, sizes)
        return [msgspec.structs.replace(node, has_children=bool(chunks) or uri in parents), *chunks]


def _name(line: Line) -> _Name:
    try:
        return msgspec.json.decode(line.data, type=_Name)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Name()


def _attrs(record: Record) -> dict[str, tuple[str, ...]]:
    values: Mapping[str, str | list[str]] = record.attrs
    if record.id != "":
        values = {"id": str(record.id), **values}
    for name in values:
        if not name.replace("_", "").isalnum():
            raise InvalidInput(
                f"Field 'attrs' has the name {name!r}.", field="attrs", remedy="Use letters, digits and underscores."
            )
    return {name: (value,) if isinstance(value, str) else tuple(value) for name, value in values.items()}


def _millis(value: Moment, field: str) -> int:
    try:
        return to_millis(value)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"Field {field!r}: {error}.", field=field, remedy="Write milliseconds since the epoch, or 2026-01-31."
        ) from None

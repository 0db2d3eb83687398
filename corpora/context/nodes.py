"""What the sources of this package share: URIs, chunks as nodes, fingerprints, file texts and dates."""

import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from contracts.errors import InvalidInput
from contracts.records import Document, Node
from contracts.uri import SCHEME, join, parse
from index.abstracts import AbstractOptions, abstract
from index.chunker import ChunkOptions, chunk, count_tokens

# Part of every fingerprint: raise it when a source makes other nodes of the same input than before.
FORMAT = 1
MAX_FILE_BYTES = 32 << 20
_MAX_SEGMENT = 96

_TIME = r"%I:%M %p"
_DATE_FORMATS = (
    *(f"{_TIME} on {date}" for date in ("%d %B, %Y", "%d %B %Y", "%B %d, %Y")),
    *("%d %B, %Y", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y"),
    *("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"),
)
_CHINESE_DATE = re.compile(r"(\d{4})[年/.](\d{1,2})[月/.](\d{1,2})日?")


class Uris:
    """Gives out the URIs of one document: children of a parent by name, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def child(self, parent: str, name: str) -> str:
        """The URI of a new child of ``parent``; a name met before gets ``-2``, ``-3`` and so on."""
        wanted = child_uri(parent, name)
        uri, number = wanted, 1
        while uri in self._taken:
            number += 1
            uri = f"{wanted}-{number}"
        self._taken.add(uri)
        return uri


def base_uri(space: str, name: str) -> str:
    """The URI under which a source's nodes lie.

    Raises:
        InvalidUri: ``space`` is no valid space.
    """
    return parse(child_uri(SCHEME + space, name), field="space")


def child_uri(parent: str, name: str) -> str:
    """The child of ``parent`` with this name, shortened where it is very long."""
    return join(parent, name.strip()[:_MAX_SEGMENT])


def document(document_id: str, nodes: Iterable[Node], updated_at: int = 0) -> Document:
    """A document whose fingerprint is a hash of all that its nodes hold.

    Args:
        document_id: Unique in the source.
        nodes: Its nodes.
        updated_at: Set on every node, but left out of the fingerprint: a file that is merely touched has not changed.
    """
    nodes = tuple(nodes)
    digest = blake2b(msgspec.msgpack.encode((FORMAT, nodes)), digest_size=16).hexdigest()
    if updated_at:
        nodes = tuple(msgspec.structs.replace(node, updated_at=updated_at) for node in nodes)
    return Document(document_id, digest, nodes)


def chunk_nodes(
    parent: Node,
    text: str,
    heading: str,
    uris: Uris,
    options: ChunkOptions | None,
    abstracts: AbstractOptions,
    offset: int = 0,
) -> list[Node]:
    """The nodes below a node whose text is longer than a chunk; none when it fits.

    Args:
        parent: Gives context type, tags and times.
        text: What to cut.
        heading: Stands before each chunk's text where it is embedded, so that a chunk knows what it is about.
        uris: Of the document.
        options: Sizes; ``None`` cuts nothing.
        abstracts: Sizes of the chunks' abstracts.
        offset: Where ``text`` starts in its source; ``attrs.start`` and ``attrs.end`` count from the source's start.
    """
    if options is None or fits(text, options):
        return []
    return [
        msgspec.structs.replace(
            parent,
            uri=uris.child(parent.uri, f"chunk-{number}"),
            parent_uri=parent.uri,
            kind="chunk",
            abstract=abstract(part.text, abstracts),
            overview="",
            content=part.text,
            search_text=part.text,
            vector_texts=(titled(heading, part.text),),
            relations=(),
            attrs={**parent.attrs, "start": (str(offset + part.start),), "end": (str(offset + part.end),)},
            has_children=False,
        )
        for number, part in enumerate(chunk(text, options), 1)
    ]


def titled(title: str, text: str) -> str:
    """A text under its title, as it is embedded."""
    return f"{title}\n{text}" if title else text


def fits(text: str, options: ChunkOptions | None) -> bool:
    """Whether a text is one chunk at most."""
    return options is None or count_tokens(text) <= options.size


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises:
        InvalidInput: Unreadable, too large, binary, or not UTF-8; the message says which and what to do.
    """
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise InvalidInput(f"can't be read: {error.strerror}.") from None
    if size > MAX_FILE_BYTES:
        raise InvalidInput(f"is larger than {MAX_FILE_BYTES >> 20} MiB.", remedy="Split it.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"is not UTF-8 (line {line}).", remedy="Save it as UTF-8.") from None
    if "\0" in text:
        raise InvalidInput("holds NUL bytes, so it is no text.")
    return text


def file_name(path: Path) -> str:
    """The name of a file as text, whatever bytes it is made of."""
    return os.fsencode(path.name).decode("utf-8", "replace")


def to_millis(value: str | float) -> int:
    """Milliseconds since the epoch of a point in time; without a zone it is UTC.

    Args:
        value: Milliseconds since the epoch, ISO 8601, or a date as dialogues write it: ``8 May, 2023``,
            ``May 8, 2023``, ``1:56 pm on 8 May, 2023``, ``2023年5月8日``, ``2023/5/8 13:56``.

    Raises:
        ValueError: None of these.
    """
    if not isinstance(value, str):
        return int(value)
    moment = _parsed(_CHINESE_DATE.sub(r"\1-\2-\3", " ".join(value.split())))
    if moment is None:
        raise ValueError(f"{value[:40]!r} is no date")
    return int(moment.timestamp() * 1000)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, *(_reader(form) for form in _DATE_FORMATS)):
        try:
            moment = read(text)
        except ValueError:
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None


def _reader(form: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, form).replace(tzinfo=UTC)

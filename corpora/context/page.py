"""One Markdown or text file as nodes: the document, its sections nested by headings, chunks where a text is long."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import yaml

from contracts.hits import Relation
from contracts.query import CONTEXT_TYPES, ContextType
from contracts.records import Node
from corpora.context.nodes import Uris, chunk_nodes, fits, titled, to_millis
from index.abstracts import Entry, abstract, outline, overview
from index.blocks import blocks
from index.chunker import count_tokens
from index.ingest import IngestConfig

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class FrontMatter(NamedTuple):
    """What the YAML block at a file's top gives; what it does not give is made, or is the source's default.

    Args:
        body: Offset of the text after it.
        fault: What is wrong with it; empty for nothing.
    """

    body: int = 0
    title: str = ""
    abstract: str = ""
    overview: str = ""
    context_type: ContextType | None = None
    category: str = ""
    tags: tuple[str, ...] = ()
    created_at: int = 0
    fault: str = ""


@dataclass
class _Section:
    """A heading with all below it: its own text up to the next heading, and the sections under it.

    The section of level 0 is the file. ``start..end`` holds the subsections too, ``own..own_end`` does not.
    """

    level: int
    title: str
    start: int
    own: int
    own_end: int
    end: int
    children: list["_Section"] = field(default_factory=list)


def page_nodes(
    text: str,
    uri: str,
    *,
    parent_uri: str,
    name: str,
    path: str,
    context_type: ContextType,
    relations: tuple[Relation, ...],
    meta: FrontMatter,
    config: IngestConfig,
) -> list[Node]:
    """The nodes of a file, the document first.

    Args:
        text: The whole file.
        uri: Of the document.
        parent_uri: Of its folder; empty for none.
        name: Title where neither the front matter nor a heading gives one.
        path: Goes into ``attrs.path`` of all nodes; offsets in ``attrs.start`` and ``attrs.end`` count in that file.
        context_type: Where the front matter names none.
        relations: Of the document.
        meta: The file's front matter.
        config: Sizes of chunks and abstracts.
    """
    root = _tree(text, meta.body, meta.title, name)
    body = text[root.start :].strip()
    document = Node(
        uri=uri,
        parent_uri=parent_uri,
        name=root.title,
        kind="document",
        context_type=meta.context_type or context_type,
        category=meta.category or "document",
        abstract=meta.abstract or abstract(text[root.own :], config.abstracts) or root.title,
        overview=meta.overview or _overview(root, text, config),
        content=body,
        search_text=text[root.own :].strip(),
        relations=relations,
        tags=meta.tags,
        attrs={"path": (path,)},
        created_at=meta.created_at,
    )
    return list(_nodes(document, root, text, root.title, Uris(), config))


def front_matter(text: str) -> FrontMatter:
    """Read the YAML block at the top of a file; a file without one gives an empty ``FrontMatter``."""
    match = _FRONT_MATTER.match(text)
    if not match:
        return FrontMatter()
    try:
        raw = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2})" if mark else ""
        return FrontMatter(match.end(), fault=f"Front matter is no YAML{where}; it was ignored.")
    return _meta(raw, match.end()) if isinstance(raw, dict) else FrontMatter()


def _meta(raw: dict[Any, Any], body: int) -> FrontMatter:
    def text(*names: str) -> str:
        return next((" ".join(str(raw[name]).split()) for name in names if raw.get(name)), "")

    tags = raw.get("tags") or []
    tags = tags.split(",") if isinstance(tags, str) else tags if isinstance(tags, list) else [tags]
    fault, created_at = "", 0
    if date := text("date", "created_at"):
        try:
            created_at = to_millis(date)
        except ValueError as error:
            fault = f"Front matter: date {error}; write it as 2026-01-31."
    context_type = text("context_type")
    if context_type and context_type not in CONTEXT_TYPES:
        fault = f"Front matter: context_type must be one of {', '.join(CONTEXT_TYPES)}."
    return FrontMatter(
        body=body,
        title=text("title"),
        abstract=text("abstract", "description", "summary"),
        overview=str(raw.get("overview") or "").strip(),
        context_type=next((each for each in CONTEXT_TYPES if each == context_type), None),
        category=text("category"),
        tags=tuple(str(tag).strip() for tag in tags if str(tag).strip()),
        created_at=created_at,
        fault=fault,
    )


def _tree(text: str, start: int, title: str, name: str) -> _Section:
    """The sections of a file. A first heading that is the only one of its rank is the file's title."""
    found = blocks(text[start:])
    headings = [block for block in found if block.kind == "heading"]
    root = _Section(0, title or name, start, start, len(text), len(text))
    if headings and found[0] == headings[0] and headings[0].level < min((h.level for h in headings[1:]), default=7):
        root.own = start + headings[0].end
        root.title = title or headings[0].title or name
        headings = headings[1:]
    path = [root]
    for heading in headings:
        at = start + heading.start
        path[-1].own_end = at
        while path[-1].level >= heading.level:
            path.pop().end = at
        section = _Section(heading.level, heading.title or "(untitled)", at, start + heading.end, len(text), len(text))
        path[-1].children.append(section)
        path.append(section)
    return root


def _nodes(node: Node, section: _Section, text: str, trail: str, uris: Uris, config: IngestConfig) -> Iterator[Node]:
    """The node of a section and all below it. ``trail`` is the titles that lead to it."""
    own = text[section.own : section.own_end]
    chunks = chunk_nodes(node, own, trail, uris, config.chunk, config.abstracts, section.own)
    embedded = node.search_text if fits(node.search_text, config.chunk) else node.abstract
    yield msgspec.structs.replace(
        node, vector_texts=(titled(trail, embedded),), has_children=bool(chunks or section.children)
    )
    yield from chunks
    for child in section.children:
        below = msgspec.structs.replace(
            node,
            uri=uris.child(node.uri, child.title),
            parent_uri=node.uri,
            name=child.title,
            kind="section",
            category="section",
            abstract=_abstract(child, text, config),
            overview=_overview(child, text, config),
            content=text[child.start : child.end].strip(),
            search_text=text[child.own : child.own_end].strip() or child.title,
            relations=(),
        )
        yield from _nodes(below, child, text, f"{trail} › {child.title}", uris, config)


def _abstract(section: _Section, text: str, config: IngestConfig) -> str:
    own = abstract(text[section.own : section.own_end], config.abstracts)
    return own or abstract(text[section.own : section.end], config.abstracts) or section.title


def _overview(section: _Section, text: str, config: IngestConfig) -> str:
    """What lies below a section, or what its paragraphs say; empty where the abstract says it all."""
    if section.children:
        return outline(list(_entries(section, text)), config.abstracts)
    own = text[section.own : section.own_end]
    return overview(own, config.abstracts) if count_tokens(own) > config.abstracts.abstract_tokens else ""


def _entries(section: _Section, text: str) -> Iterator[Entry]:
    for child in section.children:
        yield Entry(child.title, text[child.own : child.own_end], child.level)
        yield from _entries(child, text)

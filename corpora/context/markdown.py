"""A folder of Markdown or text as a tree: folder → document → section, nested by headings → chunk where one is long.

Each file is one ``Document``, and so is each folder, whose L0 and L1 tell what lies in it.
"""

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import unquote

from contracts.errors import InvalidInput
from contracts.hits import Relation
from contracts.query import ContextType
from contracts.records import Document, Node
from corpora.context.nodes import base_uri, child_uri, document, file_name, read_text
from corpora.context.page import front_matter, page_nodes
from index.abstracts import Entry, abstract, outline
from index.ingest import IngestConfig, Problem

SUFFIXES = frozenset({".md", ".markdown", ".mdx", ".txt", ".text", ".rst"})
_READMES = ("readme", "index")
_LINK = re.compile(r"\]\(<?([^)\s#<>]+)")

# What a folder keeps of a child until the folder itself is made: its title and abstract.
_Child = tuple[str, str]


class MarkdownSource:
    """Reads a folder of Markdown or text files, or one such file.

    Hidden files, files of other kinds and symbolic links to folders or out of the folder are skipped, with the reason.

    Args:
        root: The folder or file.
        space: Owner space of the nodes.
        name: Names the source, and the first segment of its URIs; the name of ``root`` by default.
        context_type: Of all nodes that name none themselves.
        config: Sizes of chunks and abstracts.

    Raises:
        InvalidInput: ``root`` does not exist.
        InvalidUri: ``space`` is no valid space.
    """

    def __init__(
        self,
        root: Path,
        *,
        space: str = "shared",
        name: str = "",
        context_type: ContextType = "resource",
        config: IngestConfig | None = None,
    ) -> None:
        if not root.exists():
            raise InvalidInput(f"{root} does not exist.", field="path", remedy="Name a folder or a file.")
        self._root = root.resolve()
        self._base = base_uri(space, name or file_name(self._root))
        self._context_type: ContextType = context_type
        self._config = config or IngestConfig()
        self.source_id = self._base

    def documents(self) -> Iterator[Document | Problem]:
        """One document a file and one a folder, a folder after all that lies in it."""
        if self._root.is_file():
            yield from self._file(self._root, self._base, "")
        else:
            yield from self._folder(self._root, self._base, "")

    def _folder(self, folder: Path, uri: str, parent_uri: str) -> Generator[Document | Problem, None, _Child | None]:
        children: list[_Child] = []
        readme = ""
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            hidden = "" if folder == self._root else self._id(folder)
            yield Problem(str(folder), 0, f"can't be read: {error.strerror}.", hidden)
            return None
        for path in paths:
            if reason := self._skip(path):
                yield Problem(str(path), 0, reason, self._id(path), skipped=True)
                continue
            walk = self._folder if path.is_dir() else self._file
            child = yield from walk(path, child_uri(uri, file_name(path)), uri)
            if child:
                children.append(child)
            if child and path.is_file() and path.stem.lower() in _READMES:
                readme = readme or child[1]
        if not children:
            return None
        title = file_name(folder)
        listing = "; ".join(name for name, _ in children)
        node = Node(
            uri=uri,
            parent_uri=parent_uri,
            name=title,
            kind="folder",
            context_type=self._context_type,
            category="folder",
            abstract=readme or abstract(f"{title}: {listing}", self._config.abstracts),
            overview=outline([Entry(*child) for child in children], self._config.abstracts),
            search_text="\n".join(f"{name}\n{text}" for name, text in children),
            has_children=True,
        )
        yield document(self._id(folder), [node])
        return title, node.abstract

    def _file(self, path: Path, uri: str, parent_uri: str) -> Generator[Document | Problem, None, _Child | None]:
        document_id = self._id(path)
        try:
            text = read_text(path)
            updated_at = path.stat().st_mtime_ns // 1_000_000
        except InvalidInput as error:
            yield Problem(str(path), 0, f"{error.message} {error.remedy}".rstrip(), document_id)
            return None
        if not text.strip():
            yield Problem(str(path), 0, "is empty.", document_id, skipped=True)
            return None
        meta = front_matter(text)
        if meta.fault:
            yield Problem(str(path), 1, meta.fault, document_id)
        nodes = page_nodes(
            text,
            uri,
            parent_uri=parent_uri,
            name=Path(file_name(path)).stem,
            path=document_id,
            context_type=self._context_type,
            relations=self._relations(path, text),
            meta=meta,
            config=self._config,
        )
        yield document(document_id, nodes, updated_at)
        return nodes[0].name, nodes[0].abstract

    def _skip(self, path: Path) -> str:
        """Why a path is left out; empty when it is not."""
        if path.name.startswith("."):
            return "is hidden; skipped."
        if path.is_symlink():
            if not path.exists():
                return "is a symbolic link to nothing; skipped."
            if path.is_dir() or not path.resolve().is_relative_to(self._root):
                return "is a symbolic link to a folder or out of this one; skipped."
        if path.is_dir():
            return ""
        if not path.is_file():
            return "is no regular file; skipped."
        return "" if path.suffix.lower() in SUFFIXES else "is neither Markdown nor text; skipped."

    def _id(self, path: Path) -> str:
        """Id of a file; that of a folder ends with a slash, so that it begins the ids of all that lies in it."""
        if path == self._root:
            return "/" if path.is_dir() else file_name(path)
        relative = os.fsencode(path.relative_to(self._root).as_posix()).decode("utf-8", "replace")
        return f"{relative}/" if path.is_dir() else relative

    def _relations(self, path: Path, text: str) -> tuple[Relation, ...]:
        """Edges to the files of this source that a file links to."""
        linked = dict.fromkeys(self._linked(path, match[1]) for match in _LINK.finditer(text))
        return tuple(Relation(uri, "links_to") for uri in linked if uri)

    def _linked(self, path: Path, target: str) -> str:
        if self._root.is_file() or ":" in target or target.startswith("/"):
            return ""
        found = Path(os.path.normpath(path.parent / unquote(target)))
        # os.path asks without raising, whatever a link holds.
        if found == path or not found.is_relative_to(self._root) or not os.path.isfile(found) or self._skip(found):  # noqa: PTH113
            return ""
        uri = self._base
        for part in found.relative_to(self._root).parents[-2::-1]:
            uri = child_uri(uri, file_name(part))
        return child_uri(uri, file_name(found))

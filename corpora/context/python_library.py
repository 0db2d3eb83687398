"""Python code as a tree: (library →) package → module → class → function, from source files alone.

A name that a package re-exports (``concurrent.futures.ProcessPoolExecutor``, ``asyncio.gather``) is documented once,
under the shortest public name it has.
"""

import ast
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from contracts.errors import InvalidInput
from contracts.query import ContextType
from contracts.records import Document, Node
from corpora.context.nodes import Uris, base_uri, document
from corpora.context.python_code import (
    Definition,
    decorators,
    definitions,
    docstring_of,
    is_public,
    parameters,
    signature,
    spoken,
    summary,
)
from corpora.context.python_tree import Owned, Tree, top_names
from index.abstracts import Entry, clip, outline
from index.ingest import IngestConfig, Problem

# Left out of the standard library: tests, demonstrations, and what later versions removed (PEP 594, PEP 632).
_LEFT_OUT = frozenset(
    """
    aifc antigravity asynchat asyncore audioop cgi cgitb chunk crypt distutils ensurepip idlelib imghdr imp lib2to3
    mailcap msilib nis nntplib ntpath nturl2path ossaudiodev pipes pydoc_data smtpd sndhdr spwd sre_compile
    sre_constants sre_parse sunau telnetlib this turtledemo uu xdrlib
    """.split()  # noqa: SIM905
)
_TAGS = {"property": "property", "cached_property": "property", "classmethod": "classmethod"} | {
    "staticmethod": "staticmethod",
    "contextmanager": "contextmanager",
    "asynccontextmanager": "contextmanager",
}


class PythonLibrarySource:
    """Reads the standard library of the running interpreter, a package, or a folder of packages.

    Left out are private names, tests, modules without Python source, and methods that neither they nor a base class
    document: nothing but their name could find them, and the source of their class shows them.

    Args:
        root: A package (a folder with ``__init__.py``), a module's file, or a folder that holds such; the standard
            library when not given.
        space: Owner space of the nodes.
        name: Names the source, and the first segment of its URIs; ``python`` for the standard library, else the name
            of ``root``.
        context_type: Of all nodes; ``skill``, because a function is something that can be done.
        config: Sizes of abstracts.

    Raises:
        InvalidInput: ``root`` holds no Python.
        InvalidUri: ``space`` is no valid space.
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        space: str = "shared",
        name: str = "",
        context_type: ContextType = "skill",
        config: IngestConfig | None = None,
    ) -> None:
        self._single = root is not None and (root.suffix == ".py" or (root / "__init__.py").is_file())
        if root is None:
            self._folder = Path(sysconfig.get_path("stdlib"))
            self._tops = [top for top in top_names(self._folder) if top in sys.stdlib_module_names - _LEFT_OUT]
            self._title = f"Python {sys.version_info.major}.{sys.version_info.minor} standard library"
        else:
            root = root.resolve()
            self._folder, self._title = (root.parent, root.stem) if self._single else (root, root.name)
            self._tops = [root.stem] if self._single else top_names(root)
        if not self._tops:
            raise InvalidInput(f"{root} holds no Python.", field="path", remedy="Name a package's folder.")
        self._base = base_uri(space, name or ("python" if root is None else self._title))
        self._context_type: ContextType = context_type
        self._config = config or IngestConfig()
        self.source_id = self._base

    def documents(self) -> Iterator[Document | Problem]:
        """One document a top-level module or package with all below it, and one for a library of several."""
        entries: list[Entry] = []
        for top in self._tops:
            tree = Tree(self._folder, top)
            yield from tree.problems
            if top in tree.public:
                nodes = self._nodes(tree)
                entries.append(Entry(nodes[0].name, nodes[0].abstract))
                yield document(top, nodes)
        if not self._single:
            yield document("/", [self._library(entries)])

    def _library(self, entries: list[Entry]) -> Node:
        names = ", ".join(entry.title for entry in entries)
        return Node(
            uri=self._base,
            parent_uri="",
            name=self._title,
            kind="library",
            context_type=self._context_type,
            category="library",
            abstract=clip(f"{self._title}, {len(entries)} modules: {names}", self._config.abstracts.abstract_tokens),
            overview=outline(entries, self._config.abstracts),
            tags=("public",),
            has_children=True,
        )

    def _nodes(self, tree: Tree) -> list[Node]:
        """The nodes of a top-level module or package; a module's URI comes before those of what it defines."""
        uris = Uris()
        places: dict[str, str] = {}
        for name in tree.public:
            above, _, last = name.rpartition(".")
            places[name] = self._base if self._single and not above else uris.child(places.get(above, self._base), last)
        owned = tree.owned()
        return [node for name in tree.public for node in self._module(tree, name, owned[name], places, uris)]

    def _module(self, tree: Tree, name: str, owned: list[Owned], places: dict[str, str], uris: Uris) -> Iterator[Node]:
        module, above = tree.public[name], name.rpartition(".")[0]
        below = [each.rpartition(".")[2] for each in tree.public if each.rpartition(".")[0] == name]
        members = [*below, *(each.name for each in owned)]
        docstring = docstring_of(module.tree)
        yield Node(
            uri=places[name],
            parent_uri=places.get(above, "" if self._single else self._base),
            name=name,
            kind="module",
            context_type=self._context_type,
            category="module",
            abstract=self._abstract(docstring, f"Module {name} with {', '.join(members) or 'constants only'}"),
            overview=_overview(f"module {name}", docstring, members),
            content=module.source,
            tags=("public",),
            attrs={"module": (name,)},
            has_children=bool(members),
        )
        for each in owned:
            docstring = docstring_of(each.node) or _maker_docstring(each.node)
            node = self._definition(each, name, name, places[name], docstring, uris)
            methods = self._methods(tree, each, node, name, uris)
            yield msgspec.structs.replace(node, has_children=bool(methods))
            yield from methods

    def _methods(self, tree: Tree, owner: Owned, above: Node, module: str, uris: Uris) -> list[Node]:
        nodes: list[Node] = []
        for name, method in _methods(owner.node).items():
            if docstring := docstring_of(method) or tree.inherited_docstring(owner, name):
                own = Owned(name, owner.module, method)
                nodes.append(self._definition(own, module, above.name, above.uri, docstring, uris, method=True))
        return nodes

    def _definition(
        self,
        owned: Owned,
        module: str,
        above: str,
        parent_uri: str,
        docstring: str,
        uris: Uris,
        *,
        method: bool = False,
    ) -> Node:
        """The node of a class, function or method. ``above`` is the qualified name of what holds it."""
        node, name = owned.node, f"{above}.{owned.name}"
        shape = signature(node, method=method)
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        abstract = self._abstract(docstring, f"{owned.name}{shape}: {spoken(owned.name)}")
        return Node(
            uri=uris.child(parent_uri, owned.name),
            parent_uri=parent_uri,
            name=name,
            kind=kind,
            context_type=self._context_type,
            category="method" if method else kind,
            abstract=abstract,
            # What a function can be told is often said by its parameters alone.
            search_text=" ".join([abstract, *parameters(node)]),
            overview=_overview(_heading(node, f"{name}{shape}"), docstring, list(_methods(node))),
            content=owned.module.source_of(node),
            tags=("public", *sorted({_TAGS[each] for each in decorators(node) & _TAGS.keys()})),
            attrs={"module": (module,)},
        )

    def _abstract(self, docstring: str, otherwise: str) -> str:
        return clip(summary(docstring) or otherwise, self._config.abstracts.abstract_tokens)


def _methods(node: Definition) -> dict[str, Definition]:
    """The public methods of a class; a function has none."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    found = definitions(body).items()
    return {name: each for name, each in found if is_public(name) and not isinstance(each, ast.ClassDef)}


def _maker_docstring(node: Definition) -> str:
    maker = definitions(node.body).get("__init__") if isinstance(node, ast.ClassDef) else None
    return docstring_of(maker) if maker else ""


def _heading(node: Definition, name: str) -> str:
    """The first line of an overview: ``class io.StringIO(initial_value='')``, ``async def asyncio.wait_for(fut)``."""
    match node:
        case ast.ClassDef(bases=bases):
            below = f"\nBases: {', '.join(map(ast.unparse, bases))}" if bases else ""
            return f"class {name}{below}"
        case ast.AsyncFunctionDef():
            return f"async def {name}"
        case _:
            return f"def {name}"


def _overview(heading: str, docstring: str, members: Sequence[str]) -> str:
    return "\n\n".join(filter(None, [heading, docstring, f"Members: {', '.join(members)}" if members else ""]))

"""What a Python module offers, read from its source by ``ast``; nothing is imported or run."""

import ast
import importlib.util
import re
import warnings
from collections.abc import Iterable, Iterator
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

_SIGNATURE_LINE = re.compile(r"[\w.]+\(.*\)(?:\s*->.*)?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_+")


class Import(NamedTuple):
    """Where a name comes from; ``name`` is ``*`` for all that the module offers."""

    module: str
    name: str


class Module:
    """A module's source, parsed.

    Args:
        name: Dotted name.
        path: Its file.

    Raises:
        OSError, SyntaxError, ValueError: The file can't be read, or is no Python that this interpreter knows.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.is_package = path.name == "__init__.py"
        self.source = importlib.util.decode_source(path.read_bytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tree = ast.parse(self.source)
        self.definitions = definitions(self.tree.body)

    @cached_property
    def all(self) -> list[str] | None:
        """The names of ``__all__`` that are written out; ``None`` when there are none."""
        values = [value for statement in _flat(self.tree.body) for value in _values_of_all(statement)]
        constants = (node.value for value in values for node in ast.walk(value) if isinstance(node, ast.Constant))
        names = [name for name in constants if isinstance(name, str) and is_public(name)]
        return list(dict.fromkeys(names)) or None

    @cached_property
    def imports(self) -> dict[str, Import]:
        """What ``from … import`` brings in, by its name here."""
        found: dict[str, Import] = {}
        for module, alias in self._imported():
            if alias.name != "*":
                found.setdefault(alias.asname or alias.name, Import(module, alias.name))
        return found

    @cached_property
    def stars(self) -> list[str]:
        """Modules of which everything is imported."""
        return [module for module, alias in self._imported() if alias.name == "*"]

    def source_of(self, node: Definition) -> str:
        """A definition's source with its decorators, without the indentation that its place gives it."""
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        lines = self._lines[first - 1 : node.end_lineno]
        return "".join(
            line[node.col_offset :] if line[: node.col_offset].isspace() else line for line in lines
        ).rstrip()

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.splitlines(keepends=True)

    def _imported(self) -> Iterator[tuple[str, ast.alias]]:
        for statement in _flat(self.tree.body):
            if isinstance(statement, ast.ImportFrom):
                yield from ((self._absolute(statement), alias) for alias in statement.names)

    def _absolute(self, statement: ast.ImportFrom) -> str:
        parts = self.name.split(".")
        above = parts[: len(parts) - statement.level + self.is_package] if statement.level else []
        return ".".join([*above, *filter(None, [statement.module])])


def definitions(body: Iterable[ast.stmt]) -> dict[str, Definition]:
    """Classes and functions of a body by name, also those under ``if``, ``try`` and ``with``.

    The first of a name counts, but for ``@overload`` and for the setters of properties.
    """
    found: dict[str, Definition] = {}
    for statement in _flat(body):
        if isinstance(statement, Definition) and not decorators(statement) & {"overload", "setter", "deleter"}:
            found.setdefault(statement.name, statement)
    return found


def decorators(node: Definition) -> set[str]:
    """The last names of a definition's decorators, such as ``property`` or ``overload``."""
    plain = (each.func if isinstance(each, ast.Call) else each for each in node.decorator_list)
    return {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in plain}


def docstring_of(node: Definition | ast.Module) -> str:
    """The docstring of a class, function or module, cleaned; empty for none."""
    # A literal may hold surrogates, which no encoder takes.
    return (ast.get_docstring(node) or "").encode("utf-8", "replace").decode()


def is_public(name: str) -> bool:
    """Whether a name is an identifier without an underscore at its front."""
    return name.isidentifier() and not name.startswith("_")


def signature(node: Definition, *, method: bool = False) -> str:
    """What stands between a definition's name and its body: ``(timeout=None) -> int``.

    Args:
        node: A class has the signature of its ``__init__`` or ``__new__``, or none.
        method: Whether it is called on something: a property then has no signature, and ``self`` is left out.
    """
    if isinstance(node, ast.ClassDef):
        made = definitions(node.body)
        maker = made.get("__init__") or made.get("__new__")
        return signature(maker, method=True).partition(" -> ")[0] if maker else ""
    own = decorators(node)
    if method and any(name.endswith("property") for name in own):
        return ""
    arguments = copy(node.args)
    if method and "staticmethod" not in own:
        # Defaults belong to the last arguments, so that the first may go without a look at them.
        if arguments.posonlyargs:
            arguments.posonlyargs = arguments.posonlyargs[1:]
        else:
            arguments.args = arguments.args[1:]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def parameters(node: Definition) -> list[str]:
    """Names of the parameters a caller may name, those of ``__init__`` or ``__new__`` for a class."""
    if isinstance(node, ast.ClassDef):
        made = definitions(node.body)
        maker = made.get("__init__") or made.get("__new__")
        return parameters(maker) if maker else []
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in {"self", "cls"}]


def summary(docstring: str) -> str:
    """The first paragraph of a docstring on one line, past a line that only repeats the signature."""
    for paragraph in docstring.split("\n\n"):
        line = " ".join(paragraph.split())
        if line and not _SIGNATURE_LINE.fullmatch(line):
            return line
    return ""


def spoken(name: str) -> str:
    """A name in words: ``send_signal`` and ``sendSignal`` are ``send signal``."""
    return " ".join(_HUMP.sub(" ", name).lower().split())


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                for each in getattr(statement, part, []):
                    yield from _flat(each.body if isinstance(each, ast.ExceptHandler) else [each])


def _values_of_all(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement puts into ``__all__``."""
    match statement:
        case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
            yield value
        case ast.AugAssign(target=ast.Name(id="__all__"), value=value):
            yield value
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="__all__")), args=arguments)):
            yield from arguments

"""The modules of a top-level package and who offers what: each definition once, under its shortest public name."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from corpora.context.python_code import Definition, Module, definitions, docstring_of, is_public
from index.ingest import Problem

_SKIPPED = frozenset({"__init__", "__main__", "test", "tests", "idle_test"})
# Packages whose modules are data: a codec each.
_LEAVES = frozenset({"encodings"})
_MAX_HOPS = 8


class Owned(NamedTuple):
    """A definition under the name that its owner offers it by, and the module that holds its source."""

    name: str
    module: Module
    node: Definition


class Tree:
    """A top-level module or package with all modules below it.

    Args:
        folder: Where it lies.
        top: Its name.
    """

    def __init__(self, folder: Path, top: str) -> None:
        self.problems: list[Problem] = []
        self._folder = folder
        self._top = top
        self._modules: dict[str, Module | None] = {name: self._read(name, path) for name, path in _files(folder, top)}

    @property
    def public(self) -> dict[str, Module]:
        """Modules without a private part in their name; a package comes before its modules."""
        return {name: module for name, module in self._modules.items() if module and _is_public(name)}

    def owned(self) -> dict[str, list[Owned]]:
        """What each public module is the best name for.

        The shortest name wins, then the module that defines it, then the first in the order of the modules.
        """
        best: dict[tuple[str, str], tuple[tuple[int, bool], str, Owned]] = {}
        for name, module in self.public.items():
            for offered in self._offered(module):
                if found := self._resolved(module, offered):
                    key = (found.module.name, found.node.name)
                    rank = (name.count("."), found.module is not module)
                    if key not in best or rank < best[key][0]:
                        best[key] = (rank, name, found._replace(name=offered))
        owned: dict[str, list[Owned]] = {name: [] for name in self.public}
        for _, name, found in best.values():
            owned[name].append(found)
        return owned

    def inherited_docstring(self, owner: Owned, method: str, hops: int = 0) -> str:
        """The docstring of a method of a class as the nearest base class in reach gives it; empty when none does."""
        bases = owner.node.bases if isinstance(owner.node, ast.ClassDef) and hops < _MAX_HOPS else []
        for base in filter(None, (self._base(owner.module, each) for each in bases)):
            own = definitions(base.node.body).get(method)
            given = docstring_of(own) if own else ""
            if found := given or self.inherited_docstring(base, method, hops + 1):
                return found
        return ""

    def _base(self, module: Module, expression: ast.expr) -> Owned | None:
        """The class that a base written as ``Name`` or ``module.Name`` means."""
        match expression:
            case ast.Name(id=name):
                return self._resolved(module, name)
            case ast.Attribute(value=ast.Name(id=holder), attr=name) if holder in module.imports:
                target = self._find(".".join(module.imports[holder]))
                return self._resolved(target, name) if target else None
        return None

    def _offered(self, module: Module, hops: int = 0) -> list[str]:
        """The names a module offers: ``__all__``, or what it defines, and what a package takes from its modules."""
        names = list(module.all or filter(is_public, module.definitions))
        if module.all is None and module.is_package:
            names += [name for name, each in module.imports.items() if is_public(name) and self._find(each.module)]
        for star in module.stars:
            target = self._find(star)
            names += self._offered(target, hops + 1) if target and hops < _MAX_HOPS else []
        return list(dict.fromkeys(names))

    def _resolved(self, module: Module, name: str, hops: int = 0) -> Owned | None:
        """Where a name is defined, through imports; ``None`` for what is no class or function, or not found."""
        if name in module.definitions:
            return Owned(name, module, module.definitions[name])
        if hops > _MAX_HOPS:
            return None
        if name in module.imports:
            target = self._find(module.imports[name].module)
            return self._resolved(target, module.imports[name].name, hops + 1) if target else None
        for star in module.stars:
            target = self._find(star)
            found = self._resolved(target, name, hops + 1) if target and name in self._offered(target) else None
            if found:
                return found
        # Imported only when asked for, by a module-level ``__getattr__``.
        if module.is_package and name in (module.all or []):
            below = (each for each in self._modules.values() if each and each.name.startswith(f"{module.name}."))
            return next((Owned(name, each, each.definitions[name]) for each in below if name in each.definitions), None)
        return None

    def _find(self, name: str) -> Module | None:
        """A module of this tree, or a private one beside it; what other packages define is documented there."""
        if name.startswith("_") and name not in self._modules:
            self._modules.update({each: self._read(each, path) for each, path in _files(self._folder, name)})
        return self._modules.get(name)

    def _read(self, name: str, path: Path) -> Module | None:
        try:
            return Module(name, path)
        except SyntaxError as error:
            problem = Problem(str(path), error.lineno or 0, f"is no Python that this interpreter reads: {error.msg}.")
        except (OSError, ValueError, RecursionError) as error:
            problem = Problem(str(path), 0, f"can't be read: {error}.")
        self.problems.append(Problem(problem.file, problem.line, problem.message, self._top))
        return None


def top_names(folder: Path) -> list[str]:
    """The public modules and packages in a folder, sorted, without tests."""
    return sorted(name for name in _names(folder) if is_public(name))


def _files(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """A module or package of ``folder`` with all below it, private ones too; a package before its modules."""
    last = name.rpartition(".")[2]
    package = folder / last / "__init__.py"
    if package.is_file():
        yield name, package
        for below in sorted(_names(package.parent)) if name not in _LEAVES else ():
            yield from _files(package.parent, f"{name}.{below}")
    elif (folder / f"{last}.py").is_file():
        yield name, folder / f"{last}.py"


def _names(folder: Path) -> set[str]:
    found = {path.parent.name for path in folder.glob("*/__init__.py")} | {path.stem for path in folder.glob("*.py")}
    return {name for name in found - _SKIPPED if name.isidentifier() and not name.startswith("test_")}


def _is_public(name: str) -> bool:
    return all(map(is_public, name.split(".")))

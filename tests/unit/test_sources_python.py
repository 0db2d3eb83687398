import sys
import textwrap
from pathlib import Path

import pytest

from contracts.errors import InvalidInput
from contracts.records import Document, Node
from contracts.uri import parent_of, parse
from corpora.context.python_library import PythonLibrarySource
from index.ingest import Problem

INIT = '''
    """A package of tools.

    More about it.
    """
    from ._hidden import *
    from .work import Worker, helper as assistant

    __all__ = ["Worker", "assistant", "Lazy", "own"]

    def own(a, /, b=1, *, c: int = 2) -> str:
        """Do it.  All of
        it.
        """

    def not_offered():
        """Nothing to see."""

    def __getattr__(name):
        from .lazy import Lazy
'''
WORK = '''
    from . import base

    class Worker(base.Base):
        """Works."""

        def __init__(self, count=1):
            pass

        @property
        def size(self):
            """How large it is."""

        @size.setter
        def size(self, value):
            """Set it."""

        @staticmethod
        async def fetch(url):
            """Fetch a page."""

        def run(self, task):
            return task

        def undocumented(self):
            return 1

        def _private(self):
            """Private."""

    def helper():
        return 1

    def stays():
        """Stays here."""
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "tools"
    files = {
        "__init__.py": INIT,
        "work.py": WORK,
        "base.py": 'class Base:\n    def run(self, task):\n        """Run a task."""\n',
        "_hidden.py": '__all__ = ["shown"]\n\ndef shown():\n    """Shown."""\n',
        "lazy.py": 'class Lazy:\n    def __init__(self, when):\n        """Wait until it is needed."""\n',
        "tests/__init__.py": "",
        "tests/test_work.py": 'def test_it():\n    """Test."""\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return root


def read(root: Path | None = None) -> tuple[dict[str, Node], list[Problem]]:
    items = list(PythonLibrarySource(root).documents())
    documents = [item for item in items if isinstance(item, Document)]
    return (
        {node.name: node for item in documents for node in item.nodes},
        [item for item in items if isinstance(item, Problem)],
    )


def test_a_package_becomes_modules_classes_and_functions_under_their_public_names(package: Path):
    nodes, problems = read(package)
    assert not problems
    assert {name: node.kind for name, node in nodes.items()} == {
        "tools": "module",
        "tools.Worker": "class",
        "tools.Worker.size": "function",
        "tools.Worker.fetch": "function",
        "tools.Worker.run": "function",
        "tools.assistant": "function",
        "tools.Lazy": "class",
        "tools.own": "function",
        "tools.shown": "function",
        "tools.base": "module",
        "tools.base.Base": "class",
        "tools.base.Base.run": "function",
        "tools.lazy": "module",
        "tools.work": "module",
        "tools.work.stays": "function",
    }
    assert nodes["tools.Worker.fetch"].uri == "strata://shared/tools/Worker/fetch"
    assert nodes["tools"].parent_uri == ""


def test_the_abstract_is_the_first_paragraph_of_the_docstring_or_says_what_the_signature_says(package: Path):
    nodes, _ = read(package)
    assert nodes["tools"].abstract == "A package of tools."
    assert nodes["tools.own"].abstract == "Do it. All of it."
    assert nodes["tools.assistant"].abstract == "assistant(): assistant"
    assert nodes["tools.work"].abstract == "Module tools.work with stays"


def test_a_docstring_is_inherited_from_the_base_class_and_a_class_takes_that_of_its_init(package: Path):
    nodes, _ = read(package)
    assert nodes["tools.Worker.run"].abstract == "Run a task."
    assert nodes["tools.Lazy"].abstract == "Wait until it is needed."


def test_the_overview_is_signature_and_docstring_and_the_content_is_source(package: Path):
    nodes, _ = read(package)
    assert nodes["tools.own"].overview == "def tools.own(a, /, b=1, *, c: int=2) -> str\n\nDo it.  All of\nit."
    assert nodes["tools.Worker"].overview.startswith(
        "class tools.Worker(count=1)\nBases: base.Base\n\nWorks.\n\nMembers: "
    )
    assert nodes["tools.Worker.fetch"].overview.startswith("async def tools.Worker.fetch(url)\n")
    assert nodes["tools.Worker.size"].overview.startswith("def tools.Worker.size\n")
    assert nodes["tools.Worker.run"].content == "def run(self, task):\n    return task"
    assert nodes["tools.Worker.size"].content.startswith("@property\ndef size(self):\n    ")
    assert set(nodes["tools.Worker.fetch"].tags) == {"public", "staticmethod"}


def test_a_file_that_is_no_python_is_reported_with_its_line_and_the_rest_goes_on(package: Path):
    (package / "broken.py").write_text("x = 1\ndef broken(:\n")
    nodes, (problem,) = read(package)
    assert "tools.work.stays" in nodes
    assert (Path(problem.file).name, problem.line, problem.document_id) == ("broken.py", 2, "tools")


def test_nothing_is_imported(package: Path):
    (package / "work.py").write_text('raise RuntimeError("imported")\n')
    read(package)
    assert "tools" not in sys.modules


def test_editing_a_module_changes_its_top_level_document_alone(package: Path):
    (package.parent / "other.py").write_text('"""Another."""\n')

    def prints() -> dict[str, str]:
        items = PythonLibrarySource(package.parent, name="lib").documents()
        return {item.document_id: item.fingerprint for item in items if isinstance(item, Document)}

    before = prints()
    assert set(before) == {"other", "tools", "/"}
    (package / "lazy.py").write_text("class Lazy:\n    pass\n")
    after = prints()
    assert {name for name in before if before[name] != after[name]} == {"tools"}


def test_a_folder_without_python_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="holds no Python"):
        PythonLibrarySource(tmp_path)


@pytest.fixture(scope="module")
def library() -> list[Node]:
    items = list(PythonLibrarySource().documents())
    assert not [item for item in items if isinstance(item, Problem)]
    return [node for item in items if isinstance(item, Document) for node in item.nodes]


def test_the_standard_library_gives_thousands_of_nodes_with_canonical_unique_uris(library: list[Node]):
    uris = [node.uri for node in library]
    assert 3000 < len(uris) == len(set(uris))
    assert all(parse(uri) == uri for uri in uris)


def test_every_parent_in_the_standard_library_exists_one_segment_up(library: list[Node]):
    uris = {node.uri for node in library}
    roots = [node for node in library if not node.parent_uri]
    assert [root.uri for root in roots] == ["strata://shared/python"]
    assert all(node.parent_uri in uris for node in library if node.parent_uri)
    assert all(node.parent_uri == parent_of(node.uri) for node in library if node.parent_uri)
    assert {node.parent_uri for node in library} - {""} == {node.uri for node in library if node.has_children}


@pytest.mark.parametrize(
    "name",
    [
        "subprocess.run",
        "subprocess.Popen.communicate",
        "concurrent.futures.ProcessPoolExecutor",
        "concurrent.futures.ProcessPoolExecutor.submit",
        "asyncio.gather",
        "collections.abc.Mapping",
        "json.JSONDecoder",
        "pathlib.Path.read_text",
        "logging.handlers.RotatingFileHandler",
    ],
)
def test_the_standard_library_holds_what_its_users_call(library: list[Node], name: str):
    (node,) = (node for node in library if node.name == name)
    assert node.uri == "strata://shared/python/" + name.replace(".", "/")
    assert node.abstract
    assert name in node.overview
    assert node.content


def test_the_standard_library_holds_no_private_names_and_no_tests(library: list[Node]):
    names = [node.name for node in library if node.parent_uri]
    assert not [name for name in names if any(part.startswith("_") for part in name.split("."))]
    modules = {part for node in library if node.kind == "module" for part in node.name.split(".")}
    assert not modules & {"test", "tests", "idlelib"}

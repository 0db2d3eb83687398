"""Which source a path means."""

import importlib.util
from pathlib import Path
from typing import Literal, get_args

import msgspec

from contracts.errors import InvalidInput
from contracts.query import ContextType
from corpora.context.dialogue import DialogueSource
from corpora.context.lines import read_lines
from corpora.context.markdown import SUFFIXES, MarkdownSource
from corpora.context.python_library import PythonLibrarySource
from corpora.context.records import RecordsSource
from index.ingest import IngestConfig, Source

SourceKind = Literal["markdown", "records", "dialogue", "python"]
STANDARD_LIBRARY = "python"
_LINES = frozenset({".jsonl", ".ndjson"})
# Fields that a record never has.
DIALOGUE_FIELDS = frozenset({"turns", "conv", "conversation", "speaker", "session"})


def source_for(
    path: str | Path,
    kind: SourceKind | None = None,
    *,
    space: str = "shared",
    name: str = "",
    context_type: ContextType | None = None,
    config: IngestConfig | None = None,
) -> Source:
    """The source that a path means.

    Args:
        path: A folder or file; the word ``python`` for the standard library of the running interpreter; with
            ``kind="python"`` also the name of an installed package, which is found without being imported.
        kind: What it is; by default a package's folder is Python, any other folder Markdown, ``.md``, ``.txt`` and
            their like Markdown, ``.json`` a dialogue, and ``.jsonl`` a dialogue when its first line has a dialogue's
            fields, else records.
        space: Owner space of the nodes.
        name: Names the source and the first segment of its URIs; by default the path's last part.
        context_type: Of nodes that name none; by default what suits the kind.
        config: Sizes of chunks and abstracts.

    Raises:
        InvalidInput: There is no such path, or it can't be told what it is.
        InvalidUri: ``space`` is no valid space.
    """
    place = Path(path).expanduser()
    if kind is None:
        kind = "python" if str(path) == STANDARD_LIBRARY and not place.exists() else _kind_of(place)
    if kind not in get_args(SourceKind):
        raise InvalidInput(
            f"{kind!r} is no kind of source.", field="kind", remedy=f"Use one of {', '.join(get_args(SourceKind))}."
        )
    if kind == "markdown":
        return MarkdownSource(place, space=space, name=name, context_type=context_type or "resource", config=config)
    if kind == "records":
        return RecordsSource(place, space=space, name=name, context_type=context_type or "resource", config=config)
    if kind == "dialogue":
        return DialogueSource(place, space=space, name=name, context_type=context_type or "memory", config=config)
    root = _package(str(path), place)
    return PythonLibrarySource(root, space=space, name=name, context_type=context_type or "skill", config=config)


def _kind_of(place: Path) -> SourceKind:
    if not place.exists():
        raise InvalidInput(f"{place} does not exist.", field="path", remedy="Name a folder or a file.")
    if place.is_dir():
        return "python" if (place / "__init__.py").is_file() else "markdown"
    suffix = place.suffix.lower()
    if suffix in _LINES:
        return "dialogue" if _fields(place) & DIALOGUE_FIELDS else "records"
    if suffix in SUFFIXES:
        return "markdown"
    if suffix == ".json":
        return "dialogue"
    if suffix == ".py":
        return "python"
    raise InvalidInput(
        f"It can't be told what {place.name} is.",
        field="path",
        remedy="Name a folder, .md, .txt, .jsonl, .json or .py, or say --kind.",
    )


def _fields(place: Path) -> set[str]:
    """The fields of a file's first line; none when that is no JSON object."""
    first = next(read_lines(place), None)
    try:
        return set(msgspec.json.decode(first.data, type=dict[str, msgspec.Raw])) if first else set()
    except (msgspec.MsgspecError, RecursionError):
        return set()


def _package(name: str, place: Path) -> Path | None:
    """Where a Python package lies; ``None`` is the standard library."""
    if place.exists():
        return place
    if name == STANDARD_LIBRARY:
        return None
    # A dotted name would import its parents.
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise InvalidInput(
            f"There is neither a path nor an installed Python package {name!r} with source.",
            field="path",
            remedy="Name a package's folder, an installed package, or python for the standard library.",
        )
    origin = Path(spec.origin)
    return origin.parent if origin.name == "__init__.py" else origin

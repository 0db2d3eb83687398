"""Files as ingest bodies of corpora: a body a line, or a body a session of a dialogue.

A line is what the corpus takes one of (an item of memory, a page of the web), or a whole body. Dimensions may stand in
the line; those given with the file fill in what it leaves out.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from contracts.errors import InvalidInput
from corpora import memory_bodies, web_bodies
from corpora.context.detect import DIALOGUE_FIELDS
from corpora.context.dialogue import DialogueSource, listed
from corpora.context.lines import Line, read_lines
from corpora.context.turns import Session
from index.ingest import Problem

_SUFFIXES = frozenset({".json", ".jsonl", ".ndjson"})
# Of a set for evaluation, only this file holds what is to be ingested.
_CORPUS_FILE, _QUERIES_FILE = "corpus.jsonl", "queries.jsonl"
# By corpus: where a line that is no whole body goes, and its dimensions.
_PLACES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "memory": ("items", memory_bodies.DIMENSIONS),
    "web": ("pages", web_bodies.DIMENSIONS),
}
_WHOLE = frozenset({"items", "dialogues", "pages"})


class Part(NamedTuple):
    """One body to ingest, and where it stands.

    Args:
        file: The file.
        line: Its line, or its place in a list, from 1.
        body: As the corpus's adapter reads it.
    """

    file: str
    line: int
    body: dict[str, Any]


def parts(path: Path, corpus: str, dimensions: Mapping[str, str]) -> Iterator[Part | Problem]:
    """The bodies of a file or of all files of a folder, in order, and what of them can't be read.

    Args:
        path: A ``.jsonl``, ``.ndjson`` or ``.json`` file; or a folder, of which an evaluation set counts as its
            ``corpus.jsonl``.
        corpus: Name of the corpus. For memory, a file of dialogues (see ``docs/ingest.md``) becomes a body a session;
            its ``conversation`` is the ``conversation_id`` unless ``dimensions`` says another.
        dimensions: Fill in what a line leaves out.

    Raises:
        InvalidInput: There is no such path, or nothing in it that could be read.
    """
    for file in _files(path):
        lines = listed(file) if file.suffix.lower() == ".json" else read_lines(file)
        first = next(lines, None)
        if first is None:
            continue
        if corpus == "memory" and _is_dialogue(first):
            yield from _dialogues(file, dimensions)
            continue
        yield _part(file, first, corpus, dimensions)
        for line in lines:
            yield _part(file, line, corpus, dimensions)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InvalidInput(f"{path} does not exist.", field="path", remedy="Name a file or a folder.")
    if (path / _CORPUS_FILE).is_file() and (path / _QUERIES_FILE).is_file():
        return [path / _CORPUS_FILE]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file())
    if not found:
        raise InvalidInput(f"{path} holds no .jsonl and no .json file.", field="path", remedy="Name another folder.")
    return found


def _is_dialogue(line: Line) -> bool:
    """Whether a file whose first line this is holds dialogues, and not whole bodies."""
    try:
        fields = set(msgspec.json.decode(line.data, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return False
    return bool(fields & DIALOGUE_FIELDS) and not fields & _WHOLE


def _part(file: Path, line: Line, corpus: str, dimensions: Mapping[str, str]) -> Part | Problem:
    try:
        read = msgspec.json.decode(line.data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return Problem(str(file), line.number, "No JSON object.", "")
    if corpus not in _PLACES or read.keys() & _WHOLE:
        return Part(str(file), line.number, {**dimensions, **read})
    place, names = _PLACES[corpus]
    own = {name: read.pop(name) for name in names if name in read}
    return Part(str(file), line.number, {**dimensions, **own, place: [read]})


def _dialogues(file: Path, dimensions: Mapping[str, str]) -> Iterator[Part | Problem]:
    for found in DialogueSource(file).sessions():
        if isinstance(found, Problem):
            yield found
        else:
            line, session = found
            yield Part(str(file), line, _dialogue(session, dimensions))


def _dialogue(session: Session, dimensions: Mapping[str, str]) -> dict[str, Any]:
    name, conversation = str(session.session_id), str(session.conversation)
    given = dimensions.get("conversation_id")
    # Sessions of several conversations that are made one must not take each other's place.
    if conversation and given not in {None, conversation}:
        name = f"{conversation}/{name}"
    turns = [
        {"text": turn.text, "speaker": turn.speaker, "id": str(turn.id), "time": turn.time} for turn in session.turns
    ]
    dialogue = {"session_id": name, "date": session.date, "tags": session.tags, "turns": turns}
    own = {"conversation_id": conversation} if conversation and given is None else {}
    return {**dimensions, **own, "dialogues": [dialogue]}

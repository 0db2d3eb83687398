import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import InvalidInput
from corpora.context.detect import source_for
from corpora.context.dialogue import DialogueSource
from corpora.context.markdown import MarkdownSource
from corpora.context.python_library import PythonLibrarySource
from corpora.context.records import RecordsSource


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.md", "# A", MarkdownSource),
        ("a.TXT", "A", MarkdownSource),
        ("a.jsonl", json.dumps({"id": 1, "text": "t"}), RecordsSource),
        ("a.jsonl", "not json", RecordsSource),
        ("a.jsonl", "", RecordsSource),
        ("a.jsonl", json.dumps({"session_id": 1, "turns": []}), DialogueSource),
        ("a.ndjson", json.dumps({"id": "c/D1:1", "text": "t", "conv": "c"}), DialogueSource),
        ("a.json", "[]", DialogueSource),
        ("a.py", "x = 1", PythonLibrarySource),
    ],
)
def test_a_file_is_what_its_ending_and_first_line_say(tmp_path: Path, name: str, text: str, kind: type[Any]):
    (tmp_path / name).write_text(text)
    source = source_for(tmp_path / name)
    assert isinstance(source, kind)
    assert source.source_id == "strata://shared/a" or source.source_id.endswith(name)


def test_a_folder_is_markdown_unless_it_is_a_package(tmp_path: Path):
    assert isinstance(source_for(tmp_path), MarkdownSource)
    (tmp_path / "__init__.py").touch()
    assert isinstance(source_for(tmp_path), PythonLibrarySource)


def test_the_word_python_is_the_standard_library_and_a_name_an_installed_package():
    assert source_for("python").source_id == "strata://shared/python"
    assert source_for("email", "python").source_id == "strata://shared/email"


def test_a_given_kind_name_and_space_are_kept(tmp_path: Path):
    (tmp_path / "talk.log").write_text("")
    source = source_for(tmp_path / "talk.log", "dialogue", space="user:alice", name="talks")
    assert isinstance(source, DialogueSource)
    assert source.source_id == "strata://user:alice/talks"


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("missing", None, "does not exist"),
        ("picture.png", None, "can't be told"),
        ("picture.png", "pictures", "is no kind of source"),
        ("no_such_package", "python", "neither a path nor an installed Python package"),
    ],
)
def test_what_cannot_be_told_is_refused_with_a_remedy(tmp_path: Path, name: str, kind: Any, says: str):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    with pytest.raises(InvalidInput, match=says) as error:
        source_for(tmp_path / name if kind != "python" else name, kind)
    assert error.value.remedy

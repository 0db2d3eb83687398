"""Files as ingest bodies."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidInput
from corpora.files import Part, parts
from index.ingest import Problem

WHO = {"user_id": "ann", "assistant_id": "helper"}
TURNS = [
    {"id": "c1/D1:1", "conv": "c1", "title": "1:56 pm on 8 May, 2023", "text": "Ann: Hello"},
    {"id": "c1/D1:2", "conv": "c1", "title": "1:56 pm on 8 May, 2023", "text": "Bot: Hi"},
    {"id": "c2/D1:1", "conv": "c2", "title": "9:00 am on 9 May, 2023", "text": "Ann: Again"},
]


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def bodies(path: Path, corpus: str, **dimensions: str) -> list[dict[str, Any]]:
    found = list(parts(path, corpus, dimensions))
    assert not [part for part in found if isinstance(part, Problem)]
    return [part.body for part in found if isinstance(part, Part)]


def test_a_line_is_one_body_and_the_dimensions_fill_in_what_it_leaves_out(tmp_path: Path) -> None:
    path = write(tmp_path / "items.jsonl", {"text": "one", "conversation_id": "mine"}, {"text": "two"})
    assert bodies(path, "memory", **WHO, conversation_id="c") == [
        {**WHO, "conversation_id": "mine", "items": [{"text": "one"}]},
        {**WHO, "conversation_id": "c", "items": [{"text": "two"}]},
    ]
    path = write(tmp_path / "pages.jsonl", {"url": "https://a.example", "content": "x", "query_id": "q"})
    assert bodies(path, "web", session_id="s") == [
        {"session_id": "s", "query_id": "q", "pages": [{"url": "https://a.example", "content": "x"}]}
    ]


def test_whole_bodies_and_those_of_other_corpora_stay_as_they_are(tmp_path: Path) -> None:
    whole = {"conversation_id": "c", "items": [{"text": "one"}]}
    assert bodies(write(tmp_path / "a.jsonl", whole), "memory", **WHO) == [{**WHO, **whole}]
    assert bodies(write(tmp_path / "b.jsonl", {"law": "1"}), "laws", country="x") == [{"country": "x", "law": "1"}]


def test_a_dialogue_becomes_a_body_a_session_in_its_own_conversation(tmp_path: Path) -> None:
    first, second = bodies(write(tmp_path / "chat.jsonl", *TURNS), "memory", **WHO)
    assert (first["conversation_id"], second["conversation_id"]) == ("c1", "c2")
    (dialogue,) = first["dialogues"]
    assert dialogue["session_id"] == "D1"
    assert [(turn["speaker"], turn["text"]) for turn in dialogue["turns"]] == [("Ann", "Hello"), ("Bot", "Hi")]


def test_sessions_of_conversations_that_are_made_one_keep_apart(tmp_path: Path) -> None:
    found = bodies(write(tmp_path / "chat.jsonl", *TURNS), "memory", **WHO, conversation_id="all")
    assert {body["conversation_id"] for body in found} == {"all"}
    assert [body["dialogues"][0]["session_id"] for body in found] == ["c1/D1", "c2/D1"]


def test_of_an_evaluation_set_only_the_corpus_is_read(tmp_path: Path) -> None:
    write(tmp_path / "corpus.jsonl", *TURNS)
    write(tmp_path / "queries.jsonl", {"id": "q", "text": "not this"})
    assert len(bodies(tmp_path, "memory", **WHO)) == 2


def test_of_a_folder_all_files_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps([{"text": "two"}, {"text": "three"}]))
    write(tmp_path / "a.jsonl", {"text": "one"})
    (tmp_path / "note.txt").write_text("not this")
    assert [body["items"][0]["text"] for body in bodies(tmp_path, "memory")] == ["one", "two", "three"]


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_a_path_without_anything_to_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput) as caught:
        list(parts(tmp_path / name, "memory", {}))
    assert caught.value.field == "path"


@given(st.lists(st.sampled_from([b'{"text": "x"}', b"{", b"[1]", b"\xff", b"", b'"x"', b"[" * 5000])))
def test_every_line_is_a_body_or_a_problem_with_its_number(tmp_path_factory: Any, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    path.write_bytes(b"\n".join(lines))
    found = list(parts(path, "web", {}))
    assert [part.line for part in found] == [number for number, line in enumerate(lines, 1) if line]
    for part in found:
        assert isinstance(part, Part) == (lines[part.line - 1] == b'{"text": "x"}')

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import InvalidInput
from contracts.records import Document, Node
from contracts.uri import parse
from corpora.context.dialogue import DialogueSource
from index.ingest import Problem

SESSION = {
    "session_id": "s1",
    "date": "2023-05-08",
    "turns": [
        {"speaker": "Ann", "text": "I planted tomatoes in the garden yesterday."},
        {"speaker": "Bob", "text": "Nice! How many?", "id": "second"},
        {"speaker": "Ann", "text": "Twelve tomatoes, and one pepper.", "time": "2023-05-09T10:00:00"},
    ],
}
LINES = [
    {"id": "c1/D1:1", "title": "1:56 pm on 8 May, 2023", "text": "Ann: Hello Bob!", "conv": "c1"},
    {"id": "c1/D1:2", "title": "1:56 pm on 8 May, 2023", "text": "Bob: 你好，安。", "conv": "c1"},
    {"id": "c1/D2:1", "title": "10:00 am on 9 May, 2023", "text": "Ann: Hello again!", "conv": "c1"},
    {"id": "c2/D1:1", "title": "10:00 am on 1 June, 2023", "text": "Cid: Hi all.", "conv": "c2"},
]


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def read(path: Path, **options: Any) -> tuple[dict[str, Node], list[Problem]]:
    items = list(DialogueSource(path, **options).documents())
    documents = [item for item in items if isinstance(item, Document)]
    nodes = {node.uri.removeprefix("strata://shared/"): node for item in documents for node in item.nodes}
    return nodes, [item for item in items if isinstance(item, Problem)]


def test_sessions_become_a_tree_of_dialogue_session_and_turns(tmp_path: Path):
    nodes, problems = read(write(tmp_path / "chat.jsonl", SESSION))
    assert not problems
    assert {uri: node.kind for uri, node in nodes.items()} == {
        "chat/s1": "session",
        "chat/s1/1": "turn",
        "chat/s1/second": "turn",
        "chat/s1/3": "turn",
        "chat": "dialogue",
    }
    assert {node.context_type for node in nodes.values()} == {"memory"}


def test_a_turn_is_embedded_by_itself_and_with_its_neighbours_and_without_the_date(tmp_path: Path):
    nodes, _ = read(write(tmp_path / "chat.jsonl", SESSION))
    ann, bob, last = (f"{turn['speaker']}: {turn['text']}" for turn in SESSION["turns"])  # type: ignore[index]
    assert nodes["chat/s1/second"].vector_texts == (bob, f"{ann}\n{bob}\n{last}")
    assert nodes["chat/s1/1"].vector_texts == (ann, f"{ann}\n{bob}")
    assert nodes["chat/s1/second"].content == f"2023-05-08 (8 May 2023)\n{ann}\n{bob}\n{last}"
    assert nodes["chat/s1/1"].abstract == ann


def test_the_keyword_text_of_a_turn_is_speaker_text_and_date(tmp_path: Path):
    node = read(write(tmp_path / "chat.jsonl", SESSION))[0]["chat/s1/1"]
    assert node.name == "Ann"
    assert node.search_text == "I planted tomatoes in the garden yesterday.\n2023-05-08 (8 May 2023)"


def test_the_keyword_text_of_a_session_is_that_of_all_its_turns(tmp_path: Path):
    node = read(write(tmp_path / "chat.jsonl", SESSION))[0]["chat/s1"]
    for turn in SESSION["turns"]:  # type: ignore[attr-defined]
        assert f"{turn['speaker']}: {turn['text']}" in node.search_text
        assert turn["text"] in node.content
    assert node.overview.splitlines()[0] == "- Ann, Bob, 2023-05-08 (8 May 2023)"
    assert node.overview.splitlines()[1].startswith("- Ann: I planted tomatoes")
    assert "2023" not in node.vector_texts[0]


def test_dates_become_times_where_they_can_be_read(tmp_path: Path):
    nodes, _ = read(write(tmp_path / "chat.jsonl", SESSION, SESSION | {"session_id": "s2", "date": "some day"}))
    assert nodes["chat/s1"].created_at == nodes["chat/s1/1"].updated_at == 1683504000000
    assert nodes["chat/s1/3"].created_at == 1683626400000
    assert nodes["chat/s2"].created_at == 0
    assert nodes["chat/s2/1"].search_text.endswith("some day")


def test_turn_lines_are_grouped_by_conversation_and_session(tmp_path: Path):
    nodes, problems = read(write(tmp_path / "locomo.jsonl", *LINES))
    assert not problems
    assert [uri for uri, node in nodes.items() if node.kind == "session"] == [
        "locomo/c1/D1",
        "locomo/c1/D2",
        "locomo/c2/D1",
    ]
    turn = nodes["locomo/c1/D1/D1:2"]
    assert (turn.name, turn.abstract) == ("Bob", "Bob: 你好，安。")
    assert turn.search_text == "你好，安。\n1:56 pm on 8 May, 2023"
    assert turn.attrs == {
        "session": ("D1",),
        "conversation": ("c1",),
        "id": ("c1/D1:2",),
        "speaker": ("Bob",),
    }
    assert nodes["locomo/c1"].kind == "conversation"
    assert nodes["locomo/c1"].abstract == "2 sessions with Ann, Bob, 1:56 pm on 8 May, 2023 – 10:00 am on 9 May, 2023"
    assert nodes["locomo"].abstract == "2 conversations with Ann, Bob, Cid"


def test_every_parent_exists_and_uris_are_canonical(tmp_path: Path):
    nodes, _ = read(write(tmp_path / "locomo.jsonl", *LINES, SESSION))
    uris = {node.uri for node in nodes.values()}
    assert all(parse(uri) == uri for uri in uris)
    assert {node.parent_uri for node in nodes.values()} - {""} == {
        node.uri for node in nodes.values() if node.has_children
    }


def test_the_whole_tells_what_it_holds(tmp_path: Path):
    undated = {name: value for name, value in SESSION.items() if name != "date"}
    assert read(write(tmp_path / "a.jsonl", undated))[0]["a"].abstract == "1 sessions with Ann, Bob"
    mixed = read(write(tmp_path / "b.jsonl", undated, *LINES))[0]["b"]
    assert mixed.abstract.startswith("3 conversations and sessions with Ann, Bob, Cid")


def test_a_json_file_holds_a_list_of_sessions_or_one(tmp_path: Path):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([SESSION, SESSION | {"session_id": 2}], indent=1))
    assert {"chat/s1", "chat/2"} <= read(path)[0].keys()
    path.write_text(json.dumps(SESSION))
    assert "chat/s1" in read(path)[0]


def test_given_abstracts_and_overviews_of_a_session_are_kept(tmp_path: Path):
    given = SESSION | {"abstract": "About a garden.", "overview": "- tomatoes"}
    node = read(write(tmp_path / "chat.jsonl", given))[0]["chat/s1"]
    assert (node.abstract, node.overview) == ("About a garden.", "- tomatoes")


def test_the_abstract_of_a_session_names_speakers_and_date_and_says_what_it_is_about(tmp_path: Path):
    greetings = [{"speaker": "Bob", "text": "Hello there! How are you?"}] * 20
    turns = [*greetings, *SESSION["turns"], {"speaker": "Bob", "text": "Tomatoes in the garden grow well."}]  # type: ignore[misc]
    node = read(write(tmp_path / "chat.jsonl", SESSION | {"turns": turns}))[0]["chat/s1"]
    assert node.abstract.startswith("Bob, Ann, 2023-05-08 (8 May 2023): ")
    assert "tomatoes" in node.abstract.lower()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not json", "No JSON: "),
        ({"session_id": "s2", "turns": [{"speaker": "Ann"}]}, "Field 'text' is missing in 'turns[0]'."),
        ({"session_id": "s2", "turns": []}, "has no turn with text"),
        ({"turns": []}, "Field 'session_id' is missing."),
        ({"text": "Ann: hello"}, "Nothing tells the session."),
        ({"text": "Ann: hello", "convo": "c"}, "Unknown field 'convo'. Did you mean 'conv'?"),
        (SESSION, "Session 's1' began in line 1; keep it together."),
    ],
)
def test_a_bad_line_is_reported_by_file_and_line_and_the_rest_goes_on(
    tmp_path: Path, line: dict[str, Any] | str, says: str
):
    path = write(tmp_path / "chat.jsonl", SESSION, line, SESSION | {"session_id": "last"})
    nodes, (problem,) = read(path)
    assert {"chat/s1", "chat/last"} <= nodes.keys()
    assert (problem.file, problem.line) == (str(path), 2)
    assert says in problem.message


def test_a_file_that_is_no_json_is_refused(tmp_path: Path):
    path = tmp_path / "chat.json"
    path.write_text("[{")
    with pytest.raises(InvalidInput, match="can't be read as JSON"):
        read(path)

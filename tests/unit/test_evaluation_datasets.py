"""The folder format of test collections."""

import json
from pathlib import Path

import pytest

from contracts.errors import InvalidInput
from evaluation.datasets import load


def write(folder: Path, corpus: list[dict[str, str]], queries: list[dict[str, str]], qrels: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "qrels.tsv").write_text(qrels, encoding="utf-8")
    return folder


DOCS = [{"id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(3)]
QUESTIONS = [{"id": f"q{i}", "text": f"question {i}"} for i in range(4)]
QRELS = "q0\td0\t1\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n"


def test_a_folder_is_read_with_its_judgements(tmp_path: Path) -> None:
    dataset = load(write(tmp_path / "set", DOCS, QUESTIONS, QRELS))
    assert dataset.name == "set"
    assert [doc.id for doc in dataset.passages] == ["d0", "d1", "d2"]
    assert dataset.qrels["q1"] == {"d1": 2, "d2": 0}
    assert not dataset.conversational


def test_a_query_without_a_judgement_is_left_out(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, DOCS, QUESTIONS, QRELS))
    assert [question.id for question in dataset.questions] == ["q0", "q1", "q2"]


def test_a_limit_takes_queries_from_the_whole_file(tmp_path: Path) -> None:
    queries = [{"id": f"q{i}", "text": "?"} for i in range(10)]
    dataset = load(write(tmp_path, DOCS, queries, "".join(f"q{i}\td0\t1\n" for i in range(10))), limit=2)
    assert [question.id for question in dataset.questions] == ["q0", "q5"]
    assert set(dataset.qrels) == {"q0", "q5"}


def test_a_set_with_conversations_says_so(tmp_path: Path) -> None:
    docs, queries = ([{**row, "conv": "c1"} for row in rows] for rows in (DOCS, QUESTIONS))
    assert load(write(tmp_path, docs, queries, QRELS)).conversational


def test_conversations_in_some_lines_only_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="some lines only"):
        load(write(tmp_path, [{**DOCS[0], "conv": "c1"}, *DOCS[1:]], QUESTIONS, QRELS))


def test_a_missing_file_is_named_with_the_format_that_is_expected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        load(tmp_path / "nowhere")
    assert "corpus.jsonl" in error.value.message
    assert "qrels.tsv" in error.value.remedy


@pytest.mark.parametrize("line", ["{not json", '{"id": "d9"}', '{"id": 3, "text": "t"}', "[]"])
def test_a_line_that_cant_be_understood_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    folder = write(tmp_path, DOCS, QUESTIONS, QRELS)
    path = folder / "corpus.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"corpus\.jsonl, line 4"):
        load(folder)


@pytest.mark.parametrize("line", ["q0 d0 1", "q0\td0", "q0\td0\thigh", "q0\td0\t-1"])
def test_a_judgement_that_cant_be_understood_is_named_by_file_and_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidInput, match=r"qrels\.tsv, line 2"):
        load(write(tmp_path, DOCS, QUESTIONS, f"q0\td0\t1\n{line}\n"))

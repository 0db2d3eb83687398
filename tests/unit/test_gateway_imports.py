"""Memories in the upstream's form, and the records of the memory corpus that they become."""

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import InvalidInput
from corpora.rag.types import SourceDocument
from deployments.gateway.imports import documents, read


def made(array: str, **item: Any) -> SourceDocument:
    (document,) = documents([(array, {"id": "m", **item})], "memory.ann", "private")  # type: ignore[list-item]
    return document


def test_an_episode_keeps_what_filters_can_name() -> None:
    document = made(
        "episodes",
        session_id="chat:1",
        timestamp="2026-01-01T00:00:00Z",
        sender_ids=["ann", "bob"],
        subject="Tea",
        episode="Ann had tea.",
        summary="short",
        parent_type="memcell",
        parent_id="mc-1",
        app_id="default",
    )
    assert (document.source_id, document.space, document.title, document.text) == (
        "m",
        "memory.ann",
        "Tea",
        "Ann had tea.",
    )
    assert document.created_at == 1_767_225_600_000
    assert document.attrs == {
        "memory_type": ("episode",),
        "session_id": ("chat:1",),
        "sender_id": ("ann", "bob"),
        "parent_type": ("memcell",),
        "parent_id": ("mc-1",),
        "sensitivity_level": ("private",),
    }


def test_another_app_or_project_is_named_as_such() -> None:
    attrs = made("profiles", profile_data={"likes": "tea"}, app_id="shop", project_id="default").attrs
    assert (attrs["app_id"], attrs["named"]) == (("shop",), ("app_id",))
    assert "project_id" not in attrs


@pytest.mark.parametrize(
    ("array", "item", "title", "text", "kind"),
    [
        ("profiles", {"profile_data": {"likes": "tea"}}, "", '{"likes":"tea"}', "memory"),
        ("agent_cases", {"task_intent": "a", "approach": "b", "key_insight": "c"}, "a", "b\nc", "memory"),
        ("agent_skills", {"name": "a", "description": "b", "content": "c"}, "a", "b\nc", "memory"),
        ("unprocessed_messages", {"content": [{"text": "hi"}], "role": "user"}, "", "hi", "turn"),
        ("episodes", {"summary": "short", "timestamp": 5}, "", "short", "memory"),
    ],
)
def test_each_array_has_its_text(array: str, item: Any, title: str, text: str, kind: str) -> None:
    document = made(array, **item)
    assert (document.title, document.text, document.kind) == (title, text, kind)


@pytest.mark.parametrize(
    "item",
    [{"episode": " "}, {}, {"episode": "x", "timestamp": "soon"}, {"episode": "x", "timestamp": True},
     {"episode": "x", "timestamp": -1}],
)  # fmt: skip
def test_a_memory_without_text_or_with_a_wrong_time_is_refused(item: Any) -> None:
    with pytest.raises(InvalidInput):
        made("episodes", **item)


def test_files_are_read_as_arrays_or_line_by_line(tmp_path: Path) -> None:
    whole, lines = tmp_path / "a.json", tmp_path / "a.jsonl"
    whole.write_text(json.dumps({"episodes": [{"id": "1"}], "profiles": [{"id": "2"}]}), encoding="utf-8")
    lines.write_text(
        '{"id": "1", "memory_type": "episode"}\n\n{"id": "2", "memory_type": "profile"}\n', encoding="utf-8"
    )
    for path in (whole, lines):
        assert [(array, item["id"]) for array, item in read(path)] == [("episodes", "1"), ("profiles", "2")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[]"),
        ("a.json", "{}"),
        ("a.json", '{"episodes": [{"id": 1}]}'),
        ("a.jsonl", '{"id": "1"}'),
        ("a.jsonl", '{"id": "1", "memory_type": "dream"}'),
        ("a.jsonl", "[1]"),
    ],
)
def test_what_can_not_be_understood_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput):
        read(tmp_path / name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        read(tmp_path / "none.json")

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import InvalidInput
from contracts.records import Document, Node
from contracts.uri import parse
from corpora.context.nodes import to_millis
from corpora.context.records import RecordsSource
from index.chunker import ChunkOptions
from index.ingest import IngestConfig, Problem


def write(path: Path, *lines: dict[str, Any] | str | bytes) -> Path:
    def raw(line: dict[str, Any] | str | bytes) -> bytes:
        text = json.dumps(line, ensure_ascii=False) if isinstance(line, dict) else line
        return text if isinstance(text, bytes) else text.encode()

    path.write_bytes(b"\n".join(map(raw, lines)) + b"\n")
    return path


def read(path: Path, **options: Any) -> tuple[list[Document], list[Problem]]:
    items = list(RecordsSource(path, **options).documents())
    return [item for item in items if isinstance(item, Document)], [item for item in items if isinstance(item, Problem)]


def one(tmp_path: Path, record: dict[str, Any], **options: Any) -> list[Node]:
    documents, problems = read(write(tmp_path / "facts.jsonl", record), **options)
    assert not problems
    return list(documents[0].nodes)


def test_a_short_passage_is_searched_and_embedded_whole(tmp_path: Path):
    (node,) = one(tmp_path, {"id": "p/1", "title": "Tea", "text": "Tea is made of leaves. It is hot."})
    assert node.uri == "strata://shared/facts/p/1"
    assert node.search_text == node.content == "Tea is made of leaves. It is hot."
    assert node.vector_texts == ("Tea\nTea is made of leaves. It is hot.",)
    assert node.abstract == "Tea is made of leaves. It is hot."
    assert (node.overview, node.kind, node.category, node.context_type) == ("", "record", "document", "resource")
    assert node.attrs == {"id": ("p/1",)}


def test_all_given_fields_are_kept(tmp_path: Path):
    (node,) = one(
        tmp_path,
        {
            "uri": "strata://user:alice/facts/茶",
            "title": "茶",
            "text": "茶是一种饮料。",
            "content": "全文。",
            "abstract": "关于茶。",
            "overview": "- 茶",
            "search_text": "茶 绿茶",
            "vector_text": ["茶", "饮料"],
            "parent": "strata://user:alice/facts",
            "kind": "fact",
            "context_type": "memory",
            "category": "preference",
            "tags": ["drink"],
            "attrs": {"language": "zh", "places": ["a", "b"]},
            "relations": [{"to": "coffee", "type": "contrasts", "weight": 0.5}],
            "created_at": "2024-01-05",
            "updated_at": 1704499200000,
            "expires_at": "2030-01-01T00:00:00Z",
            "status": "archived",
        },
    )
    assert node.uri == "strata://user:alice/facts/茶"
    assert (node.abstract, node.overview, node.content) == ("关于茶。", "- 茶", "全文。")
    assert (node.search_text, node.vector_texts) == ("茶 绿茶", ("茶", "饮料"))
    assert (node.parent_uri, node.kind, node.context_type) == ("strata://user:alice/facts", "fact", "memory")
    assert (node.category, node.tags, node.status) == ("preference", ("drink",), "archived")
    assert node.attrs == {"language": ("zh",), "places": ("a", "b")}
    assert node.relations[0].to_uri == "strata://shared/facts/coffee"
    assert (node.relations[0].relation_type, node.relations[0].weight) == ("contrasts", 0.5)
    assert (node.created_at, node.updated_at, node.expires_at) == (1704412800000, 1704499200000, 1893456000000)


def test_a_long_text_gets_an_abstract_an_overview_and_chunks(tmp_path: Path):
    text = " ".join(f"Sentence {number} tells something." for number in range(40))
    options = IngestConfig(chunk=ChunkOptions(size=50, overlap=10))
    node, *chunks = one(tmp_path, {"id": "a", "title": "T", "text": text}, config=options)
    assert node.has_children
    assert node.search_text == text
    assert node.vector_texts == (f"T\n{node.abstract}",)
    assert node.overview
    assert {chunk.parent_uri for chunk in chunks} == {node.uri}
    for chunk in chunks:
        assert text[int(chunk.attrs["start"][0]) : int(chunk.attrs["end"][0])] == chunk.content
    (whole,) = one(tmp_path, {"id": "a", "title": "T", "text": text}, config=IngestConfig(chunk=None))
    assert whole.vector_texts == (f"T\n{text}",)


def test_a_record_that_others_name_as_parent_has_children_wherever_they_stand(tmp_path: Path):
    path = write(
        tmp_path / "tree.jsonl",
        {"id": "child", "parent": "root", "text": "below"},
        {"id": "root", "abstract": "above"},
    )
    child, root = (document.nodes[0] for document in read(path)[0])
    assert child.parent_uri == root.uri
    assert root.has_children
    assert not child.has_children


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not json", "No JSON: "),
        (b'{"id": "x", "text": "\xff"}', "No JSON: "),
        ("[1, 2]", "must be an object, not a list"),
        ({"id": "x", "titel": "T", "text": "t"}, "Unknown field 'titel'. Did you mean 'title'?"),
        ({"id": "x", "title": 5, "text": "t"}, "Field 'title' must be text, not a number."),
        ({"id": "x", "text": "t", "tags": "a"}, "Field 'tags' must be a list, not text."),
        ({"id": "x", "text": "t", "relations": [{"uri": "a"}]}, "Unknown field 'uri' in 'relations[0]'."),
        ({"id": "x", "text": "t", "relations": [{}]}, "Field 'to' is missing in 'relations[0]'."),
        ({"id": "x", "text": "t", "context_type": "fact"}, "Use one of memory, skill, resource."),
        ({"id": "x", "text": "t", "created_at": "soon"}, "Field 'created_at': 'soon' is no date."),
        ({"id": "x", "text": "t", "attrs": {"a b": "c"}}, "Field 'attrs' has the name 'a b'."),
        ({"text": "t"}, "Neither 'id' nor 'uri' is given."),
        ({"id": "x", "title": " "}, "The record holds no text."),
        ({"uri": "http://x", "text": "t"}, "does not start with strata://"),
        ({"id": "good", "text": "again"}, "Repeats the id or uri of line 1; left out."),
    ],
)
def test_a_bad_line_is_reported_by_file_line_and_field_and_the_rest_goes_on(
    tmp_path: Path, line: dict[str, Any] | str | bytes, says: str
):
    path = write(tmp_path / "facts.jsonl", {"id": "good", "text": "t"}, line, "", {"id": "last", "text": "t"})
    documents, (problem,) = read(path)
    assert [document.nodes[0].attrs["id"] for document in documents] == [("good",), ("last",)]
    assert (problem.file, problem.line) == (str(path), 2)
    assert says in problem.message


def test_a_bad_line_protects_its_own_record_or_all_when_it_does_not_tell_which(tmp_path: Path):
    path = write(tmp_path / "facts.jsonl", {"id": "x", "text": 5}, "garbage")
    assert [problem.document_id for problem in read(path)[1]] == ["strata://shared/facts/x", ""]


def test_a_byte_order_mark_and_ids_that_are_numbers_are_read(tmp_path: Path):
    path = tmp_path / "facts.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 7, "text": "seven"}\r\n')
    assert read(path)[0][0].document_id == "strata://shared/facts/7"


@pytest.mark.parametrize("name", ["a b", "ＡＢ", "50%", "..", "x" * 300, "汉字/子"])
def test_any_id_becomes_a_canonical_uri(tmp_path: Path, name: str):
    (node,) = one(tmp_path, {"id": name, "text": "t"})
    assert parse(node.uri) == node.uri


def test_the_fingerprint_follows_everything_that_shapes_the_nodes(tmp_path: Path):
    base = {"id": "a", "title": "T", "text": "one two three " * 60, "created_at": "2024-01-05"}
    variants = [
        base,
        base | {"tags": ["x"]},
        base | {"created_at": "2024-01-06"},
        base | {"text": "one two three " * 61},
    ]
    prints = {read(write(tmp_path / "f.jsonl", each))[0][0].fingerprint for each in variants}
    smaller = IngestConfig(chunk=ChunkOptions(size=64, overlap=8))
    prints.add(read(write(tmp_path / "f.jsonl", base), config=smaller)[0][0].fingerprint)
    assert len(prints) == len(variants) + 1
    assert read(write(tmp_path / "f.jsonl", base))[0][0].fingerprint in prints


def test_records_are_read_as_they_are_asked_for(tmp_path: Path):
    path = write(tmp_path / "f.jsonl", *({"id": n, "text": "t"} for n in range(100)))
    first = list(itertools.islice(RecordsSource(path).documents(), 2))
    assert [item.nodes[0].attrs["id"] for item in first if isinstance(item, Document)] == [("0",), ("1",)]


def test_a_folder_is_no_file_of_records(tmp_path: Path):
    with pytest.raises(InvalidInput, match="is no file"):
        RecordsSource(tmp_path)


@pytest.mark.parametrize(
    "written",
    ["2023-05-08T13:56:00Z", "1:56 pm on 8 May, 2023", "2023年5月8日 13:56", "2023/5/8 13:56", 1683554160000],
)
def test_dates_are_read_as_people_write_them(written: str | int):
    assert to_millis(written) == 1683554160000


def test_what_is_no_date_is_refused():
    with pytest.raises(ValueError, match="is no date"):
        to_millis("the day after tomorrow")

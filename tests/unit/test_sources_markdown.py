import os
from pathlib import Path

import pytest

from contracts.errors import InvalidInput, InvalidUri
from contracts.records import Document, Node
from contracts.uri import parse
from corpora.context.markdown import MarkdownSource
from index.chunker import ChunkOptions
from index.ingest import IngestConfig, Problem

SETUP = """---
title: Setup guide
tags: [ops, 安装]
date: 2024-01-05
description: How to set the service up.
---
# Setup

Read [the handbook](../README.md) first, or [the web](http://x.y/z.md).

## Linux

Run make. Then wait.

### Arch

Use pacman.

## Linux

A second one.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    (root / "guides").mkdir(parents=True)
    (root / "README.md").write_text("# Handbook\n\nIt tells how we work.\n")
    (root / "guides" / "setup.md").write_text(SETUP)
    (root / "guides" / "说明.txt").write_text("\ufeff纯文本。没有标题。")
    return root


def read(root: Path, **options: object) -> tuple[dict[str, Document], list[Problem]]:
    items = list(MarkdownSource(root, **options).documents())  # type: ignore[arg-type]
    documents = {item.document_id: item for item in items if isinstance(item, Document)}
    return documents, [item for item in items if isinstance(item, Problem)]


def nodes_of(documents: dict[str, Document]) -> dict[str, Node]:
    return {node.uri: node for document in documents.values() for node in document.nodes}


def test_a_folder_becomes_a_tree_of_folders_documents_and_nested_sections(folder: Path):
    documents, problems = read(folder)
    assert not problems
    assert set(documents) == {"README.md", "guides/setup.md", "guides/说明.txt", "guides/", "/"}
    kinds = {uri.removeprefix("strata://shared/"): node.kind for uri, node in nodes_of(documents).items()}
    assert kinds == {
        "docs": "folder",
        "docs/README.md": "document",
        "docs/guides": "folder",
        "docs/guides/setup.md": "document",
        "docs/guides/setup.md/Linux": "section",
        "docs/guides/setup.md/Linux/Arch": "section",
        "docs/guides/setup.md/Linux-2": "section",
        "docs/guides/说明.txt": "document",
    }


def test_every_parent_exists_and_knows_that_it_has_children(folder: Path):
    nodes = nodes_of(read(folder)[0])
    parents = {node.parent_uri for node in nodes.values()} - {""}
    assert all(parse(uri) == uri for uri in nodes)
    assert parents == {uri for uri, node in nodes.items() if node.has_children}


def test_front_matter_gives_title_abstract_tags_and_date(folder: Path):
    node = nodes_of(read(folder)[0])["strata://shared/docs/guides/setup.md"]
    assert node.name == "Setup guide"
    assert node.abstract == "How to set the service up."
    assert node.tags == ("ops", "安装")
    assert node.created_at == 1704412800000
    assert "title:" not in node.content


def test_missing_abstracts_and_overviews_are_made_of_the_text(folder: Path):
    nodes = nodes_of(read(folder)[0])
    readme = nodes["strata://shared/docs/README.md"]
    assert (readme.name, readme.abstract, readme.overview) == ("Handbook", "It tells how we work.", "")
    setup = nodes["strata://shared/docs/guides/setup.md"]
    assert setup.overview.splitlines() == ["- Linux: Run make.", "  - Arch: Use pacman.", "- Linux: A second one."]
    section = nodes["strata://shared/docs/guides/setup.md/Linux"]
    assert section.content.startswith("## Linux")
    assert "### Arch" in section.content
    assert section.search_text == "Run make. Then wait."
    assert section.vector_texts == ("Setup guide › Linux\nRun make. Then wait.",)


def test_a_folder_takes_its_abstract_from_its_readme_or_names_what_it_holds(folder: Path):
    nodes = nodes_of(read(folder)[0])
    assert nodes["strata://shared/docs"].abstract == "It tells how we work."
    assert "Setup guide" in nodes["strata://shared/docs/guides"].abstract
    assert "How to set the service up." in nodes["strata://shared/docs/guides"].overview


def test_links_between_files_become_relations(folder: Path):
    relations = nodes_of(read(folder)[0])["strata://shared/docs/guides/setup.md"].relations
    assert [(relation.to_uri, relation.relation_type) for relation in relations] == [
        ("strata://shared/docs/README.md", "links_to")
    ]


def test_a_section_longer_than_a_chunk_gets_chunks_that_can_be_found_in_the_file(tmp_path: Path):
    text = "# Long\n\n## Part\n\n" + " ".join(f"Sentence number {number} is here." for number in range(60))
    (tmp_path / "long.md").write_text(text)
    documents, _ = read(tmp_path, name="x", config=IngestConfig(chunk=ChunkOptions(size=60, overlap=12)))
    chunks = [node for node in documents["long.md"].nodes if node.kind == "chunk"]
    assert len(chunks) > 3
    for node in chunks:
        start, end = int(node.attrs["start"][0]), int(node.attrs["end"][0])
        assert text[start:end] == node.content == node.search_text
        assert node.parent_uri == "strata://shared/x/long.md/Part"
        assert node.vector_texts[0].startswith("Long › Part\n")
    assert next(node for node in documents["long.md"].nodes if node.name == "Part").has_children


def test_without_a_chunk_size_nothing_is_cut(tmp_path: Path):
    (tmp_path / "long.md").write_text("一句话。" * 500)
    documents, _ = read(tmp_path, config=IngestConfig(chunk=None))
    assert len(documents["long.md"].nodes) == 1


def test_touching_a_file_changes_no_fingerprint_and_editing_it_does(folder: Path):
    before, _ = read(folder)
    os.utime(folder / "README.md", (1, 1))
    touched, _ = read(folder)
    assert {name: item.fingerprint for name, item in before.items()} == {
        name: item.fingerprint for name, item in touched.items()
    }
    assert touched["README.md"].nodes[0].updated_at == 1000
    (folder / "README.md").write_text("# Handbook\n\nIt tells how we play.\n")
    edited, _ = read(folder)
    changed = {name for name in before if before[name].fingerprint != edited[name].fingerprint}
    assert changed == {"README.md", "/"}


def test_files_that_are_no_text_are_reported_by_name_and_the_rest_goes_on(folder: Path):
    (folder / "latin.md").write_bytes("gültig\ngrün".encode("latin-1"))
    (folder / "binary.txt").write_bytes(b"a\0b")
    documents, problems = read(folder)
    assert {Path(problem.file).name: problem.message for problem in problems} == {
        "latin.md": "is not UTF-8 (line 1). Save it as UTF-8.",
        "binary.txt": "holds NUL bytes, so it is no text.",
    }
    assert {problem.document_id for problem in problems} == {"latin.md", "binary.txt"}
    assert "README.md" in documents


def test_hidden_files_other_kinds_and_links_that_loop_or_lead_out_are_skipped_with_the_reason(folder: Path):
    (folder / ".git").mkdir()
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "empty.md").write_text(" \n")
    (folder / "guides" / "loop").symlink_to("..", target_is_directory=True)
    outside = folder.parent / "secret.md"
    outside.write_text("# Secret")
    (folder / "secret.md").symlink_to(outside)
    (folder / "linked.md").symlink_to("README.md")
    documents, problems = read(folder)
    assert all(problem.skipped for problem in problems)
    assert {Path(problem.file).name: problem.message for problem in problems} == {
        ".git": "is hidden; skipped.",
        "picture.png": "is neither Markdown nor text; skipped.",
        "empty.md": "is empty.",
        "loop": "is a symbolic link to a folder or out of this one; skipped.",
        "secret.md": "is a symbolic link to a folder or out of this one; skipped.",
    }
    assert "linked.md" in documents


def test_front_matter_that_is_no_yaml_is_reported_with_its_line_and_the_text_is_kept(tmp_path: Path):
    (tmp_path / "a.md").write_text("---\ntitle: [unclosed\n---\nThe text.\n")
    documents, problems = read(tmp_path)
    assert problems[0].line == 1
    assert "Front matter is no YAML (line" in problems[0].message
    assert documents["a.md"].nodes[0].abstract == "The text."


def test_a_first_heading_that_has_peers_is_a_section_and_not_the_title(tmp_path: Path):
    (tmp_path / "faq.md").write_text("# One\n\nFirst.\n\n# Two\n\nSecond.\n")
    documents, _ = read(tmp_path)
    assert [node.name for node in documents["faq.md"].nodes] == ["faq", "One", "Two"]


def test_a_single_file_is_a_tree_of_its_own(folder: Path):
    documents, _ = read(folder / "guides" / "setup.md", space="user:alice", name="handbook")
    assert set(documents) == {"setup.md"}
    assert documents["setup.md"].nodes[0].uri == "strata://user:alice/handbook"
    assert documents["setup.md"].nodes[0].parent_uri == ""


def test_a_missing_folder_and_a_wrong_space_are_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="does not exist"):
        MarkdownSource(tmp_path / "nothing")
    with pytest.raises(InvalidUri):
        MarkdownSource(tmp_path, space="No Such Space")

"""``strata ingest``: kinds, reports, exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from contracts.errors import InvalidInput
from corpora.context.dialogue import DialogueSource
from corpora.context.markdown import MarkdownSource
from corpora.context.python_library import PythonLibrarySource
from corpora.context.records import RecordsSource
from deployments.cli.app import app
from deployments.cli.ingest import Kind, make_source
from deployments.settings import Settings


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    embedder = {"backend": "deterministic", "dimensions": 16}
    path.write_text(json.dumps({"data_dir": str(tmp_path / "data"), "embedder": embedder}))
    return path


def strata(config: Path, *arguments: str) -> Result:
    done = CliRunner().invoke(app, ["ingest", *arguments, "--config", str(config)])
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("folder", Kind.AUTO, MarkdownSource),
        ("a.md", Kind.AUTO, MarkdownSource),
        ("a.jsonl", Kind.AUTO, RecordsSource),
        ("a.json", Kind.AUTO, DialogueSource),
        ("a.jsonl", Kind.DIALOGUE, DialogueSource),
        ("a.jsonl", Kind.MARKDOWN, MarkdownSource),
    ],
)
def test_the_kind_is_told_from_the_path_unless_given(tmp_path: Path, name: str, kind: Kind, expected: type) -> None:
    path = tmp_path / name
    path.write_text("{}") if path.suffix else path.mkdir()
    assert isinstance(make_source(str(path), kind, "shared", "", Settings()), expected)


def test_python_means_the_standard_library() -> None:
    source = make_source("python", Kind.AUTO, "shared", "", Settings())
    assert isinstance(source, PythonLibrarySource)
    assert source.source_id == "strata://shared/python"


def test_a_folder_of_python_code_is_read_as_such_when_told_so(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text('"""A tool."""\n')
    source = make_source(str(tmp_path / "tool.py"), Kind.PYTHON, "shared", "mine", Settings())
    assert source.source_id == "strata://shared/mine"


def test_a_path_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        make_source("/no/such/place", Kind.AUTO, "shared", "", Settings())


def test_problems_are_told_by_file_and_line_and_the_rest_goes_on(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"id": 1, "text": "one"}\n{broken\n{"id": 3, "text": "three"}\n')
    done = strata(config, str(path))
    assert done.exit_code == 0
    assert "2 added" in done.stdout
    assert f"{path}, line 2" in done.stderr.replace("\n", "")


def test_a_second_run_finds_nothing_to_do(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"id": 1, "text": "one"}\n')
    strata(config, str(path))
    report = json.loads(strata(config, str(path), "--json").stdout)
    assert (report["added"], report["unchanged"]) == (0, 1)


@pytest.mark.parametrize("content", ["{broken\n", ""])
def test_when_nothing_could_be_ingested_the_exit_code_is_3(tmp_path: Path, config: Path, content: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(content)
    assert strata(config, str(path)).exit_code == 3

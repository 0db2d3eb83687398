"""``strata ingest``: kinds, reports, exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployments.cli.app import app


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


def test_a_path_that_does_not_exist_is_refused(config: Path) -> None:
    done = strata(config, "/no/such/place")
    assert done.exit_code != 0
    assert "does not exist" in done.stderr


def test_a_kind_given_beats_what_the_path_looks_like(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("# A title\n\nNot JSON at all.\n")
    done = strata(config, str(path), "--kind", "markdown", "--source-id", "mine")
    assert done.exit_code == 0
    assert "strata://shared/mine" in done.stdout


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

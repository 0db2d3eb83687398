"""``strata kb``, in a data folder of its own."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deployments.cli.app import app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path / "home"))
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["kb", *arguments])


def strata(*arguments: str) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def found(*arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(strata("search", "party dress", "--json", *arguments))
    return answer


def write(home: Path, name: str, *rows: dict[str, Any]) -> str:
    path = home / name
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


@pytest.fixture
def dress(home: Path) -> None:
    entity = {"entity_id": "dress", "type": "garment", "status": "published", "attrs": {"occasions": ["party"]}}
    strata("import", "entities", write(home, "entities.jsonl", entity))
    strata(
        "import", "chunks", write(home, "chunks.jsonl", {"chunk_id": "c", "entity_id": "dress", "text": "party dress"})
    )


def test_an_import_tells_the_rows_that_it_refused(home: Path) -> None:
    good = {"entity_id": "dress", "type": "garment"}
    path = write(home, "entities.jsonl", good, {"entity_id": "coat"})
    done = invoke("import", "entities", path)
    assert "2 rows read, 1 written, 1 refused." in done.stdout
    assert "line 2 [type]" in done.stderr
    report = json.loads(strata("import", "entities", path, "--json"))
    assert report["refused"] == [{"line": 2, "field": "type", "reason": "type: Field required."}]


def test_an_import_that_writes_nothing_ends_with_3(home: Path) -> None:
    assert invoke("import", "chunks", write(home, "c.jsonl", {"chunk_id": "c"})).exit_code == 3


@pytest.mark.usefixtures("dress")
def test_what_is_imported_is_found_and_what_is_withdrawn_is_not() -> None:
    """K1."""
    assert [each["chunk_id"] for each in found("--type", "garment", "--occasion", "party")["results"]] == ["c"]
    assert found("--filter", "occasion=office")["results"] == []
    assert found("--boost", "c=0.5")["results"][0]["rule_score"] == 0.5
    strata("status", "dress", "--set", "draft")
    assert found()["results"] == []
    strata("status", "dress", "--set", "published")
    assert "dress / c" in strata("search", "party dress")
    assert json.loads(strata("status"))["waiting"] == 0


@pytest.mark.usefixtures("dress")
def test_gaps_are_listed_exported_and_resolved(home: Path) -> None:
    """K5."""
    for _ in range(2):
        invoke("search", "=rain boots", "--occasion", "hiking")
    gap_id = found("--occasion", "swim")["gap_id"]
    assert [group["hit_count"] for group in json.loads(strata("gaps", "list", "--json"))] == [2, 1]
    assert "=rain boots" in strata("gaps", "list", "--no-clusters")
    rows = list(csv.DictReader(io.StringIO(strata("gaps", "export"))))
    assert [row["query_text"] for row in rows] == ["'=rain boots", "party dress"]
    assert json.loads(rows[0]["filter_ctx"]) == {"occasion": ["hiking"]}
    strata("gaps", "export", "--format", "jsonl", "--to", str(home / "gaps.jsonl"))
    assert len((home / "gaps.jsonl").read_text().splitlines()) == 2
    assert "1 resolved." in strata("gaps", "resolve", gap_id, "--note", "done")
    assert invoke("gaps", "resolve", gap_id).exit_code == 1
    assert [gap["note"] for gap in json.loads(strata("gaps", "list", "--resolved", "--json"))] == ["done"]
    assert len(json.loads(strata("gaps", "list", "--no-clusters", "--json"))) == 1


@pytest.mark.usefixtures("dress")
def test_assets_are_imported_and_listed(home: Path) -> None:
    """K6."""
    asset = {"asset_id": "a", "entity_id": "dress", "asset_type": "image", "storage_key": "k", "tryon_ready": True}
    strata("import", "assets", write(home, "assets.jsonl", asset, asset | {"asset_id": "b", "tryon_ready": False}))
    assert [each["asset_id"] for each in json.loads(strata("assets", "dress", "--tryon-ready"))] == ["a"]
    assert len(json.loads(strata("assets", "dress"))) == 2


@pytest.mark.usefixtures("dress")
def test_another_model_finds_after_reembedding_what_the_old_one_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """K4."""
    monkeypatch.setenv("KB_VECTOR_DIMENSIONS", "64")
    assert found()["results"] == []
    report = json.loads(strata("reembed", "--json"))
    assert (report["model"]["dimensions"], report["entities"]) == (64, 1)
    assert len(found()["results"]) == 1
    assert "0 entities embedded anew" in strata("reembed")
    monkeypatch.delenv("KB_VECTOR_DIMENSIONS")
    assert len(found()["results"]) == 1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("search", "x", "--filter", "occasion"), "filter"),
        (("search", "x", "--filter", "colour=red"), "filters"),
        (("search", "x", "--boost", "c=much"), "boost"),
        (("search", "x", "--occasion", ""), "occasion"),
        (("status", "dress"), "set"),
        (("status", "absent", "--set", "draft"), "entity_id"),
        (("import", "entities", "absent.csv"), "path"),
    ],
)
def test_what_is_wrong_is_told_without_a_traceback(arguments: tuple[str, ...], field: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert f"[{field}]" in done.stderr
    assert "Traceback" not in done.stderr

"""``strata calibrate`` and ``strata eval corpus`` on a small collection, as a user runs them."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from corpora.rag.calibration import Calibration
from deployments.cli.app import app

PAGES = {
    "tea": "Green tea is steamed soon after picking and keeps its colour.",
    "coffee": "Coffee beans are roasted until they are brown.",
    "cocoa": "Cocoa beans ferment for a week before they are dried.",
    "hops": "Hops give beer its bitterness and keep it from spoiling.",
}
QUERIES = {"q1": ("why is green tea steamed", "tea"), "q2": ("how long do cocoa beans ferment", "cocoa")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    collection = tmp_path / "drinks"
    collection.mkdir()
    corpus = [{"id": name, "text": text} for name, text in PAGES.items()]
    queries = [{"id": name, "text": text} for name, (text, _) in QUERIES.items()]
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        (collection / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (collection / "qrels.tsv").write_text("".join(f"{name}\t{page}\t1\n" for name, (_, page) in QUERIES.items()))
    return collection


def strata(folder: Path, *arguments: str) -> Result:
    config = folder.parent / "config.yaml"
    settings = {
        "data_dir": str(folder.parent / "data"),
        "embedder": {"name": "deterministic-v1", "backend": "deterministic", "dimensions": 64},
    }
    config.write_text(json.dumps(settings))  # JSON is YAML
    return CliRunner().invoke(app, [*arguments, str(folder), "--config", str(config)])


@pytest.mark.parametrize("model", ["deterministic-v1", "keyword"])
def test_a_curve_is_fitted_and_its_lines_can_be_pasted_into_the_settings(folder: Path, model: str) -> None:
    done = strata(folder, "calibrate", "--embedder", model)
    assert done.exit_code == 0, done.output
    assert "drinks" in done.stdout and "kept at 0.55" in done.stdout
    pasted = yaml.safe_load(done.stdout[done.stdout.index("corpora:") :])
    curve = Calibration(**pasted["corpora"]["calibrations"][model])
    told = json.loads(strata(folder, "calibrate", "--embedder", model, "--json").stdout)
    assert (told["model"], told["slope"], told["midpoint"]) == (model, curve.slope, curve.midpoint)
    ((kept,)) = told["sets"]
    assert (kept["relevant"], kept["relevant_kept"]) == (2, 1.0)


def test_a_set_that_can_not_be_judged_is_told_with_a_remedy(folder: Path) -> None:
    (folder / "qrels.tsv").write_text("q1\thops\t0\n")
    done = strata(folder, "calibrate")
    assert done.exit_code == 1
    assert "→" in done.stderr and "Traceback" not in done.output


def test_a_corpus_is_measured_on_both_paths(folder: Path) -> None:
    done = strata(folder, "eval", "corpus", "--embedder", "deterministic-v1", "--json", "-")
    assert done.exit_code == 0, done.output
    ((report,)) = json.loads(done.stdout)
    assert (report["corpus"], report["queries"]) == ("web", 2)
    assert [(column["path"], column["quality"]["recall"]) for column in report["columns"][:1]] == [("rag", 1.0)]

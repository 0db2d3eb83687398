"""A small collection through a corpus, from what its callers send to what they get."""

from pathlib import Path

import msgspec
import pytest

from corpora.rag.calibration import Calibration
from corpora.rag.config import CorporaConfig
from evaluation.corpora import CorpusReport, evaluate_corpus
from evaluation.datasets import load
from models.deterministic import NAME, DeterministicEmbedder
from tests.unit.test_evaluation_runner import PARTS, dialogue, records

__all__ = ["dialogue", "records"]

# Nothing with a word of the query lies below the threshold, and nothing without one reaches it.
CURVES = {NAME: Calibration(slope=500, midpoint=0.2), "keyword": Calibration(slope=500, midpoint=0.2)}


async def run(folder: Path, work: Path) -> CorpusReport:
    config = CorporaConfig(calibrations=CURVES)
    return await evaluate_corpus(folder, load(folder), DeterministicEmbedder(256), PARTS, work, config=config)


@pytest.mark.parametrize(("name", "corpus"), [("records", "web"), ("dialogue", "memory")])
async def test_both_paths_find_the_documents_with_and_without_a_threshold(
    name: str, corpus: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report = await run(request.getfixturevalue(name), tmp_path / "work")
    assert (report.corpus, report.queries, report.model) == (corpus, 2, f"{NAME}@1")
    assert [(column.path, column.threshold) for column in report.columns] == [
        ("rag", 0.0),
        ("rag", 0.55),
        ("keyword", 0.0),
        ("keyword", 0.55),
    ]
    assert {column.quality.ndcg for column in report.columns} == {1.0}
    by_graph, by_graph_above, by_words, _ = (column.hits for column in report.columns)
    assert by_graph > by_graph_above >= 1 and by_words >= 1
    assert report.miss_ms > 0 and report.hit_ms > 0


async def test_a_second_run_ingests_nothing_and_finds_the_same(records: Path, tmp_path: Path) -> None:
    first, second = [await run(records, tmp_path / "work") for _ in range(2)]
    steady = {"ingest_s": 0.0, "miss_ms": 0.0, "hit_ms": 0.0}
    assert msgspec.structs.replace(first, **steady) == msgspec.structs.replace(second, **steady)

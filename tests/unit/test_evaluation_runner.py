"""A small collection through the real ingest, index and stages."""

import json
from pathlib import Path

import msgspec
import pytest

from contracts.errors import InvalidInput
from evaluation.collection import place, source_of
from evaluation.datasets import load
from evaluation.runner import CHINESE, ENGLISH, Parts, Report, embedder_for, evaluate
from index.embedded.config import EmbeddedConfig
from index.ingest import IngestConfig
from models.deterministic import DeterministicEmbedder
from stages.expander import ExpanderConfig
from stages.reranker import RerankerConfig
from stages.scoring import ScoringConfig
from stages.seed_search import SeedSearchConfig

PARTS = Parts(
    ingest=IngestConfig(),
    embedded=EmbeddedConfig(),
    seed_search=SeedSearchConfig(),
    expander=ExpanderConfig(),
    scoring=ScoringConfig(),
    reranker=RerankerConfig(),
)
DOCS = [
    {"id": "d/1", "title": "Cats", "text": "Cats sleep most of the day."},
    {"id": "d/2", "title": "Dogs", "text": "Dogs bark at strangers. " + "They guard the house and the yard. " * 120},
]
TURNS = [
    {"id": f"{conv}/D1:{n}", "title": "1:56 pm on 8 May, 2023", "text": f"Ann: {text}", "conv": conv}
    for conv in ("c1", "c2")
    for n, text in enumerate(("I adopted a cat.", "The weather is fine."), 1)
]


def write(folder: Path, docs: list[dict[str, str]], queries: list[dict[str, str]], qrels: str) -> Path:
    folder.mkdir()
    for name, rows in (("corpus.jsonl", docs), ("queries.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels.tsv").write_text(qrels)
    return folder


@pytest.fixture
def records(tmp_path: Path) -> Path:
    queries = [{"id": "q1", "text": "sleeping cats"}, {"id": "q2", "text": "guard the yard"}]
    return write(tmp_path / "records", DOCS, queries, "q1\td/1\t1\nq2\td/2\t1\n")


@pytest.fixture
def dialogue(tmp_path: Path) -> Path:
    queries = [{"id": f"{conv}/q", "text": "Who adopted a cat?", "conv": conv} for conv in ("c1", "c2")]
    return write(tmp_path / "dialogue", TURNS, queries, "c1/q\tc1/D1:1\t1\nc2/q\tc2/D1:1\t1\n")


async def run(folder: Path, work: Path) -> Report:
    return await evaluate(folder, load(folder), DeterministicEmbedder(32), PARTS, work)


async def test_a_long_document_is_found_by_its_chunks(records: Path, tmp_path: Path) -> None:
    report = await run(records, tmp_path / "work")
    assert report.nodes > report.documents == 2
    assert {column.name: column.quality.ndcg for column in report.columns}["BM25"] == 1.0


async def test_a_query_finds_turns_of_its_own_conversation_only(dialogue: Path, tmp_path: Path) -> None:
    report = await run(dialogue, tmp_path / "work")
    quality = {column.name: column.quality for column in report.columns}
    # The same turn is in both conversations: without the restriction one of two queries would find the wrong one first.
    assert quality["BM25"].ndcg == 1.0
    assert quality["+ expansion"].recall == 1.0


async def test_a_second_run_uses_the_index_that_is_there(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await run(records, tmp_path / "work")
    embedded: list[int] = []
    embed = DeterministicEmbedder.embed

    async def counting(self: DeterministicEmbedder, texts: list[str], role: str) -> object:
        embedded.append(len(texts) if role == "passage" else 0)
        return await embed(self, texts, role)  # type: ignore[arg-type]

    monkeypatch.setattr(DeterministicEmbedder, "embed", counting)
    second = await run(records, tmp_path / "work")
    assert sum(embedded) == 0
    assert [column.quality for column in second.columns] == [column.quality for column in first.columns]


def test_every_document_has_a_place(dialogue: Path) -> None:
    dataset = load(dialogue)
    placed = place(dataset, source_of(dialogue, dataset, IngestConfig()))
    assert sorted(placed.documents.values()) == sorted(turn["id"] for turn in TURNS)
    assert placed.targets == {"c1": "strata://shared/dialogue/c1", "c2": "strata://shared/dialogue/c2"}


def test_a_document_that_the_source_refuses_is_an_error(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "bad", [*DOCS, {"id": "d/3", "title": "", "text": ""}], [{"id": "q", "text": "?"}], "q\td/1\t1\n"
    )
    dataset = load(folder)
    with pytest.raises(InvalidInput, match="line 3"):
        place(dataset, source_of(folder, dataset, IngestConfig()))


@pytest.mark.parametrize(
    ("text", "model"), [("Cats sleep.", ENGLISH), ("猫整天都在睡觉。", CHINESE), ("RET-4001 表示查询为空", CHINESE)]
)
def test_the_model_follows_the_language_of_the_corpus(records: Path, text: str, model: str) -> None:
    dataset = load(records)
    passage = dataset.passages[0]
    changed = msgspec.structs.replace(dataset, passages=(msgspec.structs.replace(passage, text=text),))
    assert embedder_for(changed) == model

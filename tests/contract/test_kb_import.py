"""Import of entities, chunks and assets on both dialects."""

import json
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import InvalidInput
from contracts.records import ModelRef
from corpora.knowledge_base import importing
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.importing import Importer, ImportReport, Kind
from corpora.knowledge_base.store import Store
from corpora.knowledge_base.types import Asset, Entity
from database.engine import Database

ENTITIES = """entity_id,type,status,name,attrs.occasions,attrs
dress,garment,published,红裙,party;婚礼,"{""avoid_body_shapes"": [""apple""]}"
,garment,published,,,
coat,garment,sold,,,
boots,shoe,,,,"{""colour"": ""red""}"
hat,garment,draft,,,not json
scarf,garment,draft,,office
shirt,garment,draft,"two
lines",office,
"""


@pytest.fixture
def importer(database: Database) -> Importer:
    return Importer(Store(database), ModelRef("deterministic-v1", "1", 8), KnowledgeBaseConfig())


async def run(importer: Importer, tmp_path: Path, kind: Kind, name: str, text: str) -> ImportReport:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8-sig")
    return await importer.run("acme", kind, path)


def lines(*rows: Any) -> str:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)


def refusals(report: ImportReport) -> list[tuple[int, str]]:
    return [(row.line, row.field) for row in report.refused]


async def test_good_rows_of_a_csv_are_written_and_bad_ones_told_by_line_field_and_reason(
    importer: Importer, database: Database, tmp_path: Path
) -> None:
    report = await run(importer, tmp_path, "entities", "entities.csv", ENTITIES)
    assert (report.read, report.written, report.refused_count) == (7, 2, 5)
    assert refusals(report) == [(3, "entity_id"), (4, "status"), (5, "attrs.colour"), (6, "attrs"), (7, "")]
    assert all(row.reason for row in report.refused)
    found = await Store(database).entities("acme", ["dress", "shirt", "coat", "boots", "hat", "scarf"])
    assert set(found) == {"dress", "shirt"}
    dress = found["dress"]
    assert (dress.name, dress.status) == ("红裙", "published")
    assert dress.attrs == {"occasions": ["party", "婚礼"], "avoid_body_shapes": ["apple"]}
    assert found["shirt"].name == "two\nlines"


async def test_rows_of_json_lines_are_told_apart_the_same_way(
    importer: Importer, database: Database, tmp_path: Path
) -> None:
    text = lines(
        {"entity_id": "dress", "type": "garment", "status": "published", "attrs": {"occasions": "party"}},
        "",
        "not json",
        ["a list"],
        {"entity_id": "coat", "type": "garment", "prise": 3},
        {"entity_id": "a/b", "type": "garment"},
        {"entity_id": "hat", "type": "garment", "attrs": {"occasions": [1]}},
        {"entity_id": "x\u0000", "type": "garment"},
    )
    report = await run(importer, tmp_path, "entities", "entities.jsonl", text)
    assert (report.read, report.written) == (7, 1)
    assert refusals(report) == [
        (3, ""),
        (4, ""),
        (5, "prise"),
        (6, "entity_id"),
        (7, "attrs.occasions"),
        (8, "entity_id"),
    ]
    assert (await Store(database).entities("acme", ["dress"]))["dress"].attrs == {"occasions": ["party"]}


async def test_chunks_and_assets_need_their_entity(importer: Importer, database: Database, tmp_path: Path) -> None:
    """K4, K6."""
    store = Store(database)
    await store.put_entities("acme", [Entity("dress", "garment", "published")])
    chunks = lines(
        {"chunk_id": "c1", "entity_id": "dress", "text": "silk"},
        {"chunk_id": "c2", "entity_id": "absent", "text": "wool"},
        {"chunk_id": "c3", "entity_id": "dress", "text": "  "},
    )
    report = await run(importer, tmp_path, "chunks", "chunks.jsonl", chunks)
    assert (report.written, refusals(report)) == (1, [(2, "entity_id"), (3, "text")])
    (chunk,) = await store.chunks("acme", "dress")
    assert (chunk.embedding_model, chunk.embedding_version) == ("deterministic-v1", "1")
    assets = (
        "asset_id,entity_id,asset_type,storage_key,spec_check,tryon_ready,licence\n"
        'a,dress,image,cos/a.png,"{""width"": 1024}",true,CC-BY-4.0\n'
        "b,absent,image,cos/b.png,,,\n"
        "c,dress,image,cos/c.png,,maybe,\n"
    )
    report = await run(importer, tmp_path, "assets", "assets.csv", assets)
    assert (report.written, refusals(report)) == (1, [(3, "entity_id"), (4, "tryon_ready")])
    expected = Asset("a", "dress", "image", "cos/a.png", {"width": 1024}, True, "pending", "CC-BY-4.0")
    assert await store.assets("acme", "dress", tryon_ready=True) == [expected]


async def test_a_file_of_many_pages_reports_all_and_names_a_part(
    importer: Importer, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "PAGE", 7)
    monkeypatch.setattr(importing, "_MAX_NAMED", 3)
    rows = [{"entity_id": f"e{i}", "type": "garment" if i % 4 else ""} for i in range(40)]
    report = await run(importer, tmp_path, "entities", "entities.jsonl", lines(*rows))
    assert (report.read, report.written, report.refused_count, len(report.refused)) == (40, 30, 10, 3)
    assert len(await Store(database).entities("acme", [row["entity_id"] for row in rows])) == 30


async def test_a_file_that_cannot_be_read_is_an_error(importer: Importer, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        await importer.run("acme", "entities", tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes(b"entity_id,type\n\xff,x\n")
    with pytest.raises(InvalidInput, match="UTF-8"):
        await importer.run("acme", "entities", tmp_path / "latin.csv")

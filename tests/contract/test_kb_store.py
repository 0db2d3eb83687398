"""The tables of the knowledge base on both dialects."""

import asyncio
import random
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError

from contracts.errors import InvalidInput
from contracts.records import ModelRef
from corpora.knowledge_base.gaps import Gaps
from corpora.knowledge_base.store import Store
from corpora.knowledge_base.types import Asset, ChunkText, Entity
from database.engine import Database
from database.tables import kb_chunks, kb_outbox

MODEL, NEWER = ModelRef("deterministic-v1", "1", 8), ModelRef("deterministic-v1", "2", 8)


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


def dress(entity_id: str = "dress", **fields: Any) -> Entity:
    return Entity(entity_id, "garment", **{"attrs": {"occasions": ["party"]}, "status": "published", **fields})


async def noted(database: Database) -> dict[str, int]:
    """The outbox: entities and how often they were noted."""
    async with database.reading() as connection:
        rows = await connection.execute(select(kb_outbox.c.entity_id, kb_outbox.c.version))
        return dict(rows.tuples().all())


async def forget(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(kb_outbox.delete())


async def test_an_entity_comes_back_as_it_was_written_and_is_noted_for_the_index(
    store: Store, database: Database
) -> None:
    given = dress(name="红裙", attrs={"occasions": ["party", "婚礼"], "price": 12.5}, updated_at=7)
    assert await store.put_entities("acme", [given]) == 1
    assert await store.entities("acme", ["dress", "absent"]) == {"dress": given}
    assert await store.entities("rival", ["dress"]) == {}
    assert await noted(database) == {"dress": 1}


async def test_writing_the_same_again_changes_nothing(store: Store, database: Database) -> None:
    """So an import that is repeated embeds nothing anew."""
    await store.put_entities("acme", [dress()])
    await store.put_chunks("acme", [ChunkText("c", "dress", "silk")], MODEL)
    before, _ = await store.entities("acme", ["dress"]), await forget(database)
    assert await store.put_entities("acme", [dress()]) == 0
    await store.put_chunks("acme", [ChunkText("c", "dress", "silk")], MODEL)
    assert await store.entities("acme", ["dress"]) == before
    assert await noted(database) == {}


@pytest.mark.parametrize("change", ["put", "status", "chunk", "chunk gone", "gone"])
async def test_every_change_is_noted_in_its_own_transaction(store: Store, database: Database, change: str) -> None:
    await store.put_entities("acme", [dress(), dress("coat")])
    await store.put_chunks("acme", [ChunkText("c", "dress", "silk")], MODEL)
    await forget(database)
    match change:
        case "put":
            await store.put_entities("acme", [dress(name="new"), dress("coat")])
        case "status":
            assert await store.set_status("acme", ["dress", "absent"], "draft") == {"dress"}
        case "chunk":
            await store.put_chunks("acme", [ChunkText("c", "dress", "satin")], MODEL)
        case "chunk gone":
            assert await store.delete_chunks("acme", ["c", "absent"]) == 1
        case "gone":
            assert await store.delete_entities("acme", ["dress", "absent"]) == {"dress"}
    assert await noted(database) == {"dress": 1}


async def test_an_entity_takes_its_chunks_and_assets_with_it(store: Store) -> None:
    await store.put_entities("acme", [dress()])
    await store.put_chunks("acme", [ChunkText("c", "dress", "silk")], MODEL)
    await store.put_assets("acme", [Asset("a", "dress", "image", "cos/a.png")])
    await store.delete_entities("acme", ["dress"])
    assert await store.chunks("acme", "dress") == []
    assert await store.assets("acme", "dress") == []


async def test_chunks_carry_model_and_version_of_their_vectors(store: Store) -> None:
    """K4, acceptance 1: another version means another vector."""
    await store.put_entities("acme", [dress()])
    await store.put_chunks("acme", [ChunkText("c", "dress", "silk")], MODEL)
    await store.put_chunks("acme", [ChunkText("d", "dress", "wool")], NEWER)
    found = {
        each.chunk_id: (each.embedding_model, each.embedding_version) for each in await store.chunks("acme", "dress")
    }
    assert found == {"c": ("deterministic-v1", "1"), "d": ("deterministic-v1", "2")}


@pytest.mark.parametrize("column", ["embedding_model", "embedding_version"])
@pytest.mark.parametrize("value", ["", None])
async def test_no_chunk_is_kept_without_model_and_version(
    store: Store, database: Database, column: str, value: str | None
) -> None:
    """K4: a vector without a version could not be made again."""
    await store.put_entities("acme", [dress()])
    row = {"account_id": "acme", "chunk_id": "c", "entity_id": "dress", "chunk_type": "text", "text": "silk"}
    with pytest.raises(IntegrityError):
        async with database.writing() as connection:
            marks = {"embedding_model": "m", "embedding_version": "1", column: value}
            await connection.execute(kb_chunks.insert().values(**row, **marks))


async def test_a_chunk_needs_its_entity_and_stays_with_it(store: Store, database: Database) -> None:
    await store.put_entities("acme", [dress(), dress("coat")])
    await store.put_chunks("acme", [ChunkText("c", "dress", "silk")], MODEL)
    await forget(database)
    with pytest.raises(InvalidInput, match="no such entity"):
        await store.put_chunks("acme", [ChunkText("d", "dress", "x"), ChunkText("e", "absent", "y")], MODEL)
    with pytest.raises(InvalidInput, match="Another entity"):
        await store.put_chunks("acme", [ChunkText("c", "coat", "wool")], MODEL)
    assert [each.chunk_id for each in await store.chunks("acme", "dress")] == ["c"]
    assert await noted(database) == {}
    refused = await store.put_chunks(
        "acme", [ChunkText("e", "absent", "y"), ChunkText("d", "dress", "x"), ChunkText("d", "coat", "z")], MODEL,
        partial=True,
    )  # fmt: skip
    assert {position: error.field for position, error in refused.items()} == {0: "entity_id", 2: "chunk_id"}
    assert [each.chunk_id for each in await store.chunks("acme", "dress")] == ["c", "d"]


async def test_replacing_the_chunks_of_an_entity_removes_the_others(store: Store) -> None:
    await store.put_entities("acme", [dress()])
    await store.put_chunks("acme", [ChunkText("a", "dress", "silk"), ChunkText("b", "dress", "red")], MODEL)
    await store.replace_chunks(
        "acme", "dress", [ChunkText("b", "dress", "blue"), ChunkText("c", "dress", "new")], MODEL
    )
    assert {each.chunk_id: each.text for each in await store.chunks("acme", "dress")} == {"b": "blue", "c": "new"}


async def test_only_chunks_of_published_entities_of_the_account_and_types_are_live(store: Store) -> None:
    """K1."""
    entities = [dress(), dress("draft", status="draft"), dress("old", status="archived")]
    await store.put_entities("acme", [*entities, Entity("tip", "advice", "published")])
    await store.put_entities("rival", [dress()])
    await store.put_chunks(
        "acme", [ChunkText(f"of-{name}", name, "x") for name in ("dress", "draft", "old", "tip")], MODEL
    )
    await store.put_chunks("rival", [ChunkText("of-rival", "dress", "x")], MODEL)
    ids = ["of-dress", "of-draft", "of-old", "of-tip", "of-rival", "absent"]
    assert set(await store.live("acme", ids, ())) == {"of-dress", "of-tip"}
    assert set(await store.live("acme", ids, ("advice", "recipe"))) == {"of-tip"}
    assert set(await store.live("rival", ids, ())) == {"of-rival"}


async def test_assets_are_asked_for_by_entity_and_for_those_that_can_be_tried_on(store: Store) -> None:
    """K6, acceptance: test 4 of seed 4."""
    await store.put_entities("acme", [dress(), dress("coat")])
    ready = Asset("a", "dress", "image", "cos/a.png", {"width": 1024}, True, "approved", "CC-BY-4.0")
    raw = Asset("b", "dress", "image", "cos/b.png")
    await store.put_assets("acme", [raw, ready, Asset("c", "coat", "image", "cos/c.png", tryon_ready=True)])
    assert await store.assets("acme", "dress") == [ready, raw]
    assert await store.assets("acme", "dress", tryon_ready=True) == [ready]
    assert await store.assets("acme", "dress", tryon_ready=False) == [raw]
    assert await store.assets("rival", "dress") == []
    await store.delete_assets("acme", ["a", "absent"])
    assert await store.assets("acme", "dress") == [raw]
    with pytest.raises(InvalidInput):
        await store.put_assets("acme", [Asset("d", "absent", "image", "cos/d.png")])


async def test_the_partial_index_serves_the_question_for_assets_that_can_be_tried_on(
    store: Store, database: Database
) -> None:
    """K6: the index holds those alone."""
    sqlite = database.dialect == "sqlite"
    question = "SELECT asset_id FROM kb_assets WHERE account_id = 'a' AND entity_id = 'e' AND tryon_ready"
    async with database.reading() as connection:
        if not sqlite:
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        explain = "EXPLAIN QUERY PLAN " if sqlite else "EXPLAIN "
        plan = str((await connection.execute(text(f"{explain}{question}{' = 1' if sqlite else ''}"))).all())
    assert "ix_kb_assets_tryon_ready" in plan


async def test_a_hundred_at_once_count_to_a_hundred(database: Database) -> None:
    """K5: the count is exact."""
    gaps = Gaps(database)
    await asyncio.gather(*(gaps.record("acme", "rain boots", {"occasion": ["hiking"]}) for _ in range(100)))
    (gap,) = await gaps.list("acme")
    assert gap.hit_count == 100


async def test_a_gap_is_one_for_text_and_filters_and_lists_go_by_hits(database: Database) -> None:
    """K5, acceptance 4."""
    gaps = Gaps(database)
    first = await gaps.record("acme", "rain boots", {"entity_types": ["shoe"], "occasion": ["hiking"]})
    again = await gaps.record("acme", "rain boots", {"occasion": ["hiking"], "entity_types": ["shoe"]})
    other = await gaps.record("acme", "rain boots", {})
    await gaps.record("rival", "rain boots", {})
    assert (again.gap_id, again.hit_count, again.first_seen_at) == (first.gap_id, 2, first.first_seen_at)
    assert (other.hit_count, other.gap_id != first.gap_id) == (1, True)
    assert [gap.hit_count for gap in await gaps.list("acme")] == [2, 1]
    assert await gaps.list("acme", limit=1) == [again]
    assert again.filter_ctx == {"entity_types": ["shoe"], "occasion": ["hiking"]}


async def test_a_resolved_gap_leaves_the_list_and_comes_back_when_it_is_asked_again(database: Database) -> None:
    gaps = Gaps(database)
    gap = await gaps.record("acme", "rain boots", {})
    assert await gaps.resolve("rival", [gap.gap_id]) == 0
    assert await gaps.resolve("acme", [gap.gap_id, "absent"], "wrote an article") == 1
    assert await gaps.resolve("acme", [gap.gap_id]) == 0
    assert await gaps.list("acme") == []
    (closed,) = await gaps.list("acme", resolved=True)
    assert (closed.note, closed.resolved_at > 0) == ("wrote an article", True)
    assert (await gaps.record("acme", "rain boots", {})).hit_count == 2
    assert [each.resolved_at for each in await gaps.list("acme")] == [0]


async def test_what_fails_half_way_leaves_neither_a_change_nor_a_note(store: Store, database: Database) -> None:
    """The change and the work it makes are one transaction."""
    await store.put_entities("acme", [dress()])
    await forget(database)
    with pytest.raises(InvalidInput):
        await store.replace_chunks(
            "acme", "dress", [ChunkText("c", "dress", "x"), ChunkText("d", "absent", "y")], MODEL
        )
    async with database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(kb_chunks)) == 0
    assert await noted(database) == {}


async def test_writers_in_any_order_never_wait_for_each_other(store: Store, database: Database) -> None:
    """Rows are locked in one order; a deadlock would end one of the transactions."""
    names = [f"e{i}" for i in range(12)]
    chance = random.Random(3)

    def shuffled() -> list[str]:
        return chance.sample(names, len(names))

    await store.put_entities("acme", [dress(name) for name in names])

    async def write(turn: int) -> None:
        match turn % 3:
            case 0:
                await store.put_entities("acme", [dress(name, name=f"{turn}") for name in shuffled()])
            case 1:
                await store.put_chunks("acme", [ChunkText(f"c-{n}", n, f"{turn}") for n in shuffled()], MODEL)
            case 2:
                await store.set_status("acme", shuffled(), "draft" if turn % 2 else "published")

    await asyncio.gather(*(write(turn) for turn in range(30)))
    assert (await noted(database)).keys() == set(names)

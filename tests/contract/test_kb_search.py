"""Hybrid search over both index backends: the hard filters leak nothing (K1, K2, K5)."""

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.context import RequestContext
from contracts.ports import WritableIndex
from corpora.knowledge_base.types import ChunkText, Entity, SearchOutcome
from database.config import DatabaseConfig
from database.engine import Database
from tests.support.kb import ACME, RIVAL, Base, base_over

QUERY = "what to wear at an evening party"
OCCASIONS, SHAPES, TYPES = ("party", "office", "gym"), ("apple", "pear", "hourglass"), ("garment", "advice")


@pytest.fixture(scope="module")
async def sqlite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Database]:
    path: Path = tmp_path_factory.mktemp("kb") / "strata.db"
    database = await Database.open(f"sqlite:///{path}", DatabaseConfig())
    yield database
    await database.close()


@pytest.fixture(scope="module")
def shared(shared_index: WritableIndex, sqlite: Database) -> Base:
    """One for all examples; each keeps to an account of its own."""
    return base_over(shared_index, sqlite)


@pytest.fixture
async def base(index: WritableIndex, tmp_path: Path) -> AsyncIterator[Base]:
    database = await Database.open(f"sqlite:///{tmp_path / 'strata.db'}", DatabaseConfig())
    yield base_over(index, database)
    await database.close()


@dataclass(frozen=True)
class Asked:
    """A search's narrowing."""

    entity_types: tuple[str, ...]
    occasion: str | None
    body_shape: str | None

    def allows(self, entity: Entity) -> bool:
        """K1 in plain words."""
        return (
            entity.status == "published"
            and (not self.entity_types or entity.type in self.entity_types)
            and (self.occasion is None or self.occasion in entity.attrs.get("occasions", []))
            and (self.body_shape is None or self.body_shape not in entity.attrs.get("avoid_body_shapes", []))
        )


def some(values: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), unique=True, max_size=len(values))


ATTRS = st.fixed_dictionaries(
    {}, optional={"occasions": st.just(list(OCCASIONS)) | some(OCCASIONS), "avoid_body_shapes": some(SHAPES)}
)
BODIES = st.tuples(st.sampled_from(TYPES), st.sampled_from(["draft", "published", "published", "archived"]), ATTRS)
ASKED = st.builds(
    Asked,
    st.sampled_from([(), TYPES, ("garment",), ("advice",)]),
    st.sampled_from([None, *OCCASIONS]),
    st.sampled_from([*SHAPES, None]),
)


HOW = ("keep", "withdraw", "taboo", "occasion", "type")


def changed(entity: Entity, how: str, asked: Asked) -> Entity:
    """The entity after a change that, but for ``keep``, may make it a forbidden one."""
    attrs = dict(entity.attrs)
    match how:
        case "withdraw":
            return msgspec.structs.replace(entity, status="draft")
        case "taboo":
            attrs["avoid_body_shapes"] = [asked.body_shape or "apple"]
        case "occasion":
            attrs["occasions"] = [each for each in OCCASIONS if each != asked.occasion]
        case "type":
            return msgspec.structs.replace(entity, type="advice" if entity.type == "garment" else "garment")
    return msgspec.structs.replace(entity, attrs=attrs)


def entities_of(bodies: list[tuple[str, Any, dict[str, list[str]]]]) -> list[Entity]:
    return [Entity(f"e{i}", kind, status, attrs=attrs) for i, (kind, status, attrs) in enumerate(bodies)]


async def search(base: Base, ctx: RequestContext, asked: Asked, top_k: int = 50) -> SearchOutcome:
    return await base.kb.search(QUERY, ctx, asked.entity_types, asked.occasion, asked.body_shape, top_k=top_k)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(BODIES, min_size=6, max_size=8), st.lists(st.sampled_from(HOW), min_size=8, max_size=8), ASKED)
async def test_what_is_forbidden_never_shows_though_it_is_the_nearest(
    shared: Base, bodies: list[Any], how: list[str], asked: Asked
) -> None:
    """K1, acceptance 2: all that is allowed and nothing else, with the index up to date and with an index that lags.

    Every forbidden entity has a chunk that is the very query, so that nothing can be nearer.
    """
    ctx = RequestContext(f"account-{uuid.uuid4().hex}")
    entities = entities_of(bodies)
    await shared.kb.put_entities(ctx, entities)
    planted = [QUERY if not asked.allows(each) else f"unlike it {i}" for i, each in enumerate(entities)]
    chunks = [
        ChunkText(f"{each.entity_id}-0", each.entity_id, text) for each, text in zip(entities, planted, strict=True)
    ]
    await shared.kb.upsert_chunks(ctx, chunks)
    await shared.worker.drain()
    outcome = await search(shared, ctx, asked)
    assert {each.entity_id for each in outcome.results} == {each.entity_id for each in entities if asked.allows(each)}

    # Some change, and the index is not told.
    after = [changed(entity, each, asked) for entity, each in zip(entities, how, strict=False)]
    await shared.kb.put_entities(ctx, after)
    allowed_now = {each.entity_id for each in after if asked.allows(each)}
    assert {each.entity_id for each in (await search(shared, ctx, asked)).results} <= allowed_now
    await shared.worker.drain()
    assert {each.entity_id for each in (await search(shared, ctx, asked)).results} == allowed_now


async def test_a_normal_entity_is_found_and_a_draft_and_a_forbidden_one_are_not(base: Base) -> None:
    """Integration test 1 of seed 4."""
    await base.add(Entity("taboo", "garment", "published", attrs={"avoid_body_shapes": ["apple"]}), QUERY)
    await base.add(Entity("draft", "garment", "draft"), QUERY)
    await base.add(Entity("normal", "garment", "published", attrs={"occasions": ["party"]}), "a long red dress")
    await base.worker.drain()
    outcome = await base.kb.search(QUERY, ACME, body_shape="apple")
    assert [each.entity_id for each in outcome.results] == ["normal"]
    assert (outcome.degraded, outcome.gap_id) == (False, "")


async def test_words_alone_find_a_chunk(base: Base) -> None:
    """Integration test 2 of seed 4: hashed vectors have no meaning, so it is the words that lift it."""
    await base.add(Entity("dress", "garment", "published"), "a sleeveless chiffon dress")
    await base.add(Entity("coat", "garment", "published"), "a heavy winter coat")
    await base.worker.drain()
    first, *_ = (await base.kb.search("chiffon", ACME)).results
    assert (first.chunk_id, first.kw_score > 0) == ("dress-0", True)


async def test_chinese_words_find_a_chunk(base: Base) -> None:
    await base.add(Entity("裙", "服饰", "published", name="连衣裙"), "无袖雪纺连衣裙，适合夏日聚会")
    await base.add(Entity("外套", "服饰", "published"), "厚重的冬季外套")
    await base.worker.drain()
    first, *_ = (await base.kb.search("雪纺裙子", ACME, ["服饰"])).results
    assert (first.entity_id, first.kw_score > 0) == ("裙", True)


async def test_a_question_without_an_answer_becomes_a_gap_and_counts(base: Base) -> None:
    """Integration test 3 of seed 4 (K5)."""
    await base.add(Entity("dress", "garment", "published", attrs={"occasions": ["party"]}), "a long red dress")
    await base.worker.drain()
    first = await base.kb.search("rain boots", ACME, occasion="hiking")
    second = await base.kb.search("rain boots", ACME, occasion="hiking")
    assert (first.results, first.degraded, first.retryable) == ((), True, False)
    assert first.reasons[0].reason.startswith("NO_RESULT")
    assert first.gap_id == second.gap_id != ""
    (gap,) = await base.kb.list_gaps(ACME)
    assert (gap.query_text, gap.filter_ctx, gap.hit_count) == ("rain boots", {"occasion": ["hiking"]}, 2)
    assert await base.kb.list_gaps(RIVAL) == []


async def test_the_final_score_of_a_result_is_the_formula_of_its_parts(base: Base) -> None:
    """K2: what a caller is told adds up."""
    await base.add(Entity("dress", "garment", "published"), QUERY, "a long red dress", "evening party shoes")
    await base.worker.drain()
    outcome = await base.kb.search(QUERY, ACME, rule_boost={"dress-1": 0.5})
    assert len(outcome.results) == 3
    for each in outcome.results:
        parts = 0.45 * each.vec_score + 0.2 * each.kw_score + 0.25 * each.rule_score + 0.1 * each.freshness
        assert each.final_score == pytest.approx(parts)
    assert [each.final_score for each in outcome.results] == sorted(
        (e.final_score for e in outcome.results), reverse=True
    )
    top = outcome.results[0]
    assert (top.chunk_id, round(top.vec_score, 3)) == ("dress-0", 1.0)
    assert {each.chunk_id: each.rule_score for each in outcome.results}["dress-1"] == 0.5


async def test_a_rule_lifts_a_chunk_above_its_betters(base: Base) -> None:
    await base.add(Entity("dress", "garment", "published"), "party dress one", "party dress two")
    await base.worker.drain()
    for favoured in ("dress-0", "dress-1"):
        outcome = await base.kb.search("party dress", ACME, rule_boost={favoured: 1.0}, top_k=1)
        assert [each.chunk_id for each in outcome.results] == [favoured]


async def test_withdrawing_takes_effect_with_the_next_search_and_the_list_is_filled_up(base: Base) -> None:
    """K1: the index is not told; as many as asked for come back all the same."""
    names = [f"e{i:02}" for i in range(12)]
    for name in names:
        await base.add(Entity(name, "garment", "published"), f"party {name}")
    await base.worker.drain()
    shown = [each.entity_id for each in (await base.kb.search("party", ACME, top_k=5)).results]
    await base.kb.set_status(ACME, shown, "draft")
    left = [each.entity_id for each in (await base.kb.search("party", ACME, top_k=5)).results]
    assert (len(left), set(left) & set(shown)) == (5, set())


async def test_a_search_looks_deeper_when_all_that_it_saw_was_withdrawn(index: WritableIndex, tmp_path: Path) -> None:
    database = await Database.open(f"sqlite:///{tmp_path / 'strata.db'}", DatabaseConfig())
    base = base_over(index, database, candidates=2, top_k=2)
    nearest = [f"near{i}" for i in range(6)]
    for name in nearest:
        await base.add(Entity(name, "garment", "published"), QUERY)
    await base.add(Entity("far", "garment", "published"), "something else")
    await base.worker.drain()
    await base.kb.set_status(ACME, nearest, "archived")
    assert [each.entity_id for each in (await base.kb.search(QUERY, ACME)).results] == ["far"]
    await database.close()


async def test_accounts_see_nothing_of_one_another(base: Base) -> None:
    await base.add(Entity("dress", "garment", "published"), QUERY)
    await base.add(Entity("dress", "garment", "published"), QUERY, ctx=RIVAL)
    await base.worker.drain()
    await base.kb.set_status(ACME, ["dress"], "draft")
    assert (await base.kb.search(QUERY, ACME)).results == ()
    assert [each.entity_id for each in (await base.kb.search(QUERY, RIVAL)).results] == ["dress"]


async def test_a_chunk_shows_the_text_that_it_has_now(base: Base) -> None:
    await base.add(Entity("dress", "garment", "published"), "party dress, old text")
    await base.worker.drain()
    await base.kb.upsert_chunks(ACME, [ChunkText("dress-0", "dress", "party dress, new text")])
    assert [each.text for each in (await base.kb.search("party", ACME)).results] == ["party dress, new text"]


async def test_a_secret_in_a_chunk_is_masked(base: Base) -> None:
    await base.add(Entity("note", "advice", "published"), "party API_TOKEN = 'sk-abcdefghijklmnopqrstuvwx'")
    await base.worker.drain()
    (result,) = (await base.kb.search("party", ACME)).results
    assert "sk-abc" not in result.text


async def test_the_index_holds_what_is_published_and_no_more(base: Base, index: WritableIndex) -> None:
    await base.add(Entity("dress", "garment", "published"), "one", "two")
    await base.add(Entity("draft", "garment", "draft"), "three")
    await base.worker.drain()
    assert set(await index.documents("acme", "strata://kb")) == {"dress"}
    await base.kb.set_status(ACME, ["draft"], "published")
    await base.kb.delete_entities(ACME, ["dress"])
    await base.worker.drain()
    assert set(await index.documents("acme", "strata://kb")) == {"draft"}
    assert msgspec.structs.asdict((await base.kb.search("three", ACME)).results[0])["entity_type"] == "garment"

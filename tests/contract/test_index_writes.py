"""Writes, on every backend: all parts of a document show together, and nothing of an old one stays (decision 10)."""

from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.errors import ConfigError, InvalidInput
from contracts.filters import Eq
from contracts.hits import Relation
from contracts.ports import Embeddable
from contracts.records import Document, ModelRef
from tests.contract.conftest import Backend, Index
from tests.contract.corpus import ACCOUNT, HOSTILE, MODEL, SOURCE, Reference, ask, document, node, uris, vectors

A, B = "strata://shared/a", "strata://shared/b"


def rich(name: str, path: str, word: str, seed: int = 0) -> Embeddable:
    """A one-node document with every part."""
    made = node(
        path,
        f"about {word}",
        overview=f"overview of {word}",
        content=f"{word} content " * 200,
        relations=(Relation(f"strata://shared/{word}", "see", 0.5), Relation("strata://shared/x", "uses", 0.9)),
        tags=(word,),
        attrs={"lang": (word,)},
    )
    return document(name, made, seed=seed, fingerprint=word)


async def everything(index: Index, uri: str, account: str = ACCOUNT) -> dict[str, Any]:
    """All that an index tells of a URI."""
    return {
        "meta": await index.meta(account, [uri]),
        "L1": await index.read(account, [uri], "L1"),
        "L2": await index.read(account, [uri], "L2"),
        "edges": await index.edges(account, uri, 10),
    }


NOTHING = {"meta": {}, "L1": {}, "L2": {}, "edges": []}


async def test_a_document_that_was_put_is_there_with_all_its_parts(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    parts = await everything(index, A)
    assert parts["L1"] == {A: "overview of alpha"}
    assert parts["L2"] == {A: "alpha content " * 200}
    assert parts["edges"] == [Relation("strata://shared/x", "uses", 0.9), Relation("strata://shared/alpha", "see", 0.5)]
    assert await index.edges(ACCOUNT, A, 1) == [Relation("strata://shared/x", "uses", 0.9)]
    meta = parts["meta"][A]
    assert (meta.status, meta.owner_space, meta.abstract) == ("active", "shared", "about alpha")
    assert meta.has_overview and meta.has_content
    assert await index.documents(ACCOUNT, SOURCE) == {"d": "alpha"}
    assert await index.model() == MODEL


async def test_a_reader_that_found_the_index_empty_sees_the_very_first_write_at_once(
    backend: Backend, index: Index
) -> None:
    reader = await backend.reader(index)
    assert [found.hits for found in await reader.recall([ask("alpha")])] == [()]
    assert await reader.model() is None
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    (answer,) = await reader.recall([ask("alpha")])
    assert uris(answer.hits) == {A}
    assert (await reader.meta(ACCOUNT, [A])).keys() == {A}
    assert await reader.model() == MODEL


async def test_a_node_without_texts_is_left_out_when_read(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "alpha"))], MODEL)
    assert await index.read(ACCOUNT, [A, B], "L1") == {}
    assert await index.read(ACCOUNT, [A], "L2") == {}


async def test_a_replaced_document_leaves_nothing_of_the_old_one(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha"), rich("e", "e", "epsilon")], MODEL)
    await index.put(ACCOUNT, SOURCE, [rich("d", "b", "beta")], MODEL)
    assert await everything(index, A) == NOTHING
    by_word, by_tag, by_vector = await index.recall(
        [ask("alpha"), ask("about", where=Eq("tags", "alpha")), ask(vector=vectors(1)[0])]
    )
    assert uris(by_word.hits) == set()
    assert uris(by_tag.hits) == set()
    assert uris(by_vector.hits) == {B, "strata://shared/e"}
    assert await index.documents(ACCOUNT, SOURCE) == {"d": "beta", "e": "epsilon"}


async def test_a_node_that_changes_in_place_shows_only_its_new_parts(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "beta"), seed=3)], MODEL)
    parts = await everything(index, A)
    assert parts["meta"][A].abstract == "beta"
    assert (parts["L1"], parts["L2"], parts["edges"]) == ({}, {}, [])


async def test_putting_a_document_again_changes_nothing(index: Index) -> None:
    documents = [rich("d", "a", "alpha"), rich("e", "b", "beta")]
    await index.put(ACCOUNT, SOURCE, documents, MODEL)
    before = (await everything(index, A), await index.recall([ask("about alpha", vectors(1)[0])]))
    await index.put(ACCOUNT, SOURCE, documents, MODEL)
    after = (await everything(index, A), await index.recall([ask("about alpha", vectors(1)[0])]))
    assert {hit.uri: hit for hit in before[1][0].hits} == {hit.uri: hit for hit in after[1][0].hits}
    assert before[0] == after[0]


async def test_a_dropped_document_vanishes_with_texts_relations_and_journal(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha"), rich("e", "b", "beta")], MODEL)
    await index.record(ACCOUNT, SOURCE, ["d", "never stored"], "failed", "unreadable")
    await index.drop(ACCOUNT, SOURCE, ["d", "never stored", "never heard of"])
    assert await everything(index, A) == NOTHING
    (found,) = await index.recall([ask("about alpha", vectors(1)[0])])
    assert uris(found.hits) == {B}
    assert await index.documents(ACCOUNT, SOURCE) == {"e": "beta"}
    assert await index.unfinished(ACCOUNT) == []


async def test_dropping_is_kept_to_its_account_and_source(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    await index.put(ACCOUNT, "other source", [rich("d", "b", "beta")], MODEL)
    await index.put("other", SOURCE, [rich("d", "a", "gamma")], MODEL)
    await index.drop(ACCOUNT, SOURCE, ["d"])
    assert await everything(index, A) == NOTHING
    assert (await everything(index, B))["L1"] == {B: "overview of beta"}
    assert (await everything(index, A, "other"))["L1"] == {A: "overview of gamma"}


async def test_an_account_sees_nothing_of_another_that_holds_the_same_uri(index: Index) -> None:
    """C20: the same URIs, sources and document ids in two accounts stay apart."""
    await index.put("one", SOURCE, [rich("d", "a", "alpha")], MODEL)
    await index.put("two", SOURCE, [rich("d", "a", "beta"), rich("e", "b", "alpha")], MODEL)
    one, two, nobody = await index.recall(
        [ask("alpha", vectors(1)[0], account=name) for name in ("one", "two", "three")]
    )
    assert {(hit.uri, hit.abstract) for hit in one.hits} == {(A, "about alpha")}
    assert {(hit.uri, hit.abstract) for hit in two.hits} == {(A, "about beta"), (B, "about alpha")}
    assert nobody.hits == ()
    assert (await everything(index, A, "one"))["L1"] == {A: "overview of alpha"}
    assert (await everything(index, A, "two"))["L1"] == {A: "overview of beta"}
    assert await everything(index, B, "one") == NOTHING
    assert await index.documents("one", SOURCE) == {"d": "alpha"}
    # The words of one account weigh nothing in the other's scores.
    reference = Reference("one")
    reference.put([rich("d", "a", "alpha")])
    assert one.hits[0].keyword == pytest.approx(reference.coverage(A, "alpha"))


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_hostile_strings_are_only_strings_wherever_they_stand(shared_index: Index, hostile: str) -> None:
    uri = f"strata://shared/{hostile}"
    made = node(
        hostile, hostile, overview=hostile, content=hostile, tags=(hostile,), relations=(Relation(uri, hostile),)
    )
    item = Embeddable(Document(hostile, hostile, (made,)), vectors(1))
    account = f"account {hostile}"
    await shared_index.put(account, hostile, [item], MODEL)
    await shared_index.record(account, hostile, ["x"], "failed", hostile)
    parts = await everything(shared_index, uri, account)
    assert parts["meta"][uri].abstract == hostile
    assert (parts["L1"], parts["L2"], parts["edges"]) == ({uri: hostile}, {uri: hostile}, [Relation(uri, hostile)])
    assert await shared_index.documents(account, hostile) == {hostile: hostile}
    assert [entry.detail for entry in await shared_index.unfinished(account)] == [hostile]
    await shared_index.drop(account, hostile, [hostile])
    assert await everything(shared_index, uri, account) == NOTHING


async def test_vectors_of_another_model_are_refused(index: Index) -> None:
    """Design decision 9; K4."""
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    for other in (ModelRef("contract-test", "2", 8), ModelRef("other", "1", 8)):
        with pytest.raises(ConfigError, match="contract-test 1") as refusal:
            await index.put(ACCOUNT, SOURCE, [rich("e", "b", "beta")], other)
        assert refusal.value.remedy
    assert await index.documents(ACCOUNT, SOURCE) == {"d": "alpha"}
    assert await everything(index, B) == NOTHING


async def test_an_emptied_index_takes_another_model(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    await index.drop(ACCOUNT, SOURCE, ["d"])
    assert await index.model() is None
    small = ModelRef("small", "1", 2)
    item = Embeddable(Document("d", "p", (node("b", "beta"),)), np.array([[1, 0]], np.float32))
    await index.put(ACCOUNT, SOURCE, [item], small)
    assert await index.model() == small
    (found,) = await index.recall([ask("beta", np.array([1, 0], np.float32))])
    assert [(hit.uri, hit.vector) for hit in found.hits] == [(B, 1.0)]


def _with_vectors(rows: Any) -> Embeddable:
    return msgspec.structs.replace(rich("e", "b", "beta"), vectors=np.asarray(rows, np.float32))


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        (_with_vectors(np.ones((1, 5))), "of 8 finite"),
        (_with_vectors(np.ones((2, 8))), "1 nodes"),
        (_with_vectors(np.full((1, 8), np.nan)), "finite"),
        (Embeddable(Document("e", "p", ()), vectors(0)), "no nodes"),
        (document("e", node("b", "x"), node("b", "y")), "comes 2 times"),
        (document("e", node("b", "x", attrs={"a=b": ("c",)})), "a=b"),
        (document("e", node("b", "lone \ud800 surrogate")), "Unicode"),
        (document("e", node("b", "x", content="lone \ud800 surrogate")), "Unicode"),
    ],
)
async def test_what_can_not_be_stored_is_refused_and_leaves_no_trace(
    index: Index, item: Embeddable, complaint: str
) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    with pytest.raises(InvalidInput, match=complaint):
        await index.put(ACCOUNT, SOURCE, [item], MODEL)
    await index.put(ACCOUNT, SOURCE, [rich("f", "f", "phi")], MODEL)
    assert await everything(index, B) == NOTHING
    assert await index.documents(ACCOUNT, SOURCE) == {"d": "alpha", "f": "phi"}
    assert await index.unfinished(ACCOUNT) == []


async def test_a_uri_of_another_source_can_not_be_taken(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    with pytest.raises(InvalidInput, match="belongs to document 'd' of source 'handbook'"):
        await index.put(ACCOUNT, "other source", [rich("e", "a", "beta")], MODEL)
    assert (await everything(index, A))["L1"] == {A: "overview of alpha"}


async def test_a_uri_that_moves_to_another_document_of_its_source_goes_with_it(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha")], MODEL)
    await index.put(ACCOUNT, SOURCE, [rich("e", "a", "beta")], MODEL)
    await index.drop(ACCOUNT, SOURCE, ["d"])
    assert (await everything(index, A))["L1"] == {A: "overview of beta"}
    (found,) = await index.recall([ask("about beta")])
    reference = Reference()
    reference.put([rich("e", "a", "beta")])
    assert [hit.keyword for hit in found.hits] == [pytest.approx(reference.coverage(A, "about beta"))]


async def test_the_journal_tells_what_is_left_to_do(index: Index) -> None:
    await index.record(ACCOUNT, SOURCE, ["d", "e"], "parsed")
    await index.record(ACCOUNT, SOURCE, ["e"], "failed", "line 3 is no JSON")
    await index.record("other", SOURCE, ["d"], "parsed")
    left = {entry.document_id: entry for entry in await index.unfinished(ACCOUNT)}
    assert {name: (entry.state, entry.detail) for name, entry in left.items()} == {
        "d": ("parsed", ""),
        "e": ("failed", "line 3 is no JSON"),
    }
    assert left["d"].source_id == SOURCE and left["d"].updated_at > 0
    await index.put(ACCOUNT, SOURCE, [rich("d", "a", "alpha"), rich("e", "b", "beta")], MODEL)
    assert await index.unfinished(ACCOUNT) == []


words = st.sampled_from(["alpha", "beta", "gamma", "run", "检索", "向量检索", "北京大学", "v1.2"])
texts = st.lists(words, max_size=5).map(" ".join)
kinds = st.sampled_from(["section", "turn"])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, list[tuple[str, str]]]]:
    """Steps of (document, nodes as (text, kind)); no nodes drops the document."""
    names = st.sampled_from(["d", "e", "f"])
    return draw(st.lists(st.tuples(names, st.lists(st.tuples(texts, kinds), max_size=3)), min_size=1, max_size=6))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(history=histories())
async def test_scores_after_any_history_equal_those_of_a_fresh_index(
    shared_index: Index, history: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    """Statistics follow replacements and removals exactly."""
    # Not drawn by hypothesis, which draws the same again.
    reference = Reference(f"history {uuid4()}")
    for name, parts in history:
        if parts:
            nodes = [node(f"{name}/{i}", text, kind=kind) for i, (text, kind) in enumerate(parts)]
            reference.put([document(name, *nodes)])
            await shared_index.put(reference.account, SOURCE, [reference.documents[name]], MODEL)
        else:
            reference.drop([name])
            await shared_index.drop(reference.account, SOURCE, [name])
    query = "run alpha v1.2 在北京大学检索向量"
    (found,) = await shared_index.recall([ask(query, vectors(1)[0], account=reference.account)])
    assert uris(found.hits) == reference.nodes().keys()
    for hit in found.hits:
        assert hit.keyword == pytest.approx(reference.coverage(hit.uri, query), abs=1e-9)


async def test_optimizing_changes_no_answer(index: Index) -> None:
    for number in range(6):
        await index.put(ACCOUNT, SOURCE, [rich(f"d{number}", f"n{number}", f"word{number} common", seed=number)], MODEL)
    await index.drop(ACCOUNT, SOURCE, ["d3"])
    question = [ask("common word4", vectors(1, seed=9)[0])]
    (before,) = await index.recall(question)
    await index.optimize()
    (after,) = await index.recall(question)
    assert {hit.uri: hit for hit in before.hits} == {hit.uri: hit for hit in after.hits}
    assert (await everything(index, "strata://shared/n3")) == NOTHING
    await index.put(ACCOUNT, SOURCE, [rich("new", "new", "late common")], MODEL)
    (later,) = await index.recall([ask("late")])
    assert uris(later.hits) == {"strata://shared/new"}

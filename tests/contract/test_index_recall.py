"""Recall, on every backend."""

import numpy as np
import pytest

from contracts.errors import ConfigError, InvalidFilter
from contracts.filters import Contains, Eq, In, Not, Range, Under, all_of
from contracts.ports import RecallQuery
from tests.contract.conftest import Index
from tests.contract.corpus import ACCOUNT, HOSTILE, MODEL, SOURCE, Reference, ask, document, node, uris, vectors

HANDBOOK = [
    document(
        "ops.md",
        node("ops", "How the service is run", has_children=True, kind="document"),
        node("ops/rollback", "Undo a release that went wrong: rollback to the last good version v1.2.3."),
        node("ops/codes", "RET-4001 means that the query was blank, RET-4002 that top_k is out of range."),
        node("ops/cluster", "Deploy the RayService on Kubernetes; run_in_executor keeps the loop free."),
        seed=1,
    ),
    document(
        "zh.md",
        node("zh/search", "混合检索先按关键词召回，再按向量召回，最后融合排序。", category="手册"),
        node("zh/deploy", "在集群上部署检索服务的步骤和命令", tags=("部署", "it's")),
        node("zh/talk", "小明：明天去北京大学听讲座", kind="turn", context_type="memory"),
        node("py/pool", "An executor of processes", name="concurrent.futures.ProcessPoolExecutor", kind="class"),
        seed=2,
    ),
]


@pytest.fixture
async def handbook(index: Index) -> Index:
    await index.put(ACCOUNT, SOURCE, HANDBOOK, MODEL)
    return index


@pytest.fixture
def reference() -> Reference:
    known = Reference()
    known.put(HANDBOOK)
    return known


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("how do I roll back a broken release to a good version", "ops/rollback"),
        ("Which error is ret-4001?", "ops/codes"),
        ("v1.2.3", "ops/rollback"),
        ("rayservice", "ops/cluster"),
        ("ray service kubernetes", "ops/cluster"),
        ("run_in_executor", "ops/cluster"),
        ("ProcessPoolExecutor", "py/pool"),
        ("process pool", "py/pool"),
        ("关键词和向量怎么融合", "zh/search"),
        ("部署命令", "zh/deploy"),
        ("谁去北京大学", "zh/talk"),
        ("ＲＥＴ－４００２", "ops/codes"),
    ],
)
async def test_words_codes_and_names_find_their_record(handbook: Index, text: str, best: str) -> None:
    (found,) = await handbook.recall([ask(text)])
    first = max(found.hits, key=lambda hit: hit.keyword)
    assert first.uri == f"strata://shared/{best}"
    assert first.found_by == "keyword"
    assert 0 < first.keyword <= 1
    assert not found.failed


async def test_a_vector_finds_its_nearest_record(handbook: Index) -> None:
    (found,) = await handbook.recall([ask(vector=HANDBOOK[0].vectors[2])])
    first = max(found.hits, key=lambda hit: hit.vector)
    assert first.uri == "strata://shared/ops/codes"
    assert first.found_by == "dense"
    assert first.vector == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_every_candidate_has_its_true_scores_whichever_recall_found_it(
    handbook: Index, reference: Reference, limit: int
) -> None:
    for text in (
        "rollback of the service version",
        "检索 service 部署步骤",
        "明天的讲座 codes",
        "nothing of this kind",
    ):
        for vector in vectors(3, seed=7):
            (found,) = await handbook.recall([ask(text, vector, limit=limit)])
            assert found.hits
            for hit in found.hits:
                assert hit.vector == pytest.approx(reference.cosine(hit.uri, vector), abs=1e-5)
                assert hit.keyword == pytest.approx(reference.coverage(hit.uri, text), abs=1e-9)


async def test_candidates_of_both_recalls_come_once_and_say_who_found_them(handbook: Index) -> None:
    (found,) = await handbook.recall([ask("rollback release", HANDBOOK[0].vectors[0], limit=1)])
    by = {hit.uri: hit.found_by for hit in found.hits}
    assert by == {"strata://shared/ops": "dense", "strata://shared/ops/rollback": "keyword"}
    (found,) = await handbook.recall([ask("rollback release", HANDBOOK[0].vectors[1], limit=1)])
    assert [hit.found_by for hit in found.hits] == ["both"]


async def test_all_queries_of_a_call_are_answered_in_order(handbook: Index) -> None:
    answers = await handbook.recall([ask("rollback"), ask("融合"), ask("absent"), ask("rollback", account="other")])
    best = [max(answer.hits, key=lambda hit: hit.keyword).uri if answer.hits else None for answer in answers]
    assert best[0] == "strata://shared/ops/rollback"
    assert best[1] == "strata://shared/zh/search"
    assert best[2:] == [None, None]


@pytest.mark.parametrize("text", ["", "   ", "what is the", "?!", "，。"])
async def test_a_text_without_terms_is_no_failure(handbook: Index, text: str) -> None:
    (without, with_vector) = await handbook.recall([ask(text), ask(text, vectors(1)[0])])
    assert without.hits == () and not without.failed and not without.more
    assert len(with_vector.hits) == 8
    assert all(hit.keyword == 0 for hit in with_vector.hits)


async def test_more_says_whether_a_deeper_recall_could_find_further_records(handbook: Index) -> None:
    deep, shallow, keyword = await handbook.recall(
        [ask(vector=vectors(1)[0], limit=9), ask(vector=vectors(1)[0], limit=3), ask("RET-4001", limit=5)]
    )
    assert not deep.more and len(deep.hits) == 8
    assert shallow.more and len(shallow.hits) == 3
    assert not keyword.more and len(keyword.hits) == 1


async def test_an_empty_index_answers_with_nothing(index: Index) -> None:
    (found,) = await index.recall([ask("anything", vectors(1)[0])])
    assert found.hits == () and not found.failed and not found.more
    assert await index.model() is None
    assert await index.meta(ACCOUNT, ["strata://shared/ops"]) == {}
    assert await index.read(ACCOUNT, ["strata://shared/ops"], "L2") == {}
    assert await index.edges(ACCOUNT, "strata://shared/ops", 5) == []


async def test_filters_narrow_before_the_recall_so_a_limit_of_one_still_finds_the_match(handbook: Index) -> None:
    """Design decision 5: the filter is part of the recall, not a cut after it."""
    for uri in ("ops", "ops/rollback", "zh/talk", "py/pool"):
        wanted = Eq("uri", f"strata://shared/{uri}")
        (found,) = await handbook.recall([ask(vector=HANDBOOK[0].vectors[2], limit=1, where=wanted)])
        assert uris(found.hits) == {f"strata://shared/{uri}"}
    (found,) = await handbook.recall([ask("服务", limit=1, where=Contains("tags", ("it's", "部署")))])
    assert uris(found.hits) == {"strata://shared/zh/deploy"}


@pytest.mark.parametrize(
    "condition",
    [
        Eq("colour", "red"),
        Eq("attrs.a b", "x"),
        Eq("words", "x"),
        Eq("category", 5),
        Eq("depth", "1"),
        Eq("depth", True),
        In("tags", ("a", 1)),
        Range("category", gte=1),
        Range("depth", gte=float("nan")),
        Under("category", "strata://shared"),
        Contains("category", ("guide",)),
        Not(all_of(Eq("depth", 1), Eq("colour", "red"))),
    ],
)
async def test_a_filter_that_does_not_fit_is_refused_before_any_search(handbook: Index, condition: object) -> None:
    with pytest.raises(InvalidFilter):
        await handbook.recall([ask("service"), ask("service", where=condition)])


@pytest.mark.parametrize(
    "text", [*HOSTILE, 'rollback AND "release', "+rollback -release", "uri:rollback*", "(rollback", "~"]
)
async def test_no_query_text_is_read_as_a_query_language(handbook: Index, text: str) -> None:
    (found,) = await handbook.recall([ask(text)])
    assert not found.failed
    assert ("strata://shared/ops/rollback" in uris(found.hits)) == ("rollback" in text)


async def test_a_vector_of_another_dimension_is_refused_with_a_remedy(handbook: Index) -> None:
    with pytest.raises(ConfigError, match="8 dimensions") as refusal:
        await handbook.recall([RecallQuery("x", np.ones(5, np.float32), Eq("account_id", ACCOUNT), 10)])
    assert refusal.value.remedy


async def test_a_zero_vector_is_like_nothing(index: Index) -> None:
    await index.put(ACCOUNT, SOURCE, [document("d", node("a", "alpha"))], MODEL)
    (found,) = await index.recall([ask("alpha", np.zeros(MODEL.dimensions, np.float32))])
    assert [(hit.vector, hit.found_by) for hit in found.hits] == [(0.0, "both")]


async def test_long_texts_and_queries_are_handled(index: Index) -> None:
    words = " ".join(f"word{i}" for i in range(3_000))
    long = document("d", node("long", "x", search_text=words + " " + "y" * 100_000), node("short", "word7"))
    await index.put(ACCOUNT, SOURCE, [long], MODEL)
    (found,) = await index.recall([ask(words[:8_000])])
    assert uris(found.hits) == {"strata://shared/long", "strata://shared/short"}

"""Both backends on the same records: each finds what comparing all finds, and one answers as the other does."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts.filters import Eq, Filter, all_of
from contracts.ports import Embeddable, RecallHit, RecallQuery
from contracts.records import Document, Node
from evaluation.synthetic import SOURCE, Account, Question, Shape, percent
from index.elastic import queries
from index.elastic.config import ElasticConfig, LayoutConfig
from index.elastic.filter_query import query as compiled
from index.elastic.index import ElasticIndex
from index.elastic.mapping import routing_of
from index.embedded.index import EmbeddedIndex
from tests.contract.conftest import ElasticBackend, EmbeddedBackend
from tests.contract.corpus import MODEL, ask, document, node, uris, vectors
from tests.contract.test_index_filters import filters, nodes

# The accounts share the shards of one index; in the largest, HNSW has thousands of vectors to choose from.
SHAPE = Shape(rows=6_000, dimensions=64, accounts=4)
ACCOUNTS = [Account(SHAPE, number) for number in range(SHAPE.accounts)]
LARGEST, SMALLEST = ACCOUNTS[0], ACCOUNTS[-1]
QUESTIONS = 40
TOP = 10
numbers = itertools.count()
# The hits of the two backends for one query.
Hits = tuple[tuple[RecallHit, ...], tuple[RecallHit, ...]]


class Both(NamedTuple):
    """The two backends."""

    embedded: EmbeddedIndex
    elastic: ElasticIndex


@pytest.fixture(scope="module")
async def both(elasticsearch_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """The same records in both, each with the settings it has by default."""
    embedded = await EmbeddedIndex.open(tmp_path_factory.mktemp("index"), write=True)
    config = ElasticConfig(prefix=f"agreement-{uuid4().hex[:12]}")
    elastic = await ElasticIndex.open(config, [elasticsearch_url], write=True)
    for account in ACCOUNTS:
        for index in (embedded, elastic):
            await index.put(account.name, SOURCE, list(account.documents()), SHAPE.model)
    # One graph a shard, the hardest case: each segment more would be searched as thoroughly, and find more.
    patient = elastic.client.options(request_timeout=120)
    await patient.indices.forcemerge(index=elastic.versions.alias, max_num_segments=1)
    yield Both(embedded, elastic)
    await elastic.versions.destroy()
    for index in (embedded, elastic):
        await index.close()


@pytest.fixture(scope="module")
async def empty(elasticsearch_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Both]:
    """The two with nothing in them."""
    embedded, elastic = EmbeddedBackend(lambda: tmp_path_factory.mktemp("index")), ElasticBackend(elasticsearch_url)
    yield Both(await embedded.new(), await elastic.new())  # type: ignore[arg-type]
    await embedded.close()
    await elastic.close()


@pytest.fixture(scope="module")
async def answers(both: Both) -> dict[str, list[Hits]]:
    """By account, what each of the two answers to the same questions."""
    found: dict[str, list[Hits]] = {}
    for account in (LARGEST, SMALLEST):
        asked = [_query(question.text, question, account) for question in account.questions(QUESTIONS // 2)]
        one, other = [await index.recall(asked) for index in both]
        found[account.name] = [(a.hits, b.hits) for a, b in zip(one, other, strict=True)]
    return found


async def test_segments_are_merged_as_the_layout_says(both: Both) -> None:
    """Issue 9: each segment costs every search a walk of its graph."""
    found = await both.elastic.client.indices.get_settings(index=both.elastic.versions.alias, flat_settings=True)
    [version] = found.body.values()
    wanted = {"merge.policy.segments_per_tier": "3", "merge.policy.floor_segment": "64mb", "refresh_interval": "30s"}
    assert {name: version["settings"][f"index.{name}"] for name in wanted} == wanted


@pytest.mark.parametrize("backend", Both._fields)
@pytest.mark.parametrize("limit", [10, 100])
@pytest.mark.parametrize("share", [100, 10, 1])
async def test_dense_recall_finds_95_percent_of_the_nearest_records_also_under_narrow_filters(
    both: Both, backend: str, limit: int, share: int
) -> None:
    questions = LARGEST.questions(QUESTIONS)
    index: EmbeddedIndex | ElasticIndex = getattr(both, backend)
    answers = await index.recall([_query("", question, LARGEST, limit, share) for question in questions])
    parts = []
    for question, answer in zip(questions, answers, strict=True):
        assert not answer.failed and not answer.partial
        nearest = LARGEST.nearest(question.vector, limit, share)
        parts.append(len(uris(answer.hits) & set(nearest)) / len(nearest))
    assert fmean(parts) >= 0.95


async def test_elasticsearch_walks_the_graph_instead_of_comparing_all(both: Both) -> None:
    """Without this the recall above would say nothing about ``num_candidates``."""
    (question,) = LARGEST.questions(1)
    body = queries.dense(question.vector, compiled(Eq("account_id", LARGEST.name)), 100, ElasticConfig().recall)
    answer = await both.elastic.client.search(
        index=both.elastic.versions.alias,
        routing=routing_of(LARGEST.name),
        knn=body["knn"],
        profile=True,
    )
    compared = [knn["vector_operations_count"] for s in answer["profile"]["shards"] for knn in s["dfs"]["knn"]]
    assert 100 < sum(compared) < LARGEST.size


@pytest.mark.parametrize("account", [LARGEST, SMALLEST], ids=["large account", "small account"])
@pytest.mark.parametrize(("score", "least"), [("vector", 0.98), ("keyword", 1.0)])
async def test_both_backends_have_the_same_ten_best(
    answers: Mapping[str, list[Hits]], account: Account, score: str, least: float
) -> None:
    """By keywords always; by vectors up to what a graph may miss."""
    wanted = shared = 0
    for hits in answers[account.name]:
        one, other = (_best(found, score) for found in hits)
        # Whoever is as good as the last of the ten may come in its place.
        sure = {uri for uri, value in one.items() if value > min(one.values()) + 1e-6}
        wanted, shared = wanted + len(sure), shared + len(sure & other.keys())
    assert wanted > 100
    assert shared >= least * wanted


async def test_a_record_that_both_backends_find_has_the_same_scores_on_both(answers: Mapping[str, list[Hits]]) -> None:
    compared = 0
    for hits in itertools.chain.from_iterable(answers.values()):
        one, other = ({hit.uri: hit for hit in found} for found in hits)
        for uri in one.keys() & other.keys():
            compared += 1
            assert one[uri].keyword == pytest.approx(other[uri].keyword, abs=1e-6)
            assert one[uri].vector == pytest.approx(other[uri].vector, abs=1e-5)
    assert compared > 50 * QUESTIONS


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    found=st.lists(nodes(), min_size=2, max_size=8, unique_by=lambda node: node.uri),
    asked=st.lists(filters, min_size=1, max_size=8),
)
async def test_a_filter_returns_the_same_set_on_both_backends(
    empty: Both, found: list[Node], asked: list[Filter]
) -> None:
    account, vector = f"account {next(numbers)}", vectors(1)[0]
    item = Embeddable(Document("d", "print", tuple(found)), vectors(len(found)))
    wanted = [ask(text, vector, account=account, where=part) for part in asked for text in ("", "common words")]
    answers = []
    for index in empty:
        await index.put(account, "source", [item], MODEL)
        answers.append([uris(answer.hits) for answer in await index.recall(wanted)])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("layout", "shards"),
    [
        (LayoutConfig(shards=3, routing="account"), 1),
        (LayoutConfig(shards=3, routing="account", partition=2), 2),
        (LayoutConfig(shards=3, routing="none"), 3),
    ],
    ids=["routed", "partitioned", "spread"],
)
async def test_a_search_touches_only_the_shards_where_its_account_may_be(
    elasticsearch_url: str, layout: LayoutConfig, shards: int
) -> None:
    """As the real answers of the cluster say, whatever the account; and each account is found whole."""
    config = ElasticConfig(prefix=f"shards-{uuid4().hex[:12]}", layout=layout)
    index = await ElasticIndex.open(config, [elasticsearch_url], write=True)
    try:
        for number in range(4):
            account, made = f"tenant {number}", [node(f"n{i}", f"common word{i}") for i in range(12)]
            await index.put(account, SOURCE, [document("d", *made)], MODEL)
            with _answers(index) as answers:
                (found,) = await index.recall([ask("common", vectors(1)[0], account=account, limit=6)])
                meta = await index.meta(account, [each.uri for each in made])
                (everything,) = await index.recall([ask("common", account=account)])
            assert len(found.hits) >= 6
            assert meta.keys() == uris(everything.hits) == {each.uri for each in made}
            assert [answer["_shards"]["total"] for answer in answers] == [shards] * len(answers)
            assert len(answers) > 5
    finally:
        await index.versions.destroy()
        await index.close()


def _query(text: str, question: Question, account: Account, limit: int = 100, share: int = 100) -> RecallQuery:
    condition = all_of(Eq("account_id", account.name), percent(share) if share < 100 else None)
    return RecallQuery(text, question.vector, condition, limit)


def _best(hits: Sequence[RecallHit], score: str) -> dict[str, float]:
    """Score by URI of the ten best."""
    scores = {hit.uri: float(getattr(hit, score)) for hit in hits}
    return dict(sorted(scores.items(), key=lambda pair: pair[1], reverse=True)[:TOP])


@contextmanager
def _answers(index: ElasticIndex) -> Iterator[list[Mapping[str, Any]]]:
    """What the cluster answers to each single search while the block runs."""
    transport: Any = index.client.transport
    send = transport.perform_request
    found: list[Mapping[str, Any]] = []

    async def recording(method: str, target: str, **options: Any) -> Any:
        answer = await send(method, target, **options)
        if target.partition("?")[0].endswith("_msearch"):
            found.extend(answer.body["responses"])
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "perform_request", recording)
        yield found

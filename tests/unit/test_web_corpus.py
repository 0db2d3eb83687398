"""The web corpus: sessions kept apart (R5, R6), trust, freshness and folding."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.context import RequestContext
from contracts.errors import InvalidBody, MissingDimension
from contracts.filters import matches
from contracts.hits import ScoreBreakdown
from contracts.uri import parse_space
from corpora.rag.documents import check
from corpora.rag.types import CorpusHit, SourceDocument
from corpora.web import WebConfig, WebCorpus

NOW = 1_750_000_000_000
DAY = 24 * 3600 * 1000
ALICE = RequestContext("acme", user_space="user:alice", agent_space="agent:helper")
SESSION = {"session_id": "s1"}
PAGE = {"url": "https://example.com/a", "content": "Tea is a drink."}


def corpus(**config: Any) -> WebCorpus:
    return WebCorpus(WebConfig(**config), clock=lambda: NOW / 1000)


def ingest(*pages: dict[str, Any], ctx: RequestContext = ALICE, **dimensions: Any) -> list[SourceDocument]:
    return corpus().build_ingest_documents(ctx, {**(dimensions or SESSION), "pages": list(pages)})


def shows(document: SourceDocument, ctx: RequestContext = ALICE, /, **dimensions: Any) -> bool:
    scope = corpus().build_retrieve_filter(ctx, dimensions)
    return scope.space == document.space and matches(scope.must, {"attrs": document.attrs})


def hit(uri: str, score: float, source: str = "", updated_at: int = 0, **attrs: str) -> CorpusHit:
    values = {key: (value,) for key, value in attrs.items()}
    return CorpusHit(uri, source or uri, "", "", score, score, ScoreBreakdown(), values, updated_at=updated_at)


def arranged(*hits: CorpusHit, **config: Any) -> list[str]:
    return [each.uri for each in corpus(**config).arrange(SESSION, hits)]


def test_a_page_becomes_a_document_with_its_metadata() -> None:
    """R5."""
    (document,) = ingest(
        PAGE
        | {
            "url": "HTTPS://Example.com:443/a/?utm_source=x#top",
            "title": "Tea",
            "snippet": "About tea",
            "published_at": "2024-05-01",
            "fetched_at": NOW - 5,
            "language": "en",
            "source_rank": 3,
            "ttl_at": NOW + DAY,
        },
        session_id="s1",
        query_id="q1",
    )
    assert document.source_id.startswith("https://example.com/a#")
    assert (document.space, document.kind, document.context_type) == ("web.user:alice", "page", "resource")
    assert (document.text, document.title) == ("Tea is a drink.", "Tea")
    assert (document.created_at, document.updated_at, document.expires_at) == (1_714_521_600_000, NOW - 5, NOW + DAY)
    content_hash = document.attrs.pop("content_hash")
    assert len(content_hash[0]) == 32
    assert document.attrs == {
        "session_id": ("s1",),
        "query_id": ("q1",),
        "url": ("https://example.com/a",),
        "domain": ("example.com",),
        "published_at": ("1714521600000",),
        "fetched_at": (str(NOW - 5),),
        "language": ("en",),
        "source_rank": ("3",),
    }


def test_the_same_page_again_is_the_same_source_and_another_session_has_its_own() -> None:
    first, again = ingest(PAGE), ingest(PAGE | {"url": "https://EXAMPLE.com/a/#x", "content": "New."})
    other = ingest(PAGE, session_id="s2")
    assert first[0].source_id == again[0].source_id != other[0].source_id


def test_of_one_page_twice_in_a_body_the_later_stays() -> None:
    (document,) = ingest(PAGE, PAGE | {"content": "New."})
    assert document.text == "New."


def test_pages_with_very_long_addresses_can_be_stored_and_stay_apart() -> None:
    long = "https://example.com/" + "a" * 1500
    documents = ingest(*(PAGE | {"url": f"{long}{end}"} for end in "xy"))
    assert len({each.source_id for each in documents}) == 2
    for document in documents:
        check(document)


def test_a_snippet_stands_in_for_content_that_is_missing() -> None:
    (document,) = ingest({"url": "http://a.com", "snippet": "About tea", "content": " "})
    assert document.text == "About tea"


def test_a_page_from_before_the_epoch_can_be_stored() -> None:
    (document,) = ingest(PAGE | {"published_at": "1912-04-15"})
    check(document)
    assert int(document.attrs["published_at"][0]) < 0


@pytest.mark.parametrize(
    ("page", "field"),
    [
        ({"content": "", "snippet": ""}, "pages.0.content"),
        ({"url": "javascript:alert(1)"}, "pages.0.url"),
        ({"url": "https://example.com/" + "a" * 3000}, "pages.0.url"),
        ({"url": None}, "pages.0.url"),
        ({"html": "<p>"}, "pages.0.html"),
        ({"source_rank": "first"}, "pages.0.source_rank"),
        ({"published_at": "yesterday"}, "pages.0.published_at"),
    ],
)
def test_a_field_that_is_wrong_is_named(page: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        ingest(PAGE | page)
    assert caught.value.field == field


@given(st.dictionaries(st.sampled_from(["session_id", "query_id"]), st.sampled_from(["", "  ", None])))
def test_without_a_session_or_query_nothing_is_written_or_searched(dimensions: dict[str, Any]) -> None:
    """R6."""
    for build in (corpus().build_ingest_documents, corpus().build_retrieve_filter):
        with pytest.raises(MissingDimension) as caught:
            build(ALICE, {**dimensions, "pages": [PAGE]})
        assert caught.value.field == "session_id, query_id"
        assert "session_id or query_id" in caught.value.message


def test_a_blank_dimension_beside_a_given_one_is_not_passed_over() -> None:
    with pytest.raises(InvalidBody) as caught:
        corpus().build_retrieve_filter(ALICE, {"session_id": "s1", "query_id": ""})
    assert caught.value.field == "query_id"


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidBody) as caught:
        corpus().build_retrieve_filter(ALICE, {**SESSION, "options": {"domain": "a.com"}})
    assert caught.value.field == "options.domain"


named = st.fixed_dictionaries(
    {}, optional={"session_id": st.sampled_from(["s1", "s2"]), "query_id": st.sampled_from(["q1", "s1"])}
).filter(bool)


@given(named, named)
def test_a_page_shows_only_where_every_dimension_asked_for_is_its_own(
    written: dict[str, str], asked: dict[str, str]
) -> None:
    """R5, R6: a page of both a session and a query is found by either, and none of another one's."""
    (document,) = ingest(PAGE, **written)
    assert shows(document, **asked) == all(written.get(name) == value for name, value in asked.items())


names = st.from_regex(r"[a-z0-9][a-z0-9._:-]{0,63}", fullmatch=True)


@given(names, names)
def test_pages_lie_in_a_space_of_the_caller_alone_which_plain_searches_do_not_see(one: str, other: str) -> None:
    """C20."""
    contexts = [RequestContext("acme", user_space=name, agent_space="agent:helper") for name in (one, other)]
    found = [corpus().build_retrieve_filter(ctx, SESSION).space for ctx in contexts]
    assert (found[0] == found[1]) == (one == other)
    for ctx, space in zip(contexts, found, strict=True):
        assert parse_space(space).startswith("web.")
        assert not ctx.may_see(space) or ctx.user_space.startswith("web.")
        assert ingest(PAGE, ctx=ctx)[0].space == space


def test_without_a_user_the_agent_owns_the_pages_and_without_both_all_share_them() -> None:
    agent = RequestContext("acme", "agent", agent_space="agent:helper")
    assert ingest(PAGE, ctx=agent)[0].space == "web.agent:helper"
    assert ingest(PAGE, ctx=RequestContext("acme", "admin"))[0].space == "web.shared"


def test_a_trusted_domain_lifts_a_page_lightly_and_by_its_address_alone() -> None:
    """R5."""
    gov = hit("gov", 0.80, url="https://www.health.gov.cn/a")
    blog = hit("blog", 0.82, url="https://blog.example.com/a", domain="health.gov.cn")
    strong = hit("strong", 0.95, url="https://notgov.cn/a")
    assert arranged(blog, gov, strong) == ["strong", "gov", "blog"]
    assert arranged(blog, gov, strong, trust_weight=0) == ["strong", "blog", "gov"]


def test_the_longest_domain_that_fits_decides_trust() -> None:
    trust = {"example.com": 1.0, "ads.example.com": 0.0}
    found = [hit("ads", 0.8, url="https://x.ads.example.com/"), hit("main", 0.8, url="https://example.com/")]
    for each, factor in zip(corpus(trust=trust, freshness_weight=0).arrange(SESSION, found), (1.0, 0.9), strict=True):
        assert each.score == pytest.approx(0.8 * factor)


@pytest.mark.parametrize("domain", [".gov", "Gov", "https://a.gov", "a..b", ""])
def test_a_domain_that_could_fit_no_host_is_refused_in_the_settings(domain: str) -> None:
    with pytest.raises(ValidationError):
        WebConfig(trust={domain: 1.0})


def test_a_fresh_page_comes_before_an_old_one_of_the_same_relevance() -> None:
    old = hit("a-old", 0.8, published_at=str(NOW - 3650 * DAY))
    new, unknown = hit("b-new", 0.8, published_at=str(NOW - DAY)), hit("c-unknown", 0.8)
    assert arranged(old, new, unknown) == ["b-new", "c-unknown", "a-old"]


def test_half_of_the_freshness_is_left_after_the_half_life() -> None:
    found = hit("a", 0.8, published_at=str(NOW - 30 * DAY)), hit("b", 0.8, published_at=str(NOW + DAY))
    future, half = corpus(half_life_days=30, freshness_weight=0.2, trust_weight=0).arrange(SESSION, found)
    assert (future.score, half.score) == pytest.approx((0.8, 0.8 * 0.9))


def test_a_page_shows_with_its_best_chunks_and_no_more() -> None:
    chunks = [hit(f"a/{n}", 0.9 - n / 100, "a", url="https://a.com/") for n in range(4)]
    assert arranged(*reversed(chunks), hit("b", 0.5)) == ["a/0", "a/1", "b"]
    assert arranged(*chunks, per_page=1) == ["a/0"]


def test_of_one_page_fetched_twice_the_newer_shows() -> None:
    old = hit("old", 0.9, updated_at=1, url="https://a.com/", content_hash="1")
    new = hit("new", 0.8, updated_at=2, url="https://a.com/", content_hash="2")
    assert arranged(old, new) == ["new"]


def test_the_same_content_under_two_addresses_shows_once_from_the_more_trusted() -> None:
    copy = hit("copy", 0.9, url="https://mirror.example.com/", content_hash="1")
    source = hit("source", 0.8, url="https://a.gov/", content_hash="1")
    assert arranged(copy, source) == ["source"]


def test_blanks_make_no_other_content() -> None:
    one, other = ingest(PAGE, PAGE | {"url": "https://b.com", "content": " Tea  is\na drink.\n"})
    assert one.attrs["content_hash"] == other.attrs["content_hash"]


def any_hit(source: int, chunk: int, page: str, text: str, score: float, updated_at: int) -> CorpusHit:
    return hit(f"{source}/{chunk}", score, str(source), updated_at, url=f"https://{page}/", content_hash=text)


hits = st.lists(
    st.builds(
        any_hit,
        st.integers(0, 5),
        st.integers(0, 3),
        st.sampled_from(["a.gov", "a.com", "b.com"]),
        st.sampled_from(["1", "2"]),
        st.floats(0, 1),
        st.integers(0, 2),
    ),
    unique_by=lambda each: each.uri,
)


@given(hits, st.randoms(use_true_random=False))
def test_arranging_adds_nothing_lifts_nothing_keeps_something_and_depends_on_no_order(
    found: list[CorpusHit], chance: random.Random
) -> None:
    before = {each.uri: each for each in found}
    result = corpus().arrange(SESSION, found)
    assert {each.uri for each in result} <= before.keys()
    assert all(0 <= each.score <= before[each.uri].score for each in result)
    assert bool(result) == bool(found)
    assert [each.score for each in result] == sorted((each.score for each in result), reverse=True)
    chance.shuffle(found)
    assert corpus().arrange(SESSION, found) == result

"""Synthetic records: the same for the same seed, and shaped as they claim."""

import re
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.filters import matches
from evaluation.synthetic import DOCUMENT_NODES, Account, Shape, percent
from index.text import analyze

SHAPE = Shape(rows=400, dimensions=16, accounts=5, seed=3)


@given(rows=st.integers(100, 100_000), accounts=st.integers(2, 50))
def test_accounts_share_all_records_and_the_first_holds_half(rows: int, accounts: int) -> None:
    sizes = list(Shape(rows, 8, accounts).sizes().values())
    assert sum(sizes) == rows
    assert len(sizes) == accounts
    assert sizes[0] == rows - rows // 2
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] >= 1


def test_the_same_seed_makes_the_same_records_and_questions() -> None:
    one, same, other = (Account(shape, 0) for shape in (SHAPE, SHAPE, msgspec.structs.replace(SHAPE, seed=4)))
    assert [item.document for item in one.documents()] == [item.document for item in same.documents()]
    assert np.array_equal(one.vectors, same.vectors)
    asked = [[question.text for question in account.questions(5)] for account in (one, same, other)]
    assert asked[0] == asked[1] != asked[2]
    assert not np.array_equal(one.vectors, other.vectors)


def test_accounts_hold_different_records_under_uris_of_their_own() -> None:
    accounts = [Account(SHAPE, number) for number in range(SHAPE.accounts)]
    uris = [uri for account in accounts for uri in account.uris]
    assert len(set(uris)) == SHAPE.rows
    texts = {node.search_text for account in accounts for item in account.documents() for node in item.document.nodes}
    assert len(texts) == SHAPE.rows


def test_a_document_is_a_root_and_its_parts_with_unit_vectors() -> None:
    account = Account(SHAPE, 0)
    items = list(account.documents())
    assert sum(len(item.document.nodes) for item in items) == account.size == 200
    for item in items:
        root, *parts = item.document.nodes
        assert len(parts) == DOCUMENT_NODES - 1
        assert root.has_children and not root.parent_uri
        assert {part.parent_uri for part in parts} == {root.uri}
        assert np.linalg.norm(item.vectors, axis=1) == pytest.approx(1, abs=1e-5)
        assert item.vectors.shape == (DOCUMENT_NODES, SHAPE.dimensions)


def test_texts_are_as_long_as_real_ones_and_in_two_languages() -> None:
    texts = [node.search_text for item in Account(SHAPE, 0).documents() for node in item.document.nodes]
    # jieba may join or cut the words of a text anew.
    assert all(25 <= len(analyze(text).words) <= 90 for text in texts)
    chinese = [sum("一" <= char <= "鿿" for char in text) / len(text) for text in texts]
    assert sum(share > 0.5 for share in chinese) > 20
    assert sum(share < 0.2 for share in chinese) > 20


def test_words_follow_zipf() -> None:
    account = Account(Shape(rows=4_000, dimensions=8, accounts=2), 0)
    counts = Counter(
        word for item in account.documents() for node in item.document.nodes for word in node.search_text.split()
    )
    frequent = [count for _, count in counts.most_common()]
    assert frequent[0] > 5 * frequent[200] > 5 * frequent[2_000]


@pytest.mark.parametrize(("share", "part"), [(1, 0.01), (10, 0.1)])
def test_a_share_keeps_as_many_records_as_its_condition_matches(share: int, part: float) -> None:
    account = Account(Shape(rows=4_000, dimensions=8, accounts=2), 0)
    nodes = [msgspec.structs.asdict(node) for item in account.documents() for node in item.document.nodes]
    kept = {node["uri"] for node in nodes if matches(percent(share), node)}
    assert len(kept) == account.count(share)
    assert part / 2 < len(kept) / account.size < part * 2
    assert set(account.nearest(account.vectors[0], account.size, share)) == kept


def test_the_nearest_are_those_with_the_highest_cosine() -> None:
    account = Account(SHAPE, 1)
    (question,) = account.questions(1)
    cosines = {uri: float(row @ question.vector) for uri, row in zip(account.uris, account.vectors, strict=True)}
    assert account.nearest(question.vector, 7) == sorted(cosines, key=lambda uri: -cosines[uri])[:7]
    assert len(account.nearest(question.vector, 1_000)) == account.size


def test_a_question_is_nearer_to_one_record_than_to_most_and_has_words_of_one() -> None:
    account = Account(SHAPE, 0)
    texts = [node.search_text for item in account.documents() for node in item.document.nodes]
    for question in account.questions(10):
        cosines = account.vectors @ question.vector
        assert cosines.max() > np.median(cosines) + 0.3
        english = re.findall("[a-z]+", question.text)
        assert any(all(word in text for word in english) for text in texts)

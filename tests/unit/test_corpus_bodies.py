"""What the bodies of all corpora share."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidBody
from contracts.requests import Strict
from corpora.rag.bodies import Identifier, Label, Moment, digest, keywords, read, weighed


class Body(Strict):
    """One field of each type."""

    at: Moment | None = None
    id: Identifier | None = None
    label: Label = ""


@pytest.mark.parametrize(
    ("written", "millis"),
    [
        (1_735_689_600_000, 1_735_689_600_000),
        ("2025-01-01", 1_735_689_600_000),
        ("2025-01-01T08:00:00+08:00", 1_735_689_600_000),
        (None, None),
    ],
)
def test_a_moment_is_milliseconds_or_a_date(written: Any, millis: int | None) -> None:
    assert read(Body, {"at": written}).at == millis


@pytest.mark.parametrize("written", [1_735_689_600, 0, -1, 2**60, True, 1.5, "", "soon", [], "2025-13-01"])
def test_what_is_no_moment_is_refused_and_seconds_are_not_taken_for_milliseconds(written: Any) -> None:
    with pytest.raises(InvalidBody) as caught:
        read(Body, {"at": written})
    assert caught.value.field.startswith("at")


@pytest.mark.parametrize("written", [" a", "a ", "a\nb", "a\0", "", " ", "a" * 257, 1])
def test_an_id_that_looks_like_another_or_can_not_be_seen_is_refused(written: Any) -> None:
    with pytest.raises(InvalidBody) as caught:
        read(Body, {"id": written})
    assert caught.value.field == "id"


@pytest.mark.parametrize("written", ["a\0", "\ud800", "a" * 513])
def test_text_that_can_not_be_stored_is_refused(written: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        read(Body, {"label": written})
    assert caught.value.field == "label"
    assert written not in str(caught.value)


@pytest.mark.parametrize("name", ["query", "top_k", "score_threshold"])
def test_fields_with_codes_of_their_own_in_a_search_have_none_in_a_corpus(name: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        read(Body, {name: 1})
    assert (caught.value.field, caught.value.code) == (name, "RET-4220")


@given(st.lists(st.text("ab\0", max_size=3), max_size=3), st.lists(st.text("ab\0", max_size=3), max_size=3))
def test_a_digest_keeps_its_parts_apart(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_keywords_leave_out_what_is_not_there_and_keep_zero() -> None:
    assert keywords(a=None, b="", c=0, d="x") == {"c": ("0",), "d": ("x",)}


@given(st.floats(0, 1), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=3))
def test_weighing_only_lowers_and_not_below_zero(score: float, shares: list[tuple[float, float]]) -> None:
    assert 0 <= weighed(score, *shares) <= score
    assert weighed(score, *((weight, 1.0) for weight, _ in shares)) == score

"""URIs: one parser, one canonical form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import InvalidUri
from contracts.uri import MAX_LENGTH, depth_of, is_under, join, parent_of, parse, space_of


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("strata://shared", "strata://shared"),
        ("strata://shared/", "strata://shared"),
        ("strata://user:ann/notes/2026", "strata://user:ann/notes/2026"),
        ("strata://shared/文档/检索", "strata://shared/文档/检索"),
        ("strata://shared/it's here", "strata://shared/it's here"),
    ],
)
def test_a_good_uri_has_one_canonical_form(text: str, canonical: str) -> None:
    assert parse(text) == canonical
    assert parse(canonical) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "shared/a",
        "http://shared/a",
        "STRATA://shared/a",
        "strata:///a",
        "strata://Shared/a",
        "strata://-x/a",
        "strata://a b/c",
        "strata://shared//a",
        "strata://shared/./a",
        "strata://shared/../a",
        "strata://shared/ /a",
        "strata://shared/%2e%2e/a",
        "strata://shared/a%2Fb",
        "strata://shared/a\\b",
        "strata://shared/a\x00b",
        "strata://shared/a\nb",
        "strata://shared/a\u202eb",
        "strata://shared/ａ",
        "strata://shared/ﬁ",
        "strata://shared/e\u0301",
        "strata://shared/" + "a" * MAX_LENGTH,
    ],
)
def test_traversal_escapes_and_look_alikes_are_refused(text: str) -> None:
    with pytest.raises(InvalidUri) as refusal:
        parse(text, field="target_uri")
    assert refusal.value.field == "target_uri"
    assert refusal.value.message


def test_space_parent_and_depth_are_read_from_the_uri() -> None:
    assert space_of("strata://user:ann/a/b") == "user:ann"
    assert space_of("strata://shared") == "shared"
    assert parent_of("strata://shared/a/b") == "strata://shared/a"
    assert parent_of("strata://shared") == ""
    assert [depth_of(uri) for uri in ("strata://shared", "strata://shared/a", "strata://shared/a/b")] == [0, 1, 2]


def test_under_goes_by_segments() -> None:
    assert is_under("strata://shared/a", "strata://shared/a")
    assert is_under("strata://shared/a/b", "strata://shared/a")
    assert not is_under("strata://shared/ab", "strata://shared/a")


@given(st.text(max_size=40))
def test_whatever_a_segment_is_made_of_the_joined_uri_is_canonical_and_below_its_parent(segment: str) -> None:
    parent = "strata://shared/a"
    uri = join(parent, segment)
    assert parse(uri) == uri
    assert parent_of(uri) == parent
    assert is_under(uri, parent)


@given(st.text(max_size=60).map("strata://{}".format) | st.text(max_size=40))
def test_any_text_is_canonical_or_refused(text: str) -> None:
    try:
        uri = parse(text)
    except InvalidUri:
        return
    assert parse(uri) == uri
    assert "/../" not in f"{uri}/" and "//" not in uri[len("strata://") :]

"""The canonical form of a page's address."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corpora.canonical_url import MAX_URL, canonical, host_of

parts = st.text("aB1.-_~%2eEfF/:@?&=;+ #中ß\\\t", max_size=12)
hosts = st.sampled_from(["a.com", "A.Com.", "中文.com", "[::1]", "1.2.3.4", "x_y.org", "xn--fiq228c.com"])
addresses = st.builds(
    lambda scheme, host, port, rest: f"{scheme}://{host}{port}/{rest}",
    st.sampled_from(["http", "HTTPS"]),
    hosts,
    st.sampled_from(["", ":80", ":443", ":8080"]),
    parts,
)


@pytest.mark.parametrize(
    "spelling",
    [
        "https://example.com/a/b?x=1&y=2",
        "HTTPS://Example.COM/a/b?x=1&y=2",
        "https://example.com:443/a/b/?y=2&x=1",
        "https://example.com./a/./c/../b?x=1&y=2#part",
        "https://example.com/%61/b?x=%31&y=2&utm_source=mail&utm_id=3&fbclid=7",
        "https://user:secret@example.com/a/b?x=1&&y=2&",
        " https://example.com/a/b?x=1&y=2 ",
    ],
)
def test_spellings_of_one_page_are_one(spelling: str) -> None:
    assert canonical(spelling) == "https://example.com/a/b?x=1&y=2"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.com/a", "http://a.com/a"),
        ("https://a.com/a", "https://a.com:8443/a"),
        ("https://a.com/a", "https://a.com/A"),
        ("https://a.com/a%2Fb", "https://a.com/a/b"),
        ("https://a.com/?a=1&a=2", "https://a.com/?a=2&a=1"),
        ("https://a.com/?a=b%26c=d", "https://a.com/?a=b&c=d"),
        ("https://a.com/?q=a+b", "https://a.com/?q=a%2Bb"),
        ("https://a.com/", "https://www.a.com/"),
    ],
)
def test_pages_that_may_differ_stay_apart(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_other_scripts_are_written_in_ascii() -> None:
    assert canonical("http://中文.com/文 字?问=答") == (
        "http://xn--fiq228c.com/%E6%96%87%20%E5%AD%97?%E9%97%AE=%E7%AD%94"
    )
    assert host_of(canonical("http://中文.com/")) == "xn--fiq228c.com"


def test_the_root_has_its_slash() -> None:
    assert canonical("http://a.com") == canonical("http://a.com//") == "http://a.com/"


@pytest.mark.parametrize(
    "text",
    [
        *["", "a.com", "/a", "javascript:alert(1)", "ftp://a.com/", "http:///a", "http://a b.com/", "http://.../"],
        *["http://a.com:99999/", "http://a.com\\b", "http://[::1", "http://[fe80::1%25eth0]/"],
        "http://a.com/" + "a" * MAX_URL,
    ],
)
def test_what_is_no_address_of_a_page_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^it is"):
        canonical(text)


@given(addresses | st.text())
@example("http://a.com/a/%2e%2e/b")
@example("http://a.com/%252e%252e/a")
@example("http://a.com/a//%2e/")
@example("http://a.com/?a=%26utm_source=1")
def test_the_canonical_form_is_its_own(text: str) -> None:
    try:
        once = canonical(text)
    except ValueError:
        return
    assert canonical(once) == once
    assert once.isascii()
    assert len(once) <= MAX_URL


@given(addresses)
def test_no_credentials_and_no_fragment_are_left(text: str) -> None:
    try:
        found = canonical(text)
    except ValueError:
        return
    assert "#" not in found
    assert "@" not in found.split("/")[2]

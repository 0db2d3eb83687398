"""URIs: one parser, one canonical form (C20, C21)."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contracts.errors import InvalidUri
from contracts.uri import MAX_LENGTH, depth_of, is_under, join, parent_of, parse, parse_space, space_of

# What has broken parsers before: separators and what passes for them, escapes, blanks, marks, invisible characters.
ATTACK = st.sampled_from(
    [
        *("/", "//", "/./", "/../", "..", ".", "%2f", "%2e%2e", "%c0%af", "%", "\\", "\\..\\", "?", "#", ";", "@", ":"),
        *("\u2215", "\u2044", "\u29f8", "\uff0f", "\uff3c", "\u2216", "\u0338", "\u2105", "\u2024", "\u2025", "\ufe52"),
        *("\0", "\n", "\t", " ", "\u00a0", "\u3000", "\u2028", "\u1680", "\u2800"),
        *("\u200b", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u034f", "\u115f", "\u3164", "\ufe0f", "\U000e0100"),
        *("\u202e", "\u2066", "\u0301", "\u20dd", "\u0e33", "e\u0301", "\u1100\u1161", "ｓｈａｒｅｄ", "ﬁ", "ﷺ", "①"),
        *("\ud800", "\ue000", "\U000e0041", "\u0378", "\u017f", "\u212a", "\u0455h\u0430re\u0501", "SHARED", "\u0130"),
        *("文档", "ノ", "🙂", "👩🏽\u200d💻"),
    ]
)
NAMES = st.lists(ATTACK | st.text(max_size=4), max_size=6).map("".join)
SPACES = st.from_regex(r"[a-z0-9][a-z0-9._:-]{0,63}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("strata://shared", "strata://shared"),
        ("strata://shared/", "strata://shared"),
        ("strata://user:ann/notes/2026/", "strata://user:ann/notes/2026"),
        ("strata://shared/文档/检索", "strata://shared/文档/检索"),
        ("strata://shared/日本語のノート", "strata://shared/日本語のノート"),
        ("strata://shared/프로젝트", "strata://shared/프로젝트"),
        ("strata://shared/🙂/🇨🇳/👍🏽", "strata://shared/🙂/🇨🇳/👍🏽"),
        ("strata://shared/naïve café", "strata://shared/naïve café"),
        ("strata://shared/it's here (1)", "strata://shared/it's here (1)"),
        ("strata://shared/C#/...", "strata://shared/C#/..."),
        ("strata://shared/" + "a" * (MAX_LENGTH - 16), "strata://shared/" + "a" * (MAX_LENGTH - 16)),
    ],
)
def test_a_good_uri_has_one_canonical_form(text: str, canonical: str) -> None:
    assert parse(text) == canonical
    assert parse(canonical) == canonical


REFUSED = {
    "scheme": ["", "shared/a", "http://shared/a", "STRATA://shared/a", "strata:/shared", "strata:\u2044\u2044shared/a"],
    "space": [
        f"strata://{space}"
        for space in [
            *(
                "",
                "/",
                "/a",
                "//",
                "Shared/a",
                "SHARED",
                "-x/a",
                "a b/c",
                ".",
                "../a",
                "user@host/a",
                "shared /a",
                "a\n/b",
            ),
            *("sh\u0430red/a", "\u0455hared", "共享", "\uff53hared", "shared\u200b/a", "shared\u2215a", "a" * 65),
        ]
    ],
    "segment": [
        f"strata://shared/{path}"
        for path in [
            # Traversal, empty and relative segments.
            *("/", "/a", "a//", "a//b", "./a", "a/.", "../a", "a/..", "../user:bob/x", "a/../../user:bob"),
            *("\u2025/a", "\u2024\u2024/a", "\uff0e\uff0e/a", ".\u200b./a", ".\u034f./a"),
            # Escapes, and what passes for a slash.
            *("%2e%2e/a", "a%2Fb", "a%252fb", "a%c0%afb", "100%", "a\\b", "..\\a", "a\uff3cb", "a\u2216b"),
            *("a\uff0fb", "a\u2215b", "a\u2044b", "a\u29f8b", "a\u0338b", "a\u2105b"),
            # Blanks and what can't be seen.
            *(" /a", " a", "a /b", "a\u00a0b", "a\u3000b", "\u2800", "a\0b", "a\nb", "a\u2028b", "a\u1680b"),
            *("a\u200bb", "a\u200db", "a\ufeff", "a\u00ad", "a\u034fb", "\u115f", "\u3164", "❤\ufe0f", "葛\U000e0100"),
            *("a\u180bb", "a\u202eb", "\u2067a", "a\ud800", "\ue000", "\u0378"),
            # Forms that are not the canonical one, and marks without a letter.
            *("\uff41", "\ufb01", "e\u0301", "\uff76", "\u2460", "\u212a", "\u1100\u1161", "\u017f"),
            *("\u0301", "\u0301a", "\u20dd", "a" * MAX_LENGTH),
        ]
    ],
}


@pytest.mark.parametrize("text", [text for texts in REFUSED.values() for text in texts])
def test_traversal_escapes_and_look_alikes_are_refused_naming_the_field_and_a_remedy(text: str) -> None:
    with pytest.raises(InvalidUri) as refusal:
        parse(text, field="target_uri")
    assert refusal.value.field == "target_uri"
    assert refusal.value.message.startswith("target_uri ")
    assert refusal.value.remedy


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("文档 一", "文档 一"),
        ("ノート", "ノート"),
        ("ﾉｰﾄ", "ノート"),
        ("ＡＢＣ", "ABC"),
        ("cafe\u0301", "café"),
        ("e\u200b\u0301", "é"),
        ("葛\U000e0100城", "葛城"),
        ("❤\ufe0f", "❤"),
        ("👩\u200d💻", "👩💻"),
        ("می\u200cخواهم", "میخواهم"),
        ("a/b\\c", "a-b-c"),
        ("½", "1-2"),
        ("℅", "c-o"),
        ("100%", "100-"),
        (" padded ", "padded"),
        ("", "-"),
        ("\u3164", "-"),
        (".", "-."),
        ("‥", "-.."),
        ("\u0301x", "-\u0301x"),
        ("tab\tand\0nul", "tab-and-nul"),
    ],
)
def test_any_name_becomes_a_segment_that_still_reads_like_it(name: str, segment: str) -> None:
    assert join("strata://shared", name) == parse(f"strata://shared/{segment}")


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


@pytest.mark.parametrize("text", ["", "A", "user:ann/x", "-x", "user ann", "user:ann\n", "用户", "а", "..", "a" * 65])
def test_a_space_is_named_in_plain_ascii(text: str) -> None:
    with pytest.raises(InvalidUri) as refusal:
        parse_space(text)
    assert refusal.value.field == "owner_space"


@given(SPACES, st.lists(NAMES, max_size=4))
def test_a_joined_uri_is_canonical_and_right_below_its_parent(space: str, names: list[str]) -> None:
    uri = parse(f"strata://{space}")
    for depth, name in enumerate(names, 1):
        child = join(uri, name)
        if len(child) > MAX_LENGTH:
            return
        assert parse(child) == child
        assert (parent_of(child), depth_of(child), space_of(child)) == (uri, depth, space)
        assert is_under(child, uri) and not is_under(uri, child)
        assert join(uri, child.removeprefix(f"{uri}/")) == child
        uri = child


@given(
    NAMES.map("strata://{}".format) | NAMES.map("strata://shared/{}".format) | st.text(max_size=40),
    st.sampled_from(["", "/"]),
)
@example("strata://shared//", "")
def test_any_text_is_refused_or_one_slash_from_its_only_canonical_form(text: str, slash: str) -> None:
    """No two spellings of a URI: whatever parses is the canonical text itself, but for one slash at the end."""
    try:
        uri = parse(text + slash)
    except InvalidUri:
        return
    assert parse(uri) == uri
    assert text + slash in {uri, f"{uri}/"}
    assert parse_space(space_of(uri)) == space_of(uri)
    segments = uri.removeprefix("strata://").split("/")
    assert not {"", ".", ".."} & set(segments)
    assert unicodedata.normalize("NFKC", uri) == uri
    assert uri.isprintable() and not re.search(r"[%\\]", uri)

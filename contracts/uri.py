r"""URIs of context nodes: one parser, one canonical form.

``strata://<space>/<segment>/<segment>…`` — the space is the owner space of the node (C20), so whether a URI may be
seen is decided from the URI and the caller alone, without a look-up that could betray existence (C21).
The account is never part of a URI: it comes from the caller's credentials.

A space is ASCII, so no other script can imitate one. Segments take the letters of any script, in Unicode's form NFKC
and without characters that draw nothing or draw a slash. Nothing is unescaped and no case is folded: apart from one
slash at the end, two different texts are two different URIs.
"""

import re
import unicodedata

from contracts.errors import InvalidUri

SCHEME = "strata://"
# Characters, and at most four times as many bytes.
MAX_LENGTH = 1024
_SPACE = re.compile(r"[a-z0-9][a-z0-9._:-]{0,63}")
# Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties, and the blank pattern of Braille.
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Escapes, and what passes for a slash by Unicode's confusables (UTS 39), drawn over another character or by itself.
# Letters that merely resemble one (U+30CE, U+4E3F) stay: people write with them.
_ESCAPING = re.compile(
    r"[%\\\u0337\u0338\u1735\u2041\u2044\u20e5\u20eb\u2215\u2216\u2571\u2572\u27cb\u27cd\u29f5-\u29f9\u2cc6\u3033"
    r"\u31d3\u31d4\U0001d20f\U0001d23a\U0001d23b]"
)
_REMEDY = "Write strata://space/segment/segment, as search results give it."


def parse(text: str, *, field: str = "uri") -> str:
    """Check a URI and return its canonical form.

    Args:
        text: What the caller sent. One slash at the end is dropped; nothing else is mended.
        field: The request field, for the error.

    Raises:
        InvalidUri: Too long, not in form NFKC, without the scheme or a valid space, or with a segment that is empty,
            relative (``.``, ``..``), framed by blanks, led by a combining mark, or holds a percent sign, a backslash,
            a character that passes for a slash, or one that can't be seen.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidUri(f"{field} is longer than {MAX_LENGTH} characters.", field=field, remedy=_REMEDY)
    if not text.startswith(SCHEME):
        raise InvalidUri(f"{field} does not start with {SCHEME}", field=field, remedy=_REMEDY)
    if not unicodedata.is_normalized("NFKC", text):
        raise InvalidUri(f"{field} holds characters that look like others.", field=field, remedy="Use NFKC form.")
    space, *segments = text[len(SCHEME) :].removesuffix("/").split("/")
    parse_space(space, field=field)
    for segment in segments:
        if fault := _fault(segment):
            raise InvalidUri(f"{field} has a segment that {fault}.", field=field, remedy=_REMEDY)
    return "/".join([SCHEME + space, *segments])


def parse_space(text: str, *, field: str = "owner_space") -> str:
    """Check the name of an owner space and return it as it is.

    Raises:
        InvalidUri: It is no 1..64 characters of ``a-z 0-9 . _ : -``, the first a letter or digit.
    """
    if not _SPACE.fullmatch(text):
        raise InvalidUri(f"{field} has no valid space.", field=field, remedy="Spaces are named like user:alice.")
    return text


def join(parent: str, name: str) -> str:
    """The child of a canonical URI by any name, put into the form that ``parse`` takes.

    Compatibility forms become plain, invisible characters go, and what a URI can't hold becomes ``-``. The result is
    canonical, unless it is longer than ``MAX_LENGTH``.
    """
    # The first round may uncover invisible characters, and taking those out may join a letter with its accent.
    plain = unicodedata.normalize("NFKC", _INVISIBLE.sub("", unicodedata.normalize("NFKC", name)))
    safe = "".join(c if c.isprintable() and c != "/" else "-" for c in _ESCAPING.sub("-", plain)).strip()
    return f"{parent}/{f'-{safe}' if _fault(safe) else safe}"


def _fault(segment: str) -> str:
    """What is wrong with a segment in form NFKC; empty when nothing is."""
    if not segment:
        return "is empty"
    if segment in {".", ".."}:
        return "is relative"
    if segment.strip() != segment:
        return "starts or ends with a blank"
    if unicodedata.category(segment[0]).startswith("M"):
        return "starts with a combining mark"
    if not segment.isprintable() or _INVISIBLE.search(segment):
        return "holds a character that can't be seen"
    if _ESCAPING.search(segment):
        return "holds a percent sign, a backslash or a character that passes for a slash"
    return ""


def space_of(uri: str) -> str:
    """The owner space of a canonical URI."""
    return uri[len(SCHEME) :].split("/", 1)[0]


def parent_of(uri: str) -> str:
    """The URI one segment up; empty for a space root."""
    head, _, _ = uri.rpartition("/")
    return head if len(head) > len(SCHEME) else ""


def depth_of(uri: str) -> int:
    """Segments of a canonical URI below its space: 0 for a space root, 1 for what lies directly in it."""
    return uri.count("/") - SCHEME.count("/")


def is_under(uri: str, root: str) -> bool:
    """Whether ``uri`` is ``root`` or lies in its subtree."""
    return uri == root or uri.startswith(root + "/")

"""URIs of context nodes: one parser, one canonical form.

``strata://<space>/<segment>/<segment>…`` — the space is the owner space of the node (C20), so whether a URI may be
seen is decided from the URI and the caller alone, without a look-up that could betray existence (C21).
The account is never part of a URI: it comes from the caller's credentials.
"""

import re
import unicodedata

from contracts.errors import InvalidUri

SCHEME = "strata://"
MAX_LENGTH = 1024
_SPACE = re.compile(r"[a-z0-9][a-z0-9._:-]{0,63}")
_REMEDY = "Write strata://space/segment/segment, as search results give it."


def parse(text: str, *, field: str = "uri") -> str:
    """Check a URI and return its canonical form.

    Args:
        text: What the caller sent. A trailing slash is dropped; nothing else is mended.
        field: The request field, for the error.

    Raises:
        InvalidUri: Wrong scheme, space, length, an empty, ``.`` or ``..`` segment, a percent escape, a backslash,
            a control character, or text that Unicode normalisation (NFKC) would change.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidUri(f"{field} is longer than {MAX_LENGTH} characters.", field=field, remedy=_REMEDY)
    if not text.startswith(SCHEME):
        raise InvalidUri(f"{field} does not start with {SCHEME}", field=field, remedy=_REMEDY)
    if unicodedata.normalize("NFKC", text) != text:
        raise InvalidUri(f"{field} holds characters that look like others.", field=field, remedy="Use NFKC form.")
    space, *segments = text[len(SCHEME) :].rstrip("/").split("/")
    if not _SPACE.fullmatch(space):
        raise InvalidUri(f"{field} has no valid space.", field=field, remedy=_REMEDY)
    for segment in segments:
        if segment in {"", ".", ".."} or not segment.strip() or not _clean(segment):
            raise InvalidUri(f"{field} has an empty, relative or unprintable segment.", field=field, remedy=_REMEDY)
    return "/".join([SCHEME + space, *segments])


def _clean(segment: str) -> bool:
    return "%" not in segment and "\\" not in segment and segment.isprintable()


def join(parent: str, segment: str) -> str:
    """The child of ``parent`` named ``segment``, with characters a URI can't hold replaced by ``-``."""
    safe = unicodedata.normalize("NFKC", segment)
    safe = "".join("-" if c in '/%\\"' or not c.isprintable() else c for c in safe).strip() or "-"
    return f"{parent}/{safe if safe not in {'.', '..'} else '-'}"


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

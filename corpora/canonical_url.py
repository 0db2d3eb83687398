"""One form for all spellings of a page's address, so that the same page again is known as the same."""

import re

from yarl import URL

MAX_URL = 2048
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|[0-9a-f:.]*:[0-9a-f:.]*")
# Parameters that say where a reader came from, and nothing about the page.
_TRACKING = re.compile(
    r"utm_\w*|mtm_\w*|pk_\w*|mc_[ce]id|_hs(enc|mi)|_g[al]|[gdf]clid|fbclid|[gw]braid|msclkid|yclid|twclid|ttclid|igshid"
    r"|vero_id|spm|scm|ref_src",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def canonical(text: str) -> str:
    """The canonical form of an address; the canonical form of that is itself.

    Scheme and host in lower case, the host in ASCII (IDNA) without a dot at its end, no default port, no credentials,
    no dot segments, percent-encoding only where it is needed and in capitals (RFC 3986, 6.2.2), parameters in the
    order of their names; without fragment, tracking parameters and slashes at the end of the path.

    Raises:
        ValueError: It is no absolute http or https address, or one longer than ``MAX_URL``; without its text.
    """
    url = _parsed(text)
    # An encoded dot is a plain one (RFC 3986, 6.2.2.2), so a path may hold dot segments only after the first reading.
    for _ in range(2):
        url = _parsed(_spelled(url))
    if len(spelled := _spelled(url)) > MAX_URL:
        raise ValueError(f"it is longer than {MAX_URL} characters")
    return spelled


def host_of(url: str) -> str:
    """The host of a canonical address."""
    return URL(url, encoded=True).raw_host or ""


def _parsed(text: str) -> URL:
    try:
        url = URL(text.strip())
        known = url.scheme in _DEFAULT_PORTS and _HOST.fullmatch(_host(url))
    except ValueError:
        known = None
    if not known:
        raise ValueError("it is no absolute http or https address")
    return url


def _host(url: URL) -> str:
    return (url.raw_host or "").lower().rstrip(".")


def _spelled(url: URL) -> str:
    host = f"[{_host(url)}]" if ":" in _host(url) else _host(url)
    port = "" if url.port in {None, _DEFAULT_PORTS[url.scheme]} else f":{url.port}"
    path = url.raw_path.rstrip("/") or "/"
    named = [(part.partition("=")[0], part) for part in url.raw_query_string.split("&") if part]
    kept = sorted((each for each in named if not _TRACKING.fullmatch(each[0])), key=lambda each: each[0])
    query = "&".join(part for _, part in kept)
    return f"{url.scheme}://{host}{port}{path}{f'?{query}' if query else ''}"

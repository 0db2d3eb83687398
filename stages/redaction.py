"""Takes secrets out of L2 text before it leaves (C23)."""

import re

MASK = "[redacted]"

# Each pattern masks its group ``secret``, or the whole match where it has none.
_PATTERNS = [
    re.compile(pattern)
    for pattern in [
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----",
        r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",  # JWT
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{36,}\b",
        r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
        r"\bsk-[A-Za-z0-9_-]{20,}",
        r"\bstrata_[a-z0-9]{6,}_[A-Za-z0-9_-]{20,}",
        r"(?i)\b[a-z][a-z0-9+.-]*://[^\s:/@]+:(?P<secret>[^\s@/]+)@",
        r"(?i)\bauthorization\s*:\s*(?:bearer|basic)\s+(?P<secret>[\w.~+/=-]{8,})",
        # A quoted value given to a telling name, as in source code and JSON.
        r"(?i)\b[\w-]*(?:passwd|password|secret|api[_-]?key|access[_-]?key|auth[_-]?token|access[_-]?token)"
        r"[\"']?\s*(?:[:=]|=>)\s*[\"'](?P<secret>[^\"'\s]{6,})[\"']",
        # An unquoted one alone on its line, as in .env files.
        r"(?m)^\s*(?:export\s+)?[A-Z0-9_]*(?:PASSWORD|SECRET|API_KEY|ACCESS_KEY|TOKEN)\s*=\s*"
        r"(?P<secret>[^\s\"'(){}]{6,})$",
    ]
]


def redact(text: str) -> str:
    """The text with tokens, keys, passwords and credentials replaced by ``[redacted]``."""
    for pattern in _PATTERNS:
        text = pattern.sub(_masked, text)
    return text


def _masked(match: re.Match[str]) -> str:
    whole = match.group(0)
    if "secret" not in match.re.groupindex:
        return MASK
    start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
    return whole[:start] + MASK + whole[end:]

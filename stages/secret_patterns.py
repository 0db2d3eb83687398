r"""What secrets look like, in RE2's syntax: its time is linear in the text, whatever the text is.

There are two kinds. Formats tell by themselves what they are: a GitHub token, a private key. Other values are told by
what stands beside them: ``password = …``, ``密码：…``. Source code is full of such names, so these are held to a check:
a call, a type or a template is no secret. What follows ``password`` is one in case of doubt; what follows ``token``
must look random.
"""

import re
from collections.abc import Callable
from typing import NamedTuple


class Secret(NamedTuple):
    """What a rule matched.

    Args:
        value: The start of what would be masked, at most 256 characters.
        label: The name that stands beside it, where the rule captures that.
        before: The character before it, where the rule looks at that.
        after: The character after it; likewise.
    """

    value: str
    label: str = ""
    before: str = ""
    after: str = ""


class Rule(NamedTuple):
    """A pattern, whose group ``secret`` is masked, or else the whole match; ``check`` has the last word."""

    pattern: str
    check: Callable[[Secret], bool] = lambda secret: True


# Labels after which a value must look random.
_WEAK = frozenset({"token", "pwd", "credential", "credentials"})
# Somewhere in a value: the rest of it is filled in or left out.
_HOLE = re.compile(r"\$[{(]|\{\{|%[(drs]|\.\.\.|…|\*\*\*|•••")
# A whole value that is a hole, a type, or the name of what belongs there.
_STAND_IN = re.compile(
    r"\$\w*|[<{\[(].*|#\{.*|%\w+%|[xX*._-]+"
    r"|(?i:none|null|nil|true|false|undefined|required|optional|str(?:ing)?|int(?:eger)?|bool(?:ean)?|bytes|number|text"
    r"|any|object|default|empty|\w*[._-]?(?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|key)s?)"
)
# A value with blanks that speaks about secrets is a label in a form or a message.
_PROSE = re.compile(r"(?i)pass|secret|token|key|credential|character|requir|invalid|enter|must|your")
_HUMPS = r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:\d{0,3}[A-Z][a-z]+)*\d{0,3}"
# Names, versions, paths and numbers: words, joined by what joins words.
_NAME = re.compile(rf"[~./@_-]*{_HUMPS}(?:[._:/@-]+(?:{_HUMPS}|\d{{1,4}}))*(?:[/:]|\(\))?|[\d_.,-]+")
# Not in quotes, these are code.
_CODE = re.compile(
    r"[a-z]+\d{0,4}(?:_(?:[a-z]+\d{0,4}|\d{1,4}))+|\w+(?:\.[A-Za-z_]\w*)+|\w+://.*"
    r"|(?i:u?int\d+\w*|float\d+|(?:sha|aes|md|utf|base|rsa|hs|rs|es|ed|blake)[_-]?\d\w*)"
)
# Visa; Mastercard in two ranges, Mir; American Express; Discover; UnionPay; Diners; JCB.
_BRANDS = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:20[0-4]|22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|62\d{14}(?:\d{3})?|3(?:0[0-5]|[68]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}"
)


def given(secret: Secret) -> bool:
    """The value stands there itself, rather than a hole for it, its type, or a sentence about it."""
    value = secret.value
    spoken = re.search(r"\s", value) and _PROSE.search(value)
    return not (spoken or _HOLE.search(value) or _STAND_IN.fullmatch(value))


def opaque(secret: Secret) -> bool:
    """The value looks random: one word, not a name in code, and of two kinds of characters at least."""
    value = secret.value
    kinds = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum())
    spread = sum(any(map(kind, value)) for kind in kinds)
    return given(secret) and spread > 1 and not _NAME.fullmatch(value) and not re.search(r"\s|://", value)


def quoted(secret: Secret) -> bool:
    """A literal, which after a strong label needs no further sign."""
    return opaque(secret) if secret.label.lower() in _WEAK else given(secret)


def bare(secret: Secret) -> bool:
    """Not in quotes, so it must not be code: after a strong label a digit tells, after a weak one randomness.

    A parameter of a URL, with ``?`` or ``&`` before it, ends elsewhere: it has a rule of its own.
    """
    if secret.before or secret.after or _CODE.fullmatch(secret.value):
        return False
    return opaque(secret) or (secret.label.lower() not in _WEAK and numbered(secret))


def numbered(secret: Secret) -> bool:
    """In a sentence, a word with a digit in it."""
    return given(secret) and bool(re.search(r"\d", secret.value))


def card(secret: Secret) -> bool:
    """A card number: a brand's prefix and length, and the check digit of Luhn (ISO/IEC 7812-1)."""
    digits = re.sub(r"\D", "", secret.value)
    if secret.before or secret.after or not _BRANDS.fullmatch(digits):
        return False
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0


_FORMATS = {
    # Until its end, or as far as the text goes on in base64 when the end is cut off; or its end alone, in a chunk.
    "private_key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]*(?:-{1,4}[^-]+)*-----END [A-Z0-9 ]*-----"
    r"|(?:\s*[A-Z][\w-]*: [^\n]*)*(?:[\s\"'\\,]*[\w+/=]{16,})+[\w+/=\s]*)"
    r"|(?:[\w+/=]{16,}[\s\"'\\,]+)+(?:[\w+/=]+[\s\"'\\,]+)?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "jwt": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}|\beyJ[\w-]{8,}(?:\.[\w-]*){4}",
    "aws": r"\b(?:ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}\b",
    "google": r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}|\b1//0[\w-]{30,}",
    "azure": r"\b[\w~.]{3}\dQ~[\w~.-]{31,34}|\bsig=(?P<secret>[A-Za-z0-9%+/]{40,}=?)",
    "alibaba": r"\bLTAI[A-Za-z0-9]{12,26}\b",
    "tencent": r"\bAKID[A-Za-z0-9]{13,40}\b",
    "github": r"\bgh[opsur]_[A-Za-z0-9]{36,}|\bgithub_pat_\w{22,}",
    "gitlab": r"\bgl(?:agent|cbt|dt|ft|imt|oas|pat|ptt|rt|soat)-[\w.-]{20,}",
    "slack": r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{20,}"
    r"|hooks\.slack\.com/(?:services|triggers|workflows)/(?P<secret>[\w/-]{20,})",
    "chat": r"(?:feishu\.cn/open-apis/bot/v2/hook|discord(?:app)?\.com/api/webhooks/\d+)/(?P<secret>[\w-]{20,})",
    "stripe": r"\b[rs]k_(?:live|test)_\w{16,}|\bwhsec_[\w+/=]{20,}",
    "models": r"\bsk-(?:ant-|or-|proj-|svcacct-)[\w-]{20,}|\bsk-[A-Za-z0-9]{20,}"
    r"|\bhf_[A-Za-z0-9]{30,}|\bgsk_[A-Za-z0-9]{40,}",
    "registries": r"\bnpm_[A-Za-z0-9]{36}|\bpypi-[\w-]{50,}|\bdckr_(?:oat|pat)_[\w-]{20,}",
    "services": r"\bSG\.[\w-]{16,}\.[\w-]{16,}|\bdo[opr]_v1_[0-9a-f]{64}|\bdapi[0-9a-f]{32}|\bhv[bsr]\.[\w-]{24,}"
    r"|\bATATT3[\w=-]{20,}|\b\d{8,10}:AA[\w-]{33}|\bAGE-SECRET-KEY-1[A-Z0-9]{58}",
    "strata": r"\bstrata_[a-z0-9]{6,}_[\w-]{20,}",
    "password_hash": r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{53}|\$[156y]\$[\w./$=,]{20,}"
    r"|\$argon2(?:d|i|id)\$[\w./$=,+]{20,}",
}

_LABEL = (
    r"(?P<label>passw(?:or)?d|passphrase|passcode|pwd|secret|credentials?|token"
    r"|(?:access|account|api|app|auth|client|encryption|license|master|private|secret|service|signing)[_-]?key)"
)
# Between a name and its value `=`, `:=`, `=>`, `:` or `: type =`; the name's quotes may be escaped, as in JSON in JSON.
_IS = r"\\?[\"'`\]]{0,2}(?:\s*:\s*[\w.|\[\] ]{1,32}=|\s*(?:=>|:=|[:=]))\s*"
_IS_HERE = r"\\?[\"']?[ \t]*(?:=>|:=|[:=])[ \t]*"
_CJK_LABEL = r"(?:密码|口令|密钥|秘钥|令牌|私钥|授权码|パスワード|비밀번호)\s*(?:[:：=＝]|是|为|為|は)\s*"
_LABELLED = {
    **{
        f"quoted_{name}": Rule(rf"(?i){_LABEL}{_IS}[bfru@]{{0,2}}\\?{q}(?P<secret>[^{q}\\\n]{{4,}})\\?{q}", quoted)
        for name, q in (("double", '"'), ("single", "'"), ("back", "`"))
    },
    "bare": Rule(
        rf"(?i)(?P<before>[?&]?)[\w.-]*?{_LABEL}{_IS_HERE}"
        r"(?P<secret>[^\s\"'`<>;,(){}\[\]|]{4,})(?P<after>[(\[{]?)",
        bare,
    ),
    # A line of a .env file or a shell script: an equal sign without blanks leaves no doubt.
    "env": Rule(
        r"(?m)^[ \t]*(?:(?:export|set|ENV|ARG|-e|-)[ \t]+)?[A-Z0-9_]*"
        r"(?P<label>PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|SECRET|TOKEN|CREDENTIALS?"
        r"|(?:ACCESS|API|ENCRYPTION|MASTER|PRIVATE|SECRET|SIGNING)_?KEY)(?:_[A-Z0-9]{1,8})?"
        r"=(?P<secret>[^\s\"'#;]{4,})[ \t]*$",
        quoted,
    ),
    "authorization": Rule(
        r"(?i)\bauthorization\\?[\"']?\s*[:=,]\s*\\?[\"'`]?(?:apikey|basic|bearer|key|token)\s+"
        r"(?P<secret>[\w.~+/=:-]{8,})",
        opaque,
    ),
    "bearer": Rule(r"(?i)\bbearer\s+(?P<secret>[\w.~+/=-]{20,})", opaque),
    "url_password": Rule(r"://[^\s:/@\"'<>]*:(?P<secret>[^\s/\"'<>\[\]]+)@", given),
    "url_token": Rule(r"://(?P<secret>[\w-]{20,})(?::x-oauth-basic)?@", opaque),
    "url_parameter": Rule(
        r"(?i)[?&;](?:access_?token|api_?key|auth_?token|client_?secret|key|passw(?:or)?d|pwd|refresh_?token|secret|sig"
        r"|signature|token|x-amz-(?:credential|security-token|signature))=(?P<secret>[^\s&;#\"'`<>)]{8,})",
        opaque,
    ),
    "option": Rule(
        r"(?i)\s--?(?:pass(?:wd|word|phrase)?|token|secret|(?:access|api|auth)-?(?:key|token))(?:=|\s+)[\"']?"
        r"(?P<secret>[^\s\"'`<>$(){}\[\]|]{4,})",
        opaque,
    ),
    "curl": Rule(r"\bcurl\b[^\n]*?\s(?:-u|--user)\s*[\"']?[^\s:\"']+:(?P<secret>[^\s\"'`<>]{3,})", given),
    "client": Rule(r"\b(?:mysql\w*\b[^\n]*?\s-p|sshpass\s+-p\s*)[\"']?(?P<secret>[^\s\"'`<>]{4,})", given),
    "sql": Rule(r"(?i)\b(?:identified\s+by|password)\s+'(?P<secret>[^'\n]{4,})'", given),
    "xml": Rule(rf"(?i)<[\w:.-]*{_LABEL}>(?P<secret>[^<\s]{{4,}})</", quoted),
    "netrc": Rule(r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S{3,})", given),
    "said": Rule(
        r"(?i)\b(?:pass(?:code|phrase|word)|pin)[ \t]+(?:is|was|are)[ \t]*:?[ \t]*[\"'“`]?"
        r"(?P<secret>[^\s\"'“”`<>,;:()]{3,}[^\s\"'“”`<>,;:().?!])",
        numbered,
    ),
    "cjk": Rule(rf"{_CJK_LABEL}(?P<secret>[^\s\"'`<>;,(){{}}\[\]|\\\x80-\x{{10FFFF}}]{{4,}})(?P<after>[(\[{{]?)", bare),
    "cjk_quoted": Rule(rf"{_CJK_LABEL}[“\"'「『](?P<secret>[^”\"'」』\s]{{4,}})[”\"'」』]", given),
    "card": Rule(
        r"(?P<before>[\w.-]?)\b(?P<secret>\d{13,19}|\d{4}(?: \d{4}){3}(?: \d{3})?|\d{4}(?:-\d{4}){3}(?:-\d{3})?"
        r"|\d{4} \d{6} \d{4,5}|\d{4}-\d{6}-\d{4,5}|\d{6} \d{13})\b(?P<after>[\w-]?)",
        card,
    ),
}
RULES = {name: Rule(pattern) for name, pattern in _FORMATS.items()} | _LABELLED

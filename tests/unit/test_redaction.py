"""Secrets in texts (C23): what is masked, and what is not."""

import base64
import hashlib
import sysconfig
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stages.redaction import RedactionConfig, Redactor

REDACTOR = Redactor(RedactionConfig())
MASK = "[redacted]"
RANDOM = "q8Zk2mPw71LxV0sJ4tYb9RdCeFgHiNoA3uWz6KXQ"
PEM = "-----BEGIN {0} KEY-----\nMIIEowIBAAKCAQEA7bq9\nZm9vYmFyYmF6cXV4Zm9v\nxyz=\n-----END {0} KEY-----"

# Put together here, so that no scanner of this repository takes them for real ones.
FORMATS = [
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ASIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "GOCSPX-" + RANDOM[:28],
    "LTAI" + "5tQ7wErTyUiOpAsDfGhJkL"[:20],
    "AKID" + RANDOM[:32],
    "abc8Q~" + RANDOM[:34],
    "ghp_" + RANDOM[:36],
    "gho_" + RANDOM[:36],
    "github_pat_" + "11ABCDEFG0" + RANDOM,
    "glpat-" + RANDOM[:20],
    "xoxb-" + "123456789012-" + RANDOM[:24],
    "xapp-1-" + RANDOM[:30],
    "sk_live_" + RANDOM[:24],
    "rk_test_" + RANDOM[:24],
    "whsec_" + RANDOM[:32],
    "sk-" + RANDOM + RANDOM[:8],
    "sk-proj-" + RANDOM[:20] + "_" + RANDOM[:20],
    "sk-ant-" + "api03-" + RANDOM + "-AA",
    "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz" + "123456",
    "npm_" + RANDOM[:36],
    "pypi-" + "AgEIcHlwaS5vcmc" + RANDOM + RANDOM,
    "SG." + RANDOM[:22] + "." + RANDOM,
    "hvs." + RANDOM[:28],
    "123456789:AA" + RANDOM[:33],
    "strata_" + "0a1b2c_" + RANDOM,
    "eyJhbGciOiJIUzI1" + ".eyJzdWIiOiIxMjM0" + ".SflKxwRJSMeKKF2QT4",
    "$2b$12$" + "abcdefghijklmnopqrstuv0123456789ABCDEFGHIJKLMNOPQRSTU",
    "$argon2id$v=19$m=65536,t=3,p=4$" + RANDOM,
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "5555555555554444",
    "2223003122003222",
    "378282246310005",
    "3782 822463 10005",
    "6011111111111117",
    "30569309025904",
    "3530111333300000",
    "6222 0212 3456 7890 128",
    PEM.format("PRIVATE")[28:],
    *(PEM.format(kind) for kind in ("PRIVATE", "RSA PRIVATE", "EC PRIVATE", "OPENSSH PRIVATE", "ENCRYPTED PRIVATE")),
    PEM.format("PRIVATE").replace("\n", "\\n"),
    PEM.format("RSA PRIVATE").replace("-\nM", "-\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\nM", 1),
]
# Text before, secret, text after.
LABELLED = [
    ('password = "', "hunter2hunter2", '"'),
    ("db_password='", "swordfish", "',"),
    ('passphrase: "', "correct horse battery staple", '"'),
    ('password: str = "', "correct horse", '"'),
    ("const apiKey = `", "k-92hf82hf", "`;"),
    ("'api_key': '", "k-92hf82hf", "'"),
    ('{"client_secret":"', RANDOM[:16], '"}'),
    ('{\\"password\\": \\"', "pa55word!", '\\"}'),
    ('os.environ["DB_PASSWORD"] = "', "abc123xyz", '"'),
    ('"accessKeySecret" => "', RANDOM[:30], '"'),
    ('auth_token = "', RANDOM[:20], '"'),
    ("aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""),
    ("spring.datasource.password=", "Tr0ub4dor&3", ""),
    ("password: ", "hunter2", ""),
    ("  api_key: ", "k-92hf82hf", "  # for tests"),
    ("Server=db;User Id=app;Password=", "Xy7-Zt!q", ";Encrypt=True"),
    ("DefaultEndpointsProtocol=https;AccountKey=", base64.b64encode(RANDOM.encode()).decode(), ";EndpointSuffix=x"),
    ("export DB_PASSWORD=", "correct-horse", ""),
    ("REDIS_PASS=", "swordfish", ""),
    ("SECRET_KEY=", "django-insecure-x9", ""),
    ("NPM_TOKEN=", RANDOM[:20], ""),
    ("  - MYSQL_ROOT_PASSWORD=", "root1234", ""),
    ("//registry.example.org/:_authToken=", RANDOM[:24], ""),
    ("Authorization: Bearer ", "abc.def-123456", ""),
    ("authorization: Basic ", base64.b64encode(b"aladdin:opensesame").decode(), ""),
    ("-H 'Authorization: token ", RANDOM[:24], "'"),
    ("sends Bearer ", RANDOM[:24], " with each call"),
    ("postgres://app:", "S3cr3t!pw", "@db:5432/x"),
    ("amqp://guest:", "p@ss", "@mq"),
    ("redis://:", "swordfish", "@cache:6379/0"),
    ("https://", RANDOM[:24], "@github.com/a/b.git"),
    ("https://x.example/hook?access_token=", RANDOM[:32], "&v=1"),
    ("https://h.blob.example/c?sp=r&sig=", "aB3dE%2Fgh1jKlMn0pQrStUvWxYz0123456789aBcD%3D", ""),
    ("https://hooks.slack.com/services/", "T00000000/B00000000/" + RANDOM[:24], ""),
    ("https://open.feishu.cn/open-apis/bot/v2/hook/", "0a1b2c3d-" + RANDOM[:20], ""),
    ("mycli login --password ", "hunter2!x", " --host db"),
    ("mycli --api-key=", "k-92hf82hf", ""),
    ("curl -s -u alice:", "wonderland", " https://x.example"),
    ("mysql -u root -p", "rootpw99", " shop"),
    ("CREATE USER app IDENTIFIED BY '", "geheim", "';"),
    ("<password>", "hunter2", "</password>"),
    ("machine api.example.org login ann password ", "wonderland", ""),
    ("The password is ", "hunter2", "."),
    ("密码：", "abc123!@", "，请勿外传"),
    ("管理员口令是", "Admin@2026", "。"),
    ("密钥为 ", RANDOM[:24], ""),
    ("数据库密码: ", "P@ssw0rd", ""),
    ("登录密码：「", "春眠不觉晓", "」"),
    ("配置 secret: '", "一二三四五六七八", "'"),
    ("パスワード：", "sakura#2026", "です"),
]
ORDINARY = [
    # Code in the style of Python's own library.
    "def check(password, token=None): return hash(password)",
    "password = getpass()",
    "password = getpass.getpass('Password: ')",
    "token = self.next_token()",
    "token = tokens.pop()",
    "self.password = password",
    "token=token, password=password, secret=secret,",
    "login(user, password=os.environ['DB_PASSWORD'])",
    "api_key = config.get('api_key')",
    "secret_key: bytes = secrets.token_bytes(32)",
    "class Token(NamedTuple):\n    kind: str\n    token: Uint8Array",
    "password: str | None = None",
    "if token == 'identifier' or token != \"NAME\":",
    "PASSWORD_FIELD = 'password'",
    "parser.add_argument('--password', help='Password of the user')",
    "usage: prog --token TOKEN --password PASSWORD [--api-key KEY]",
    "TOKEN = tokenize.OP",
    "max_tokens = 128000",
    "key = sorted(d.items(), key=lambda kv: kv[1])",
    "raise ValueError('the access token is missing')",
    "password = '%s:%s' % (user, realm)",
    'password = "${DB_PASSWORD}"',
    'password = f"{user}:{realm}"',
    "password: {{ vault_password }}",
    "TOKEN=$(cat token.txt)",
    "API_KEY=<your key>",
    'api_key="hf_..."',
    '"password": "********"',
    '"password": "Enter your password"',
    '"token": "string"',
    "Authorization: Bearer <token>",
    "Authorization: Basic authentication is described in RFC 7617.",
    "from cryptography.hazmat.primitives.serialization import load_pem_private_key",
    "-----BEGIN CERTIFICATE-----\nMIIBszCCARygAwIBAgIUQ\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEB\n-----END PUBLIC KEY-----",
    "if line.startswith('-----BEGIN PRIVATE KEY-----'): return line in text",
    # Prose.
    "the secret of good cooking is patience",
    "Your password is required and must have at least 8 characters.",
    "if the password is None: ask for it",
    "token: a word, a number or a sign",
    "密码长度至少为八位",
    "密码：必填，字符串",
    "令牌：string",
    "密钥：AES-256",
    "这个秘密是大家都知道的",
    "see https://example.org/path?key=1&token=next-page",
    "https://user@example.org:8080/a:b@c",
    "git@github.com:owner/repository.git",
    # Numbers and identifiers that stand for nothing secret.
    f"commit {hashlib.sha1(b'x').hexdigest()}",
    f"sha256:{hashlib.sha256(b'x').hexdigest()}",
    f"id = {uuid.UUID(int=0x4111_1111_1111_1111_1111_1111_1111_1111)}",
    f"![logo](data:image/png;base64,{base64.b64encode(bytes(range(256)) * 4).decode()})",
    "1234567890123456",
    "4111111111111112",
    "0.4111111111111111",
    "order 4111111111111111-7",
    "x4111111111111111",
    "timestamps 1735689600000 1735689600000000 2026-11-30 05:11:47",
    "+86 138 0013 8000, 6222 0212 3456",
    "[4503599627370496, 9007199254740993]",
]

PACKAGES = ("asyncio", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "urllib", "xml")


@pytest.mark.parametrize("secret", FORMATS)
@pytest.mark.parametrize("frame", ["before {} after", "值：{}。", "({})", "{}"])
def test_secrets_of_a_known_format_are_masked_wherever_they_stand(secret: str, frame: str) -> None:
    assert REDACTOR.redact(frame.replace("{}", secret)) == frame.replace("{}", MASK)


@pytest.mark.parametrize(("before", "secret", "after"), LABELLED)
def test_a_value_that_is_called_a_secret_is_masked_and_nothing_beside_it(before: str, secret: str, after: str) -> None:
    assert REDACTOR.redact(f"one\n{before}{secret}{after}\ntwo") == f"one\n{before}{MASK}{after}\ntwo"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_and_code_stays(text: str) -> None:
    assert REDACTOR.redact(text) == text


def test_the_modules_of_pythons_own_library_stay_but_for_one_line_with_a_password() -> None:
    """False positives by the megabyte: the other line is the grammar ``token = 1*tchar`` of RFC 7230."""
    library = Path(sysconfig.get_paths()["stdlib"])
    modules = [*library.glob("*.py"), *(path for part in PACKAGES for path in (library / part).glob("*.py"))]
    texts = [path.read_text("utf-8") for path in modules]
    assert sum(map(len, texts)) > 5_000_000
    changed = {
        line.strip() for text in texts for line in set(text.splitlines()) - set(REDACTOR.redact(text).splitlines())
    }
    assert changed <= {"passwd='geheim$parole')", "# token          = 1*tchar"}


class TestConfiguration:
    """What a deployment adds."""

    def test_own_patterns_mask_their_group_or_all_they_match(self) -> None:
        redactor = Redactor(
            RedactionConfig(patterns={"badge": r"\bB-\d{6}\b", "room": r"room (?P<secret>\w+)"}, mask="***")
        )
        assert redactor.redact("badge B-123456, room 4711, ghp_" + RANDOM[:36]) == "badge ***, room ***, ***"

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"patterns": {"bad": "("}}, r"the pattern bad: missing \): \("),
            ({"patterns": {"behind": "(?<=x)y"}}, "behind"),
            ({"patterns": {"again": r"(a)\1"}}, "again"),
            ({"patterns": {"empty": "x*"}}, "empty"),
            ({"patterns": {"empty": ""}}, "empty"),
            ({"patterns": {"huge": "((a{1000}){1000}){1000}"}}, "huge"),
            ({"mask": ""}, "mask"),
            ({"levels": ("L1",)}, "L2 is always redacted"),
            ({"levels": ("L3",)}, "levels"),
            ({"colour": "red"}, "colour"),
        ],
    )
    def test_a_wrong_setting_is_refused_by_name(self, changes: dict[str, object], reason: str) -> None:
        with pytest.raises(ValidationError, match=reason):
            RedactionConfig(**changes)  # type: ignore[arg-type]

    def test_a_pattern_that_backtracking_would_never_finish_is_linear(self) -> None:
        redactor = Redactor(RedactionConfig(patterns={"greedy": r"(x+x+)+y", "nested": r"(?:a|a?)+b{20}"}))
        assert redactor.redact("x" * 20_000 + "a" * 20_000) == "x" * 20_000 + "a" * 20_000

    def test_l2_is_masked_always_and_the_other_levels_where_they_are_named(self) -> None:
        text, masked = "password = 'hunter2!'", f"password = '{MASK}'"
        assert REDACTOR.shown(text, "L2") == masked
        assert REDACTOR.shown(text, "L1") == REDACTOR.shown(text, "L0") == text
        everywhere = Redactor(RedactionConfig(levels=("L0", "L1", "L2")))
        assert everywhere.shown(text, "L0") == everywhere.excerpt(text, "L1", 100) == masked


@pytest.mark.parametrize("limit", [10, 20, 30, 36, 37, 38, 60, 200])
@pytest.mark.parametrize("secret", [PEM.format("RSA PRIVATE"), "ghp_" + RANDOM[:36], "password: " + RANDOM])
def test_a_cut_never_lets_the_start_of_a_secret_pass(secret: str, limit: int) -> None:
    text = "An introduction, then: " + secret + " and so on." * 50
    excerpt = REDACTOR.excerpt(text, "L2", limit)
    assert len(excerpt) <= limit
    assert excerpt.endswith("…")
    assert not any(secret[i : i + 8] in excerpt for i in range(12, len(secret) - 7))


def test_a_text_within_the_limit_is_not_cut() -> None:
    assert REDACTOR.excerpt("plain", "L2", 5) == "plain"
    assert REDACTOR.excerpt("plain text", "L1", 5) == "plai…"


PIECES = st.sampled_from(
    [
        *FORMATS,
        *(part for parts in LABELLED for part in parts),
        *(ORDINARY[:40]),
        *(
            "password",
            "=",
            ":",
            '"',
            "'",
            "://",
            "@",
            "[",
            "]",
            MASK,
            "\n",
            " ",
            "-----BEGIN PRIVATE KEY-----",
            "密码：",
        ),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=12).map("".join)


@given(TEXTS)
def test_redacting_again_changes_nothing_and_the_text_grows_by_the_masks_at_most(text: str) -> None:
    once = REDACTOR.redact(text)
    assert REDACTOR.redact(once) == once
    assert len(once) <= len(text) + len(MASK) * once.count(MASK)
    # What is left is what was there, in order.
    at = 0
    for part in once.split(MASK):
        at = text.index(part, at) + len(part)


@given(
    TEXTS,
    st.sampled_from(["e", r"[a-z]+", r"\W", r"d\]\[r", r"(?P<secret>.)="]),
    st.sampled_from([MASK, "e", "==", "x y"]),
)
def test_no_pattern_of_ones_own_makes_a_text_grow_without_bound(text: str, pattern: str, mask: str) -> None:
    redactor = Redactor(RedactionConfig(patterns={"own": pattern}, mask=mask))
    assert len(redactor.redact(text)) <= len(text) * len(mask)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_text_without_a_secret_is_returned_as_it_is(text: str) -> None:
    masked = REDACTOR.redact(text)
    assert masked == text or MASK in masked


@given(TEXTS, st.integers(2, 80))
def test_an_excerpt_is_the_start_of_the_masked_text_within_the_limit(text: str, limit: int) -> None:
    excerpt = REDACTOR.excerpt(text, "L2", limit)
    assert len(excerpt) <= limit
    assert REDACTOR.redact(excerpt) == excerpt or excerpt.endswith("…")

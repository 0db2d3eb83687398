"""Secrets in L2 (C23): what is masked, and what is not."""

import pytest

from stages.redaction import MASK, redact


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('password = "hunter2hunter2"', "hunter2hunter2"),
        ("'api_key': 'k-92hf82hf'", "k-92hf82hf"),
        ("Authorization: Bearer abc.def-123456", "abc.def-123456"),
        ("postgres://app:S3cr3t!pw@db:5432/x", "S3cr3t!pw"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("ghp_" + "a1B2" * 9, "ghp_" + "a1B2" * 9),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4", "SflKxwRJSMeKKF2QT4"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nxyz\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("export DB_PASSWORD=correct-horse", "correct-horse"),
        ("配置 secret: '一二三四五六七八'", "一二三四五六七八"),
    ],
)
def test_secrets_are_masked(text: str, secret: str) -> None:
    masked = redact(f"before\n{text}\nafter")
    assert secret not in masked
    assert MASK in masked
    assert masked.startswith("before\n")
    assert masked.endswith("\nafter")


@pytest.mark.parametrize(
    "text",
    [
        "def check(password, token=None): return hash(password)",
        "token = tokens.pop()",
        "the secret of good cooking is patience",
        "密码长度至少为八位",
        "see https://example.org/path?key=1",
        "password: str",
    ],
)
def test_ordinary_text_and_code_stays(text: str) -> None:
    assert redact(text) == text

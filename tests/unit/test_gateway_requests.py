"""The body of POST /memories/search: what is taken, and which field a 422 names."""

import json
from typing import Any

import pytest

from contracts.errors import InvalidBody
from gateway.requests import parse

LEAST = {"user_id": "alice", "user_key": "k", "query": "tea"}


def parsed(**fields: Any) -> Any:
    return parse(json.dumps({**LEAST, **fields}).encode())


def test_what_is_left_out_has_the_defaults_of_the_gateway() -> None:
    """G1."""
    request = parsed()
    assert (request.method, request.top_k, request.radius) == ("hybrid", 8, None)
    assert request.include_profile
    assert request.enable_llm_rerank
    assert (request.app_id, request.project_id, request.agent_id, request.filters) == ("default", "default", None, None)


@pytest.mark.parametrize("top_k", [-1, 1, 8, 100])
def test_top_k_is_minus_one_or_1_to_100(top_k: int) -> None:
    """G1; acceptance 3 of seed 2."""
    assert parsed(top_k=top_k).top_k == top_k


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("top_k", value) for value in (0, -2, 101, 2**70, 1.5, "8", True, None)),
        *(("radius", value) for value in (-0.1, 1.1, "0.5")),
        *(("method", value) for value in ("HYBRID", "llm_multiround", "", None)),
        *(("query", value) for value in ("", "  \n", "x" * 8193, "a\0b", None, 1)),
        *(("scope", value) for value in ([], "everything", ["current_chat", "mine"], None)),
        *((name, value) for name in ("user_id", "user_key", "app_id", "agent_id") for value in ("", "\0", 1)),
        ("conversation_id", "a\0"),
        ("include_profile", "yes"),
        ("enable_llm_rerank", 1),
        ("filters", [1]),
        ("filters", "session_id"),
        ("owner_id", "bob"),
    ],
)
def test_anything_else_is_422_and_names_the_field(field: str, value: Any) -> None:
    """G1, G8."""
    with pytest.raises(InvalidBody) as refusal:
        parsed(**{field: value})
    assert refusal.value.http_status == 422
    assert refusal.value.field.split(".")[0] == field


@pytest.mark.parametrize("missing", ["user_id", "user_key", "query"])
def test_a_missing_field_is_422_and_named(missing: str) -> None:
    """G1."""
    with pytest.raises(InvalidBody) as refusal:
        parse(json.dumps({name: value for name, value in LEAST.items() if name != missing}).encode())
    assert (refusal.value.field, refusal.value.http_status) == (missing, 422)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"radius": NaN}'])
def test_what_is_no_object_is_422(body: bytes) -> None:
    with pytest.raises(InvalidBody):
        parse(body)


def test_one_scope_may_stand_without_a_list() -> None:
    assert parsed(scope="resources").scope == ["resources"]


def test_the_key_shows_in_no_text_of_a_request_or_an_error() -> None:
    assert "s3cret" not in repr(parsed(user_key="s3cret"))
    with pytest.raises(InvalidBody) as refusal:
        parsed(user_key=["s3cret"])
    assert "s3cret" not in str(refusal.value)

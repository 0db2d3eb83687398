"""Whatever is sent, the answer is one that the OpenAPI declares, never a 5xx, and shows nothing that it must not."""

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis import settings as examples
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from contracts.responses import ErrorBody
from deployments.corpora.openapi import section
from deployments.gateway import openapi as gateway
from deployments.knowledge_base import api as kb
from deployments.openapi import document
from tests.support.memories import uri

OPENAPI = schemathesis.openapi.from_dict(document(section(), gateway.section(), kb.section()))
LARGE = 100_000
# Strings that have broken something somewhere: text handling, SQL, search DSLs, paths, templates, logs, headers.
HOSTILE = (
    "",
    " ",
    "\x00",
    "noodles\x00",
    "\ud800",
    "\udfff\ud800",
    "\ufffe\uffff",
    "\u202enoodles",
    "\x1b[2J\x07",
    "a" * LARGE,
    "噢" * (LARGE // 3),
    "e" + "\u0301" * 10_000,
    "a " * (LARGE // 2),
    "' OR 1=1 --",
    "'; DROP TABLE nodes; --",
    '") OR account_id = "rival" --',
    "x' UNION SELECT * FROM keys --",
    "%' ESCAPE '",
    '{"match_all": {}}',
    "*:* OR _exists_:account_id",
    "account_id:rival AND NOT (",
    'noodles~ /.*/ [* TO *] +-&&||!(){}^"?:\\',
    "../../../../etc/passwd",
    "strata://shared/../user:bob/profile",
    "strata://user:alice/%2e%2e/profile",
    "strata://ｓhared/guide",
    "file:///etc/passwd",
    "${jndi:ldap://127.0.0.1/x}",
    "{{7*7}}<script>alert(1)</script>",
    "%s%n%x",
    "x\r\nSet-Cookie: a=b\r\n\r\n",
    "NaN",
)
SEARCH: dict[str, Any] = {
    "query": "noodles",
    "top_k": 1,
    "categories": ["preference"],
    "target_uri": uri("user:alice", "profile"),
    "owner_space": "user:alice",
    "filter": {
        "and": [
            {"eq": {"category": "preference"}},
            {"in": {"kind": ["section"]}},
            {"not": {"contains": {"tags": ["x"]}}},
            {"under": {"uri": uri("user:alice", "profile")}},
            {"not": {"eq": {"attrs.colour": "x"}}},
        ]
    },
    "session_archive": {"topics": ["food"], "context_types": ["memory"]},
    "planner_hints": {
        "intent": "memory",
        "context_types": ["memory"],
        "categories": ["preference"],
        "must_have_terms": ["noodles"],
        "exclude_terms": ["mild"],
    },
    "trace_level": "basic",
}
READ = {"uri": uri("user:alice", "profile"), "level": "L2", "expand_relations": True, "max_relations": 10}
BATCH = {"uris": [uri("user:alice", "profile"), uri("shared", "guide")], "level": "L2"}
WHERE = {"user_id": "alice", "assistant_id": "helper", "conversation_id": "c-1"}
RETRIEVE = {
    "query": "noodles",
    "dimensions": WHERE,
    "options": {"max_sensitivity": "internal", "memory_types": ["fact"]},
    "filter": {"eq": {"attrs.memory_type": "fact"}},
}
MEMORY = {
    **WHERE,
    "items": [
        {"text": "noodles", "memory_type": "fact", "source_event_id": "e-1", "tags": ["food"], "ttl_at": "2040-01-01"}
    ],
    "dialogues": [
        {"session_id": "D1", "date": "8 May, 2023", "turns": [{"text": "hello", "speaker": "Ann", "id": "1"}]}
    ],
}
WEB = {
    "session_id": "s-1",
    "pages": [
        {"url": "https://example.org/a", "title": "A", "content": "noodles", "domain": "example.org", "language": "en"}
    ],
}
DELETE = {"source_ids": ["a", "b"], "dimensions": WHERE}
CORPORA = (
    ("/v1/corpora/memory/retrieve", RETRIEVE),
    ("/v1/corpora/memory/ingest", MEMORY),
    ("/v1/corpora/web/ingest", WEB),
    ("/v1/corpora/memory/sources/delete", DELETE),
    ("/v1/corpora/memory/retrieve/batch", {"requests": [RETRIEVE]}),
)
FORBIDDEN = ("the rival", "rival content", "Their chapters", "Berlin", "Bob prefers", "Allergic")
DECLARED = {
    int(status)
    for route in document(section())["paths"].values()
    for operation in route.values()
    for status in operation["responses"]
}

Path = tuple[str | int, ...]


def strings(body: Any, path: Path = ()) -> Iterator[Path]:
    """Where strings stand in a body, as values and as names of fields."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        if isinstance(value, str):
            yield (*path, key)
        yield from strings(value, (*path, key))


def names(body: Any, path: Path = ()) -> Iterator[Path]:
    """Where objects stand in a body."""
    if isinstance(body, dict):
        yield path
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield from names(value, (*path, key))


def changed(body: Any, path: Path, value: object) -> Any:
    """A copy with another value at a place."""
    result = copy.deepcopy(body)
    inner = result
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return result


async def check(client: httpx.AsyncClient, path: str, content: bytes, headers: dict[str, str] | None = None) -> int:
    """Send a body; what comes back is declared, no failure, and shows nothing of others."""
    response = await client.post(path, content=content, headers=headers)
    shown = content[:200]
    assert response.status_code in DECLARED, shown
    assert response.status_code < 500, (shown, response.text)
    assert not any(word in response.text for word in FORBIDDEN), shown
    assert "Traceback" not in response.text
    if response.status_code in {200, 202}:
        assert not response.json().get("degraded"), shown
    else:
        assert response.json().keys() == set(ErrorBody.__struct_fields__), shown
        assert len(response.content) < 2_000, shown
    return response.status_code


async def check_all(client: httpx.AsyncClient, path: str, bodies: list[object]) -> set[int]:
    """Check many bodies, some at a time; the statuses that came."""
    slots = asyncio.Semaphore(8)

    async def one(body: object) -> int:
        async with slots:
            return await check(client, path, json.dumps(body).encode())

    return set(await asyncio.gather(*map(one, bodies)))


@OPENAPI.parametrize()
@examples(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_the_api_keeps_to_its_openapi(case: schemathesis.Case, served: str, alice: httpx.AsyncClient) -> None:
    case.call_and_validate(
        base_url=served,
        headers={"authorization": alice.headers["authorization"]},
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
        ],
    )


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/search_memory", SEARCH), ("/v1/read_memory", READ), ("/v1/read_batch", BATCH)]
)
async def test_hostile_strings_in_any_field_break_nothing(alice: httpx.AsyncClient, path: str, body: object) -> None:
    """C20, C42."""
    bodies = [changed(body, place, text) for place in strings(body) for text in HOSTILE]
    assert 422 in await check_all(alice, path, bodies)


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/search_memory", SEARCH), ("/v1/read_memory", READ), ("/v1/read_batch", BATCH)]
)
async def test_hostile_names_of_fields_are_refused(alice: httpx.AsyncClient, path: str, body: object) -> None:
    bodies = [changed(body, (*place, text), "x") for place in names(body) for text in HOSTILE]
    assert await check_all(alice, path, bodies) <= {400, 422}


@pytest.mark.parametrize(("path", "body"), CORPORA)
async def test_hostile_strings_and_names_break_no_corpus(
    client: Callable[..., httpx.AsyncClient], path: str, body: object
) -> None:
    """C20, R6: in an account of their own, for some of them are stored."""
    writer = client("hostile", user_space="user:alice")
    bodies = [changed(body, place, text) for place in strings(body) for text in HOSTILE]
    bodies += [changed(body, (*place, text), "x") for place in names(body) for text in HOSTILE]
    assert 422 in await check_all(writer, path, bodies)


async def test_hostile_names_in_paths_and_parameters_break_no_corpus(
    client: Callable[..., httpx.AsyncClient],
) -> None:
    writer = client("hostile", user_space="user:alice")
    for text in HOSTILE:
        try:
            name = quote(text[:1000], safe="")
        except UnicodeEncodeError:
            continue
        for method, path in (
            ("DELETE", f"memory/sources/{name}?user_id=alice&assistant_id=helper&conversation_id=c-1"),
            ("DELETE", f"memory/sources/a?{name}=1"),
            ("DELETE", f"memory/sources/a?user_id={name}&assistant_id={name}&conversation_id={name}"),
            ("GET", f"memory/receipts/{name}"),
            ("GET", f"{name}/receipts/a"),
            ("POST", f"memory/ingest?wait_ms={name}"),
        ):
            response = await writer.request(method, f"/v1/corpora/{path}")
            assert response.status_code in {200, 202, 403, 404, 405, 422}, (method, path, response.text)
            assert "Traceback" not in response.text


def nested(text: str, inner: str, depth: int) -> bytes:
    """``inner`` within ``depth`` pairs of what is left and right of a bar."""
    left, right = text.split("|")
    return (left * depth + inner + right * depth).encode()


@pytest.mark.parametrize("depth", [10, 100, 1_000, 10_000])
@pytest.mark.parametrize("shape", ['{"not": |}', '{"and": [|]}', '{"a": |}', "[|]"])
async def test_deep_nesting_is_refused(alice: httpx.AsyncClient, shape: str, depth: int) -> None:
    deep = nested(shape, '{"eq": {"kind": "x"}}', depth)
    for body in (b'{"query": "x", "filter": ' + deep + b"}", b'{"query": ' + deep + b"}", deep):
        assert await check(alice, "/v1/search_memory", body) in {200, 400, 413, 422}


@pytest.mark.parametrize(
    "value", ["1e400", "-0", "1" * 5_000, "1e-400", "NaN", "Infinity", "true", "null", '"1"', "[]"]
)
@pytest.mark.parametrize("field", ["top_k", "score_threshold", "timeout_ms", "include_debug", "time_range"])
async def test_odd_numbers_break_nothing(alice: httpx.AsyncClient, field: str, value: str) -> None:
    await check(alice, "/v1/search_memory", f'{{"query": "x", "{field}": {value}}}'.encode())
    bounds = f'{{"query": "x", "filter": {{"range": {{"updated_at": {{"gte": {value}}}}}}}}}'
    await check(alice, "/v1/search_memory", bounds.encode())


async def test_wide_bodies_are_answered_or_refused(alice: httpx.AsyncClient) -> None:
    many = [{"eq": {"kind": f"k{i}"}} for i in range(5_000)]
    for body in (
        {"query": "x", "filter": {"or": many}},
        {"query": "x", "filter": {"in": {"kind": [f"k{i}" for i in range(5_000)]}}},
        {"query": "x", "categories": ["x"] * 5_000},
        {"query": "x", **{f"f{i}": 1 for i in range(5_000)}},
        {"query": "noodles " * 1_000},
    ):
        await check(alice, "/v1/search_memory", json.dumps(body).encode())
    await check(alice, "/v1/read_batch", json.dumps({"uris": ["strata://shared/x"] * 5_000}).encode())


@pytest.mark.parametrize("name", ["authorization", "x-request-id", "content-type", "accept", "x-account-id"])
async def test_hostile_headers_break_nothing(alice: httpx.AsyncClient, name: str) -> None:
    body = b'{"query": "noodles", "top_k": 1}'
    for text in (b"", b"\xff\xfe", b"a" * 10_000, b"Bearer " + b"x" * 10_000, b"' OR 1=1 --", b"rival", b"a\tb"):
        status = await check(alice, "/v1/search_memory", body, {name: text})  # type: ignore[dict-item]
        assert status == (401 if name == "authorization" else 200)

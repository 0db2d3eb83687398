"""The log files of the running graph: one line a request, and no word of what was asked (C42)."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.conftest import eventually, log_lines
from tests.support.memories import uri

# Beside the bodies of requests and answers these may stand in logs: who asked, and how it went.
WHO = {"event", "request_id", "account_id", "role", "effective_owner_spaces"}


@pytest.fixture
def entries(logs: Path) -> Callable[[str], Any]:
    """Our own lines of a request in the logs of all replicas, by its id; awaits the first."""

    async def find(request_id: str) -> list[dict[str, Any]]:
        def lines() -> list[dict[str, Any]]:
            found = [line for line in log_lines(logs, "serve/replica_*.log") if request_id in line and "-- {" in line]
            return [json.loads(line[line.index("-- {") + 3 :]) for line in found]

        return await eventually(lines)  # type: ignore[no-any-return]

    return find


async def ask(client: httpx.AsyncClient, path: str, body: object, status: int = 200) -> str:
    """Send a request under a new id; returns the id."""
    request_id = f"log-{uuid.uuid4().hex}"
    response = await client.post(f"/v1/{path}", json=body, headers={"x-request-id": request_id})
    assert response.status_code == status, response.text
    return request_id


async def test_a_search_is_one_line_with_the_fields_of_c42(alice: httpx.AsyncClient, entries: Any) -> None:
    (entry,) = await entries(await ask(alice, "search_memory", {"query": "noodles"}))
    assert entry.keys() == WHO | {
        *("query_hash", "top_k", "typed_query_count", "seed_count", "final_count"),
        *("degraded", "warnings", "recheck_drop_reasons", "total_ms"),
    }
    assert (entry["account_id"], entry["effective_owner_spaces"]) == ("acme", ["shared", "user:alice"])


async def test_a_read_is_one_line_without_its_uris(alice: httpx.AsyncClient, entries: Any) -> None:
    uris = [uri("shared", "guide"), uri("user:bob", "profile")]
    (entry,) = await entries(await ask(alice, "read_batch", {"uris": uris}))
    assert entry.keys() == WHO | {"level", "uri_count", "final_count", "total_ms"}
    assert (entry["event"], entry["uri_count"], entry["final_count"]) == ("read_batch", 2, 1)
    (entry,) = await entries(await ask(alice, "read_memory", {"uri": uris[1]}, 403))
    assert (entry["event"], entry["error"], entry["final_count"]) == ("read_memory", "RET-4032", 0)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [({"query": " "}, 400, "RET-4001"), ({"query": "x", "mood": 1}, 422, "RET-4220"), ([], 422, "RET-4220")],
)
async def test_a_refused_request_is_one_line_with_its_code(
    alice: httpx.AsyncClient, entries: Any, body: object, status: int, code: str
) -> None:
    (entry,) = await entries(await ask(alice, "search_memory", body, status))
    assert (entry["event"], entry["error"]) == ("search_memory", code)


async def test_an_unknown_path_is_one_line_that_does_not_name_it(alice: httpx.AsyncClient, entries: Any) -> None:
    (entry,) = await entries(await ask(alice, "read_minds", {}, 404))
    assert entry == {"event": "no_route", "request_id": entry["request_id"], "error": "HTTP-404"}


async def test_a_stranger_is_one_line_with_its_code(served: str, entries: Any) -> None:
    async with httpx.AsyncClient(base_url=served, timeout=60) as stranger:
        (entry,) = await entries(await ask(stranger, "search_memory", {"query": "noodles"}, 401))
    assert entry.keys() == {"event", "request_id", "error"}


def requests(mark: Callable[[str], str]) -> list[dict[str, Any]]:
    """Requests with a word to look for in every place that a caller can write to."""

    def search(**fields: Any) -> dict[str, Any]:
        return {"url": "/v1/search_memory", "json": {"query": "noodles", "top_k": 1, **fields}}

    def sent(name: str, value: str) -> dict[str, Any]:
        return {"url": "/v1/search_memory", "json": {"query": "noodles", "top_k": 1}, "headers": {name: value}}

    return [
        search(query=mark("query")),
        search(query=mark("failing"), top_k=99),
        search(filter={"eq": {"category": mark("value")}}),
        search(filter={"eq": {mark("field"): "x"}}),
        search(filter={"eq": {f"attrs.{mark('attribute')}": "x"}}),
        search(filter={mark("operator"): {"kind": "x"}}),
        search(filter={"under": {"uri": uri("shared", mark("under"))}}),
        search(target_uri=uri("shared", mark("absent"))),
        search(target_uri=uri("user:bob", mark("forbidden"))),
        search(target_uri=f"file:///{mark('malformed')}"),
        search(owner_space=f"user:{mark('space')}"),
        search(planner_hints={"must_have_terms": [mark("must")], "exclude_terms": [mark("exclude")]}),
        search(planner_hints={"intent": mark("intent"), "categories": [mark("hint")]}),
        search(query="it", session_archive={"topics": [mark("topic")]}),
        search(categories=[mark("category")]),
        search(include_debug=True, trace_level="detailed", categories=[mark("event")]),
        search(**{mark("unknown"): 1}),
        {"url": "/v1/search_memory", "content": f'{{"query": "{mark("broken")}"'},
        {"url": f"/v1/search_memory?query={mark('parameter')}", "json": {"query": "noodles", "top_k": 1}},
        {"url": f"/v1/{mark('path')}", "json": {}},
        {"url": "/v1/read_memory", "json": {"uri": uri("shared", mark("read"))}},
        {"url": "/v1/read_memory", "json": {"uri": f"file:///{mark('unreadable')}"}},
        {"url": "/v1/read_batch", "json": {"uris": [uri("user:bob", mark("batch"))]}},
        sent("authorization", f"Bearer strata_0123456789ab_{mark('key')}"),
        sent("authorization", f"Bearer {mark('id')}_x"),
        sent("authorization", f"Bearer eyJhbGciOiJub25lIn0.{mark('token')}.x"),
        sent("authorization", f"Basic {mark('basic')}"),
        sent("x-request-id", f"{mark('blank')} with blanks"),
        sent("x-request-id", mark("long") * 20),
        sent("x-account-id", mark("account")),
        sent("user-agent", mark("agent")),
        sent("cookie", f"session={mark('cookie')}"),
        sent("content-type", mark("type")),
    ]


def contents(folder: Path) -> dict[Path, bytes]:
    """All files below a folder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


async def test_no_word_of_a_request_is_in_any_log_file(alice: httpx.AsyncClient, logs: Path, entries: Any) -> None:
    """Query, filters, URIs, keys and forged headers; in no file of the whole Ray session."""
    words: dict[str, str] = {}

    def mark(place: str) -> str:
        # Of one length, lower case and without a pattern that anything else writes.
        return words.setdefault(place, f"zyz{uuid.uuid4().hex[:12]}zyz")

    for request in requests(mark):
        response = await alice.post(**request)
        assert response.status_code < 500, (request, response.text)
    # What was logged before this line is on the disk once this line is.
    await entries(await ask(alice, "search_memory", {"query": "noodles"}))
    texts = contents(logs)
    assert any(b"search_memory" in text for text in texts.values())
    found = {place: file.name for place, word in words.items() for file, text in texts.items() if word.encode() in text}
    assert found == {}

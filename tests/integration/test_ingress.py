"""The HTTP API of the running graph."""

from collections.abc import Callable

import httpx
import pytest

from tests.support.keys import Keys
from tests.support.memories import uri

Make = Callable[..., httpx.AsyncClient]
TIMEOUT_QUERY = "run a command and stop it after a timeout"


async def search(client: httpx.AsyncClient, query: str, **fields: object) -> dict:
    response = await client.post("/v1/search_memory", json={"query": query, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def read(client: httpx.AsyncClient, target: str, level: str, **fields: object) -> dict:
    response = await client.post("/v1/read_memory", json={"uri": target, "level": level, **fields})
    assert response.status_code == 200, response.text
    return response.json()["block"]


async def refused(client: httpx.AsyncClient, path: str, body: object) -> tuple[int, dict]:
    response = await client.post(path, json=body)
    return response.status_code, response.json()


@pytest.mark.parametrize(
    ("query", "best"),
    [
        (TIMEOUT_QUERY, uri("shared", "python/run")),
        ("索引备份与恢复规范", uri("shared", "手册/备份")),
        ("Alice 的咖啡偏好", uri("user:alice", "profile/coffee")),
        ("how to upgrade to a new version", uri("shared", "guide/upgrade")),
    ],
)
async def test_a_search_finds_the_node_in_chinese_and_english(alice: httpx.AsyncClient, query: str, best: str) -> None:
    answer = await search(alice, query)
    assert answer["hits"][0]["uri"] == best
    assert answer["degraded"] == []


async def test_a_search_returns_l0_only_and_says_what_to_read_next(alice: httpx.AsyncClient) -> None:
    """C1, C6, C14: seed 1 §10, first integration test."""
    answer = await search(alice, TIMEOUT_QUERY, top_k=5)
    assert 0 < len(answer["hits"]) <= 5
    for hit in answer["hits"]:
        assert hit["level_hit"] == "L0"
        assert hit["abstract"]
        assert hit["overview"] is None
        assert hit["content_excerpt"] is None
    advised = answer["next_actions"]["recommended_read_l1_uris"]
    assert advised
    assert set(advised) <= {hit["uri"] for hit in answer["hits"] if hit["has_overview"]}


async def test_seed_hits_have_the_minimal_fields(alice: httpx.AsyncClient) -> None:
    """C2, §3.2."""
    answer = await search(alice, TIMEOUT_QUERY)
    fields = {"uri", "score", "category", "owner_space", "abstract", "has_overview", "has_content", "match_reason"}
    assert answer["seed_hits"]
    assert all(fields <= seed.keys() for seed in answer["seed_hits"])


async def test_a_query_without_intent_or_session_searches_three_types(alice: httpx.AsyncClient) -> None:
    """C10: RET-4221 is a warning."""
    answer = await search(alice, "noodles")
    assert {query["context_type"] for query in answer["typed_queries"]} == {"memory", "skill", "resource"}
    assert any("RET-4221" in warning for warning in answer["trace"]["warnings"])


async def test_a_hit_is_drilled_from_l0_to_l1_to_l2(alice: httpx.AsyncClient) -> None:
    """C7, seed 1 §10."""
    hit = (await search(alice, TIMEOUT_QUERY))["hits"][0]
    overview = await read(alice, hit["uri"], "L1")
    assert (overview["level_hit"], overview["overview"], overview["content_excerpt"]) == (
        "L1",
        "run(args, timeout)",
        None,
    )
    assert overview["read_recommendation"] == "read_l2"
    content = await read(alice, hit["uri"], "L2")
    assert (content["level_hit"], content["overview"]) == ("L2", None)
    assert content["content_excerpt"] == "def run(): ..."


async def test_secrets_are_redacted_from_l2(alice: httpx.AsyncClient) -> None:
    """C23."""
    content = await read(alice, uri("shared", "python/kill"), "L2")
    assert "sk-abc" not in content["content_excerpt"]


async def test_relations_come_on_request_without_those_to_forbidden_nodes(alice: httpx.AsyncClient) -> None:
    """C7, C22."""
    profile = uri("user:alice", "profile")
    assert (await read(alice, profile, "L1"))["relations"] == []
    related = (await read(alice, profile, "L1", expand_relations=True, max_relations=10))["relations"]
    assert {edge["to_uri"] for edge in related} == {
        uri("user:alice", f"profile/{n}") for n in ("food", "coffee", "trip", "身份")
    }


async def test_a_batch_answers_what_may_be_read_and_names_the_rest(alice: httpx.AsyncClient) -> None:
    uris = [uri("shared", "python/run"), uri("user:bob", "profile"), uri("shared", "nothing"), uri("shared", "流程")]
    response = await alice.post("/v1/read_batch", json={"uris": uris, "level": "L1"})
    assert response.status_code == 200
    answer = response.json()
    assert [block["uri"] for block in answer["blocks"]] == [uris[0], uris[3]]
    assert answer["forbidden"] == [uris[1], uris[2]]


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer nonsense", "Basic eDp5", "Bearer strata_0_0"])
@pytest.mark.parametrize("path", ["/v1/search_memory", "/v1/read_memory", "/v1/read_batch"])
async def test_without_a_valid_key_everything_is_401(served: str, path: str, header: str | None) -> None:
    async with httpx.AsyncClient(base_url=served) as stranger:
        response = await stranger.post(path, json={}, headers={} if header is None else {"Authorization": header})
    assert response.status_code == 401
    assert response.json()["code"] == "RET-4011"
    assert response.headers["www-authenticate"] == "Bearer"


async def test_a_key_stops_working_when_it_is_revoked(client: Make, keys: Keys) -> None:
    mine = client(user_space="user:alice")
    await search(mine, "noodles")
    keys.revoke(mine.headers["authorization"].split("_")[1])
    status, body = await refused(mine, "/v1/search_memory", {"query": "noodles"})
    assert (status, body["code"]) == (401, "RET-4011")


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        ({"query": "  "}, 400, "RET-4001", "query"),
        ({}, 400, "RET-4001", "query"),
        ({"query": "x", "top_k": 0}, 400, "RET-4002", "top_k"),
        ({"query": "x", "top_k": 51}, 400, "RET-4002", "top_k"),
        ({"query": "x", "score_threshold": 1.5}, 400, "RET-4003", "score_threshold"),
        ({"query": "x", "filter": {"eq": {"account_id": "rival"}}}, 400, "RET-4004", "filter.eq"),
        ({"query": "x", "filter": {"near": {"uri": "y"}}}, 400, "RET-4004", "filter.near"),
        ({"query": "x", "target_uri": "file:///etc"}, 400, "RET-4005", "target_uri"),
        ({"query": "x", "target_uri": "strata://user:bob/profile"}, 403, "RET-4031", "target_uri"),
        ({"query": "x", "account_id": "rival"}, 422, "RET-4220", "account_id"),
        ({"query": "x", "planner_hints": {"mood": 1}}, 422, "RET-4220", "planner_hints.mood"),
        ({"query": "x", "categories": "document"}, 422, "RET-4220", "categories"),
        ({"query": "x", "time_range": {"start": 10**30}}, 422, "RET-4220", "time_range.start"),
    ],
)
async def test_a_bad_search_names_its_code_and_field(
    alice: httpx.AsyncClient, body: dict, status: int, code: str, field: str
) -> None:
    """C3, C20, C21."""
    got, error = await refused(alice, "/v1/search_memory", body)
    assert (got, error["code"], error["field"]) == (status, code, field)


async def test_forbidden_and_absent_uris_are_answered_alike(alice: httpx.AsyncClient) -> None:
    """C21, C22: no answer tells the two apart."""
    for path, field in (("/v1/read_memory", "uri"), ("/v1/search_memory", "target_uri")):
        answers = []
        for target in (uri("user:bob", "profile"), uri("user:bob", "nothing"), uri("user:nobody", "x")):
            body = {field: target, **({"query": "x"} if field == "target_uri" else {})}
            status, error = await refused(alice, path, body)
            answers.append((status, {**error, "request_id": ""}))
        assert answers[0][0] == 403
        assert answers[1:] == answers[:-1]
    status, error = await refused(alice, "/v1/read_memory", {"uri": uri("shared", "nothing")})
    assert (status, error["code"]) == (403, "RET-4032")


async def test_a_target_in_scope_that_does_not_exist_is_ignored_with_a_warning(alice: httpx.AsyncClient) -> None:
    """C21: RET-4041."""
    answer = await search(alice, TIMEOUT_QUERY, target_uri=uri("shared", "nothing"))
    assert answer["hits"]
    assert any("RET-4041" in warning for warning in answer["trace"]["warnings"])


async def test_no_tenant_sees_anything_of_another(client: Make, alice: httpx.AsyncClient) -> None:
    """C20."""
    rival = client("rival", role="admin")
    for query in ("backup and restore", TIMEOUT_QUERY, "Operations guide", "Background"):
        seen = {hit["abstract"] for hit in (await search(rival, query, top_k=50))["hits"]}
        assert all("rival" in abstract for abstract in seen)
        assert not any("rival" in hit["abstract"] for hit in (await search(alice, query, top_k=50))["hits"])
    assert (await read(rival, uri("shared", "guide/backup"), "L2"))["content_excerpt"] == "rival content"
    assert (await read(alice, uri("shared", "guide/backup"), "L2"))["content_excerpt"] == "rsync -a"


async def test_a_user_sees_its_own_and_the_shared_space_and_admin_sees_all(
    client: Make, alice: httpx.AsyncClient
) -> None:
    """C20: the roles."""
    everything = {"query": "background noodles backup", "top_k": 50, "planner_hints": {"context_types": ["memory"]}}

    async def spaces(who: httpx.AsyncClient) -> set[str]:
        return {hit["owner_space"] for hit in (await search(who, **everything))["hits"]}

    assert await spaces(alice) == {"user:alice"}
    assert await spaces(client(role="agent", agent_space="agent:bot")) == set()
    assert await spaces(client(role="admin")) == {"user:alice", "user:bob"}


async def test_filters_and_spaces_only_narrow(alice: httpx.AsyncClient) -> None:
    """C20."""
    whole = {hit["uri"] for hit in (await search(alice, "noodles coffee backup", top_k=50))["hits"]}
    for narrowing in (
        {"owner_space": "user:alice"},
        {"owner_space": "user:bob"},
        {"filter": {"eq": {"owner_space": "user:bob"}}},
        {"filter": {"not": {"eq": {"owner_space": "user:alice"}}}},
        {"filter": {"under": {"uri": uri("shared", "guide")}}},
        {"time_range": {"end": 1}},
    ):
        part = {hit["uri"] for hit in (await search(alice, "noodles coffee backup", top_k=50, **narrowing))["hits"]}
        assert part <= whole
        assert part < whole


async def test_a_detailed_trace_has_the_events_of_the_stages(alice: httpx.AsyncClient) -> None:
    """C5: seed 1 §10, last integration test."""
    detailed = await search(alice, TIMEOUT_QUERY, include_debug=True, trace_level="detailed")
    stages = {event["stage"] for event in detailed["thinking_trace"]["events"]}
    assert {"planner", "seed_search", "expander", "reranker", "assembler"} <= stages
    for fields in ({"include_debug": True}, {"trace_level": "detailed"}, {}):
        assert (await search(alice, TIMEOUT_QUERY, **fields))["thinking_trace"] is None


async def test_dropped_candidates_say_why(alice: httpx.AsyncClient) -> None:
    """C13."""
    answer = await search(
        alice,
        "noodles coffee",
        include_debug=True,
        trace_level="detailed",
        planner_hints={"exclude_terms": ["noodles"], "context_types": ["memory"]},
    )
    assert answer["hits"]
    assert not any("noodles" in hit["abstract"] for hit in answer["hits"])
    reasons = {e["detail"]["exclude_reason"] for e in answer["thinking_trace"]["events"] if e["event"] == "dropped"}
    assert reasons == {"exclude_terms"}


async def test_the_request_id_is_echoed_or_made(alice: httpx.AsyncClient) -> None:
    given = await alice.post("/v1/search_memory", json={"query": "noodles"}, headers={"x-request-id": "trace-42"})
    assert given.headers["x-request-id"] == "trace-42"
    assert given.json()["request_id"] == "trace-42"
    made = await alice.post("/v1/search_memory", json={"query": "noodles"})
    assert made.headers["x-request-id"] == made.json()["request_id"] != ""


async def test_a_body_that_is_too_long_is_413(alice: httpx.AsyncClient) -> None:
    status, error = await refused(alice, "/v1/search_memory", {"query": "x" * 300_000})
    assert (status, error["code"]) == (413, "RET-4130")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff", b'{"query": "\\ud800"}', b"[" * 100_000])
async def test_what_is_no_json_object_is_422(alice: httpx.AsyncClient, body: bytes) -> None:
    response = await alice.post("/v1/search_memory", content=body)
    assert response.status_code == 422
    assert response.json()["code"] == "RET-4220"


async def test_unknown_paths_and_methods_get_an_error_body(alice: httpx.AsyncClient) -> None:
    missing, wrong = await alice.get("/v2/search"), await alice.get("/v1/search_memory")
    assert (missing.status_code, missing.json()["code"]) == (404, "HTTP-404")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "HTTP-405")


async def test_the_probes_need_no_key(served: str) -> None:
    async with httpx.AsyncClient(base_url=served, timeout=60) as stranger:
        assert (await stranger.get("/healthz")).json() == {"status": "ok"}
        ready = await stranger.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["ready"]
    assert set(ready.json()["stages"].values()) == {"ok"}


async def test_the_openapi_document_is_served_and_describes_every_answer(served: str) -> None:
    async with httpx.AsyncClient(base_url=served, timeout=60) as stranger:
        document = (await stranger.get("/openapi.json")).json()
        assert (await stranger.get("/docs")).status_code == 200
    operation = document["paths"]["/v1/search_memory"]["post"]
    assert {"200", "400", "401", "403", "408", "413", "422", "429", "500", "503", "504"} == operation[
        "responses"
    ].keys()
    schemas = document["components"]["schemas"]
    assert schemas["SearchMemoryRequest"]["examples"]
    assert {"request_id", "hits", "next_actions", "trace"} <= schemas["SearchMemoryResponse"]["properties"].keys()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"

"""The system filter and the target check (C20, C21)."""

import re
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.context import RequestContext, Role
from contracts.errors import InvalidUri, TargetForbidden
from contracts.filters import Eq, Not, Or, matches
from contracts.query import QueryFilters, TimeRange, TypedQuery
from contracts.scope import check_target, search_filter, system_conditions, system_filter

ANN = RequestContext("acme", "user", "user:ann", "agent:planner")
AGENT = RequestContext("acme", "agent", agent_space="agent:planner")
ADMIN = RequestContext("acme", "admin")
QUERY = TypedQuery("deploy", "resource")


def record(**changes: Any) -> dict[str, Any]:
    return {
        "account_id": "acme",
        "owner_space": "user:ann",
        "context_type": "resource",
        "status": "active",
        "uri": "strata://user:ann/notes/a",
        "level": 0,
        "updated_at": 1_000,
        "expires_at": 0,
    } | changes


# The role table of docs/api.md: for each kind of key, the spaces it sees of those of its account.
SPACES = ("user:ann", "user:bob", "agent:planner", "agent:other", "shared", "team:x")
ROLES = {
    "a user": (RequestContext("acme", "user", "user:ann"), "user:ann shared"),
    "a user with an agent": (ANN, "user:ann agent:planner shared"),
    "a user with a grant": (RequestContext("acme", "user", "user:ann", spaces=("team:x",)), "user:ann shared team:x"),
    "a user without a space": (RequestContext("acme", "user"), "shared"),
    "an agent": (AGENT, "agent:planner shared"),
    "an agent for a user": (RequestContext("acme", "agent", "user:ann", "agent:planner"), ANN.owner_spaces()),
    "an agent with a grant": (
        RequestContext("acme", "agent", "", "agent:planner", ("team:x",)),
        "agent:planner shared team:x",
    ),
    "an admin": (ADMIN, SPACES),
    "an admin with a space": (RequestContext("acme", "admin", "user:ann", spaces=("team:x",)), SPACES),
    "an unknown role": (RequestContext("acme", "root", "user:ann"), "user:ann shared"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ROLES)
def test_each_role_sees_its_spaces_and_no_other(name: str) -> None:
    """C20: the role table of docs/api.md."""
    ctx, spaces = ROLES[name]
    seen = {space for space in SPACES if matches(system_filter(ctx), record(owner_space=space))}
    assert seen == set(spaces.split() if isinstance(spaces, str) else spaces or ())
    assert seen == {space for space in SPACES if ctx.may_see(space)}
    assert not any(matches(system_filter(ctx), record(owner_space=space, account_id="other")) for space in SPACES)


def test_the_role_table_of_the_docs_says_what_the_code_does() -> None:
    """C20. Callers have all that a cell speaks of; those without are above."""
    docs = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8").split("## Who sees what\n")[1]
    docs = docs.split("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ") for line in docs.splitlines() if re.match(r"\| `(user|agent|admin)` \|", line)
    ]
    columns = ("user:ann", "agent:planner", "shared", "team:x", "user:bob")
    callers = {role: RequestContext("acme", role, "user:ann", "agent:planner", ("team:x",)) for role in get_args(Role)}
    assert {role.strip("`"): [cell.startswith("yes") for cell in cells] for role, *cells in rows} == {
        role: [caller.may_see(space) for space in columns] for role, caller in callers.items()
    }


def test_each_condition_says_why_a_record_that_fails_it_is_hidden() -> None:
    hidden = {
        "forbidden": [{"account_id": "other"}, {"owner_space": "user:bob"}],
        "inactive": [{"status": "archived"}],
        "expired": [{"expires_at": 1}],
    }
    conditions = system_conditions(ANN)
    assert conditions.keys() == hidden.keys()
    for reason, condition in conditions.items():
        for why, changes in hidden.items():
            assert all(matches(condition, record(**change)) is (why != reason) for change in changes)


def test_an_admin_sees_every_space_of_the_account_and_no_other_account() -> None:
    assert matches(system_filter(ADMIN), record(owner_space="user:bob"))
    assert not matches(system_filter(ADMIN), record(account_id="other"))


@pytest.mark.parametrize(
    "hidden",
    [{"account_id": "other"}, {"account_id": ""}, {"status": "archived"}, {"status": None}, {"owner_space": None}],
)
def test_what_is_not_visible_never_matches(hidden: dict[str, Any]) -> None:
    assert not matches(system_filter(ANN), record(**hidden))


def test_a_record_expires_at_its_moment() -> None:
    now = int(time.time() * 1000)
    assert matches(system_filter(ANN), record(expires_at=0))
    assert matches(system_filter(ANN), record(expires_at=now + 60_000))
    assert not matches(system_filter(ANN), record(expires_at=now - 1))


@pytest.mark.parametrize(
    ("query", "inside", "outside"),
    [
        (QUERY, {}, {"context_type": "memory"}),
        (QUERY, {}, {"level": 1}),
        (TypedQuery("x", "resource", target_uri="strata://user:ann/notes"), {}, {"uri": "strata://user:ann/notesx"}),
        (TypedQuery("x", "resource", filters=QueryFilters(owner_space="user:ann")), {}, {"owner_space": "shared"}),
        (
            TypedQuery("x", "resource", filters=QueryFilters(time_range=TimeRange(1_000, 2_000))),
            {"updated_at": 2_000},
            {"updated_at": 2_001},
        ),
        (TypedQuery("x", "resource", filters=QueryFilters(time_range=TimeRange(end=999))), {"updated_at": 5}, {}),
    ],
)
def test_a_typed_query_narrows(query: TypedQuery, inside: dict[str, Any], outside: dict[str, Any]) -> None:
    condition = search_filter(ANN, query)
    assert matches(condition, record(**inside))
    assert not matches(condition, record(**outside))


def test_an_account_or_space_named_in_the_query_can_not_widen() -> None:
    query = TypedQuery("x", "resource", filters=QueryFilters(account_id="other", owner_space="user:bob"))
    assert not matches(search_filter(ANN, query), record(account_id="other", owner_space="user:bob"))
    assert not matches(search_filter(ANN, query), record(owner_space="user:bob"))


@given(
    account=st.sampled_from(["acme", "other"]),
    space=st.sampled_from(["user:ann", "user:bob", "shared"]),
    caller=st.sampled_from(
        [
            Or((Eq("account_id", "other"), Eq("account_id", "acme"))),
            Not(Eq("category", "x")),
            Eq("owner_space", "user:bob"),
        ]
    ),
)
def test_no_caller_filter_shows_what_the_system_filter_hides(account: str, space: str, caller: Any) -> None:
    candidate = record(account_id=account, owner_space=space)
    if matches(search_filter(ANN, QUERY, caller), candidate):
        assert matches(system_filter(ANN), candidate)


def test_a_target_in_scope_comes_back_canonical() -> None:
    assert check_target(ANN, "strata://user:ann/notes/") == "strata://user:ann/notes"
    assert check_target(ADMIN, "strata://user:bob") == "strata://user:bob"


@pytest.mark.parametrize("target", ["strata://user:bob", "strata://user:bob/notes", "strata://nobody/x"])
def test_a_target_out_of_scope_is_forbidden_whatever_is_there(target: str) -> None:
    """C21: decided without a look at the index, so absent and forbidden are one."""
    with pytest.raises(TargetForbidden) as refusal:
        check_target(ANN, target)
    assert target not in str(refusal.value)


def test_a_target_that_is_no_uri_is_an_error_of_its_own() -> None:
    with pytest.raises(InvalidUri) as refusal:
        check_target(ANN, "strata://user:ann/../user:bob")
    assert refusal.value.field == "target_uri"

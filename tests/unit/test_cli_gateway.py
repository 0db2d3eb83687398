"""``strata gateway``: users of the memory gateway, what belongs to them, and the import."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deployments.backends import open_database
from deployments.cli.app import app
from deployments.settings import Settings, load
from gateway.login import Login
from gateway.store import GatewayStore
from gateway.upstream import User


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    return load()


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["gateway", *arguments], input=given)


def strata(*arguments: str, given: str = "") -> str:
    done = run(*arguments, given=given)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def listed(*arguments: str) -> Any:
    return json.loads(strata(*arguments, "--json"))


def login(settings: Settings, user: str, key: str) -> User:
    async def attempt() -> User:
        database = await open_database(settings)
        try:
            return await Login(GatewayStore(database), settings.gateway.login).authenticate(user, key, "here")
        finally:
            await database.close()

    return asyncio.run(attempt())


def test_a_user_is_added_with_a_key_that_is_shown_once(settings: Settings) -> None:
    key = strata("users", "add", "alice", "--account", "acme").strip()
    assert login(settings, "alice", key) == User("alice", "acme", "memory.alice")
    (row,) = listed("users", "list")
    assert (row["user_id"], row["account_id"], row["space"]) == ("alice", "acme", "memory.alice")
    assert "hash" not in str(row)
    assert key not in strata("users", "list")


def test_a_key_that_clients_have_already_is_read_and_not_shown(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old key\n", encoding="utf-8")
    assert "old key" not in strata("users", "add", "Bob Smith", "--space", "memory.bob", "--key-file", str(file))
    assert login(settings, "Bob Smith", "old key").space == "memory.bob"
    strata("users", "key", "Bob Smith", "--key-file", "-", given="new key\n")
    assert login(settings, "Bob Smith", "new key").account_id == "local"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("users", "add", "Bob Smith"), "space"),
        (("users", "add", "alice"), "user_id"),
        (("users", "add", "eve", "--space", "memory.alice"), "user_id"),
        (("users", "add", "u" * 300, "--space", "memory.u"), "user_id"),
        (("users", "key", "nobody"), "user"),
        (("users", "remove", "nobody"), "user"),
        (("users", "add", "eve", "--key-file", "/no/such/file"), "key-file"),
        (("tombstones", "add", "nobody", "m"), "user_id"),
        (("tombstones", "remove", "alice", "m"), "tombstone"),
        (("resources", "add", "alice", "r2", "--session", "s", "--uri", "u"), "session_id"),
        (("resources", "add", "alice", "", "--session", "t", "--uri", "u"), "resource_id"),
    ],
)
def test_what_can_not_be_done_is_said_with_the_field(arguments: tuple[str, ...], field: str) -> None:
    strata("users", "add", "alice")
    strata("resources", "add", "alice", "r1", "--session", "s", "--uri", "u")
    done = run(*arguments)
    assert done.exit_code == 1
    assert f"[{field}]" in done.stderr
    assert [row["resource_id"] for row in listed("resources", "list", "alice")] == ["r1"]


def test_belongings_are_added_replaced_listed_and_removed() -> None:
    strata("users", "add", "alice")
    strata("resources", "add", "alice", "r1", "--session", "s1", "--uri", "files://1")
    strata("resources", "add", "alice", "r1", "--session", "s2", "--uri", "files://2")
    strata("tombstones", "add", "alice", "m1")
    strata("overrides", "add", "alice", "m2", "Other text.", "--no-active")
    strata("agents", "add", "alice", "chef")
    assert listed("resources", "list", "alice") == [{"resource_id": "r1", "session_id": "s2", "uri": "files://2"}]
    assert listed("tombstones", "list", "alice") == [{"memory_id": "m1"}]
    assert listed("overrides", "list", "alice") == [{"memory_id": "m2", "text": "Other text.", "active": False}]
    assert listed("agents", "list", "alice") == [{"agent_id": "chef"}]
    for group, key in (("resources", "r1"), ("tombstones", "m1"), ("overrides", "m2"), ("agents", "chef")):
        strata(group, "remove", "alice", key)
        assert listed(group, "list", "alice") == []


def test_a_user_goes_with_all_that_belongs_to_it() -> None:
    strata("users", "add", "alice")
    strata("tombstones", "add", "alice", "m1")
    strata("users", "remove", "alice")
    strata("users", "add", "alice")
    assert listed("tombstones", "list", "alice") == []


def test_memories_in_the_upstreams_form_are_taken_in(settings: Settings, tmp_path: Path) -> None:
    strata("users", "add", "alice", "--account", "acme")
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"data": {"episodes": [{"id": "e", "episode": "Tea."}]}}), encoding="utf-8")
    assert "1 memories for memory.alice" in strata("import", str(file), "--user", "alice")
    assert "1 memories for agent-memory.chef" in strata("import", str(file), "--user", "alice", "--agent", "chef")
    assert run("import", str(file), "--user", "nobody").exit_code == 1

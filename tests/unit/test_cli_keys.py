"""``strata keys`` and the key that a machine's commands use."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import ConfigError, Unauthenticated
from deployments.cli import common
from deployments.cli.app import app
from deployments.settings import Settings, load
from tests.support.keys import Keys


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    monkeypatch.delenv("STRATA_API_KEY", raising=False)
    return load()


@pytest.fixture
def keys(settings: Settings) -> Iterator[Keys]:
    keys = Keys(settings)
    yield keys
    keys.close()


def strata(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["keys", *arguments])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_a_key_is_printed_once_and_holds(settings: Settings, keys: Keys) -> None:
    token = strata("create", "--account", "acme", "--role", "agent", "--agent-space", "agent:a").strip()
    context = keys.authenticate(token).context("r")
    assert (context.account_id, context.role, context.agent_space) == ("acme", "agent", "agent:a")
    listed = strata("list", "--json")
    _, key_id, secret = token.split("_", 2)
    assert key_id in listed
    assert secret not in listed


def test_a_saved_key_is_used_and_not_shown(settings: Settings, keys: Keys) -> None:
    shown = strata("create", "--save")
    token = common.find_key(settings, None)
    assert keys.authenticate(token).account_id == common.ACCOUNT
    assert token not in shown
    assert common.key_file(settings).stat().st_mode & 0o777 == 0o600


def test_saving_replaces_the_saved_key(settings: Settings) -> None:
    strata("create", "--save")
    first = common.find_key(settings, None)
    strata("create", "--save")
    assert common.find_key(settings, None) != first


def test_a_key_given_goes_before_the_environment_and_that_before_the_saved_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    common.save_key(settings, "saved")
    assert common.find_key(settings, None) == "saved"
    monkeypatch.setenv("STRATA_API_KEY", "variable")
    assert common.find_key(settings, None) == "variable"
    assert common.find_key(settings, "given") == "given"


def test_without_a_key_the_error_tells_how_to_make_one(settings: Settings) -> None:
    with pytest.raises(ConfigError) as error:
        common.find_key(settings, None)
    assert "strata keys create" in error.value.remedy
    assert "--save" in error.value.remedy


def test_a_revoked_key_is_listed_as_such_and_cant_be_revoked_again(settings: Settings) -> None:
    key_id = strata("create").split("_")[1]
    strata("revoke", key_id)
    assert "revoked" in strata("list")
    again = CliRunner().invoke(app, ["keys", "revoke", key_id])
    assert again.exit_code == 1
    assert "strata keys list" in again.stderr


def test_a_key_is_rotated_and_the_old_one_listed_with_its_end(settings: Settings, keys: Keys) -> None:
    old = strata("create", "--account", "acme", "--user-space", "user:ann").strip()
    new = strata("rotate", old.split("_")[1], "--overlap", "36h").strip()
    assert keys.authenticate(new).user_space == keys.authenticate(old).user_space == "user:ann"
    ends = next(key.ends_at for key in keys.list() if key.key_id == old.split("_")[1])
    assert ends == pytest.approx((time.time() + 36 * 3600) * 1000, abs=60_000)
    assert "until" in strata("list")


def test_a_saved_key_can_be_rotated_in_place(settings: Settings, keys: Keys) -> None:
    strata("create", "--save")
    old = common.find_key(settings, None)
    shown = strata("rotate", old.split("_")[1], "--overlap", "0", "--save")
    new = common.find_key(settings, None)
    assert new not in shown
    assert keys.authenticate(new)
    with pytest.raises(Unauthenticated):
        keys.authenticate(old)


def test_by_default_the_old_key_holds_for_a_day(settings: Settings, keys: Keys) -> None:
    old = strata("create").strip()
    made = json.loads(strata("rotate", old.split("_")[1], "--json"))
    ends = {key.key_id: key.ends_at for key in keys.list()}
    assert ends[old.split("_")[1]] == pytest.approx((time.time() + 24 * 3600) * 1000, abs=60_000)
    assert ends[made["key_id"]] == 0
    assert made["key"].startswith(f"strata_{made['key_id']}_")


@pytest.mark.parametrize("overlap", ["soon", "1", "-1h", "1w", "1.5h", ""])
def test_an_overlap_that_is_no_time_is_refused(settings: Settings, keys: Keys, overlap: str) -> None:
    key_id = strata("create").split("_")[1]
    done = CliRunner().invoke(app, ["keys", "rotate", key_id, f"--overlap={overlap}"])
    assert done.exit_code == 2
    assert len(keys.list()) == 1


def test_an_expiry_in_days_is_kept(settings: Settings, keys: Keys) -> None:
    made = json.loads(strata("create", "--expires-days", "2", "--json"))
    (key,) = keys.list()
    assert key.key_id == made["key_id"]
    assert key.expires_at - key.created_at == pytest.approx(2 * 24 * 3600 * 1000, abs=60_000)


def test_a_key_that_expires_at_once_is_not_made(settings: Settings) -> None:
    done = CliRunner().invoke(app, ["keys", "create", "--expires-days", "0"])
    assert done.exit_code == 2

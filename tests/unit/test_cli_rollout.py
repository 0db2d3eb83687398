"""``strata rollout``."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.cli.app import app


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("corpora: {rollout: {corpora: {memory: {percent: 10}}}}", encoding="utf-8")
    monkeypatch.setenv("STRATA_CONFIG", str(path))
    monkeypatch.setenv("STRATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STRATA_DATABASE_URL", raising=False)


def strata(*arguments: str, exit_code: int = 0) -> str:
    done = CliRunner().invoke(app, ["rollout", *arguments])
    assert done.exit_code == exit_code, done.output
    return done.output


def listed(name: str) -> dict[str, object]:
    return next(row for row in json.loads(strata("list", "--json")) if row["name"] == name)


def test_list_shows_what_the_settings_say_where_nothing_was_set() -> None:
    assert listed("web.rag") == {"name": "web.rag", "enabled": True, "percent": 100, "shadow": False, "updated_at": 0}
    assert listed("memory.rag")["percent"] == 10
    assert "by the settings" in strata("list")


def test_a_percentage_turns_a_switch_on_and_off_keeps_it_for_later() -> None:
    assert "the graph answers 25 % of the users" in strata("set", "web.rag", "25")
    assert "the keyword search answers everybody" in strata("set", "web.rag", "off")
    assert (listed("web.rag")["enabled"], listed("web.rag")["percent"]) == (False, 25)
    assert "25 %" in strata("set", "web.rag", "on")
    assert "all users" in strata("set", "web.rag", "100%")
    assert "the keyword search" in strata("set", "web.rag", "0")


def test_a_shadow_is_set_by_itself_or_with_a_value() -> None:
    assert "comparison" in strata("set", "memory.rag", "--shadow")
    assert (listed("memory.rag")["percent"], listed("memory.rag")["shadow"]) == (10, True)
    assert "comparison" not in strata("set", "memory.rag", "50", "--no-shadow")


def test_reset_lets_the_settings_hold_again() -> None:
    strata("set", "memory.rag", "off")
    assert "10 % of the users" in strata("reset", "memory.rag")
    assert listed("memory.rag")["updated_at"] == 0


@pytest.mark.parametrize("command", [("set", "wiki.rag", "25"), ("reset", "wiki.rag")])
def test_an_unknown_name_is_refused_with_the_known_ones(command: tuple[str, ...]) -> None:
    assert "memory.rag, web.rag" in strata(*command, exit_code=1)


@pytest.mark.parametrize("value", ["101", "-1", "half", "2.5", "²5", ""])
def test_a_value_that_means_nothing_is_refused(value: str) -> None:
    said = strata("set", "web.rag", exit_code=1) if not value else strata("set", "web.rag", "--", value, exit_code=1)
    assert "value" in said
    assert listed("web.rag")["updated_at"] == 0

"""``strata db`` on the SQLite file of a data folder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from database.migrate import head
from deployments.cli.app import app


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    monkeypatch.delenv("STRATA_DATABASE_URL", raising=False)
    return tmp_path


def strata(*arguments: str, exit_code: int = 0, answer: str | None = None) -> str:
    done = CliRunner().invoke(app, ["db", *arguments], input=answer)
    assert done.exit_code == exit_code, done.output
    return done.output


def test_status_of_a_database_that_nobody_has_made_makes_none(home: Path) -> None:
    found = json.loads(strata("status", "--json", exit_code=1))
    assert found == {"database": str(home / "strata.db"), "dialect": "sqlite", "revision": "base", "needed": head()}
    assert list(home.iterdir()) == []


def test_upgrade_and_downgrade_say_where_they_led() -> None:
    assert f"revision {head()}, before base" in strata("upgrade")
    assert "up to date" in strata("status")
    assert f"is at revision {head()}." in strata("upgrade")
    assert f"revision base, before {head()}" in strata("downgrade", "base", "--yes")
    assert f"needs {head()}" in strata("status", exit_code=1)


def test_going_back_loses_data_so_it_is_asked_for() -> None:
    strata("upgrade")
    strata("downgrade", "base", answer="n\n", exit_code=1)
    assert "up to date" in strata("status")


def test_a_revision_that_does_not_exist_is_refused_with_those_that_do() -> None:
    strata("upgrade")
    assert "Choose one of base, 0001" in strata("downgrade", "9999", "--yes", exit_code=1)


def test_a_url_in_the_environment_goes_first_and_its_password_is_never_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_DATABASE_URL", "postgresql://strata:hush@127.0.0.1:1/strata")
    said = strata("status", exit_code=1)
    assert "127.0.0.1:1/strata" in said and "hush" not in said
    monkeypatch.setenv("STRATA_DATABASE_URL", f"sqlite:///{home}/other.db")
    assert "other.db" in strata("upgrade")

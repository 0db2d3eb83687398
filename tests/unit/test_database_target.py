"""Which database a URL means, and that its password shows nowhere."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from contracts.errors import ConfigError
from database.config import DatabaseConfig
from database.target import Target


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://strata@db-1:5433/strata", "db-1:5433/strata"),
        ("postgres://db-1/strata?sslmode=verify-full", "db-1/strata"),
        (
            "postgresql://strata:hush@db-1:5432,db-2:5432/strata?target_session_attrs=read-write",
            "db-1:5432,db-2:5432/strata",
        ),
        ("postgresql://strata:hush@[::1]:5432/strata", "[::1]:5432/strata"),
        ("postgresql:///strata?host=/run/postgresql&password=hush", "/run/postgresql/strata"),
        ("postgresql:///strata", "localhost/strata"),
        ("postgresql://strata:hu%40sh%2F@db-1/strata", "db-1/strata"),
        ("postgresql://strata:hu@sh@db-1/strata", "db-1/strata"),
    ],
)
def test_a_postgresql_database_is_named_by_its_hosts_and_name(url: str, place: str) -> None:
    target = Target.parse(url)
    assert (target.dialect, target.place, target.url) == ("postgresql", place, url)
    assert "hush" not in f"{target} {target!r}"


@pytest.mark.parametrize("url", ["sqlite:////data/strata.db", "sqlite:///data/strata.db"])
def test_a_sqlite_database_is_a_file(url: str) -> None:
    target = Target.parse(url)
    assert (target.dialect, target.place, target.url) == ("sqlite", "/data/strata.db", "")


def test_the_default_is_a_file_that_means_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Target.file(Path("data/strata.db")).place == str(tmp_path / "data" / "strata.db")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hush",
        "mysql://strata:hush@db/strata",
        "postgresql+asyncpg://strata:hush@db/strata",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:?hush",
        "postgresql:strata:hush@db",
        # A password with an unescaped character, which a lenient reader would take for a host and show.
        "postgresql://strata:hush/1@db/strata",
        "postgresql://strata:hush?1@db/strata",
        "postgresql://strata:hush#1@db/strata",
        "postgresql://strata:hush",
        "postgresql:///strata?password=hush@1",
    ],
)
def test_another_form_is_refused_without_showing_any_of_it(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Target.parse(url)
    assert caught.value.field == "database.url"
    assert "hush" not in str(caught.value)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=4).map(lambda text: f"hush{text}"))
def test_no_password_is_ever_shown_however_it_is_written(password: str) -> None:
    try:
        shown = repr(Target.parse(f"postgresql://strata:{password}@db/strata"))
    except ConfigError as error:
        shown = f"{error} {error!r}"
    assert "hush" not in shown


@pytest.mark.parametrize(
    ("url", "has_password"),
    [
        ("postgresql://db/strata", False),
        ("postgresql://strata@db/strata", False),
        ("postgresql://strata:hush@db/strata", True),
        ("postgresql://strata@db/strata?password=hush", True),
        ("sqlite:////data/strata:1.db", False),
    ],
)
def test_the_settings_take_no_password(url: str, has_password: bool) -> None:
    assert Target.parse(url).has_password is has_password
    if not has_password:
        assert DatabaseConfig(url=url).url == url
        return
    with pytest.raises(ValidationError, match="STRATA_DATABASE_URL"):
        DatabaseConfig(url=url)


def test_a_sqlite_file_is_absent_until_somebody_makes_it(tmp_path: Path) -> None:
    target = Target.file(tmp_path / "strata.db")
    assert target.absent
    Path(target.place).touch()
    assert not target.absent

"""Which JDK a development Elasticsearch runs on."""

from pathlib import Path

import pytest

from contracts.errors import ConfigError
from deployments.environment import Environment
from index.elastic.devnode import jdk

NO_FOLDERS: tuple[str, ...] = ()


def fake_jdk(home: Path, version: str, modules: str = "java.base jdk.compiler", *, compiler: bool = True) -> Path:
    """A folder that looks like a JDK, with nothing in it that runs."""
    (home / "bin").mkdir(parents=True)
    for program in ("java", "javac") if compiler else ("java",):
        (home / "bin" / program).touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Fake"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def no_java_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    return path


def test_the_preferred_jdk_comes_before_newer_ones_elsewhere(tmp_path: Path) -> None:
    fake_jdk(tmp_path / "usual" / "jdk-25", "25.0.3")
    preferred = fake_jdk(tmp_path / "mine", "21.0.1")
    assert jdk.find([preferred], [f"{tmp_path}/usual/*"]) == jdk.Jdk(
        preferred, 21, frozenset({"java.base", "jdk.compiler"})
    )


def test_one_that_is_too_old_is_passed_over_even_when_preferred(tmp_path: Path) -> None:
    old = fake_jdk(tmp_path / "old", "17.0.15")
    new = fake_jdk(tmp_path / "usual" / "jdk-21", "21")
    assert jdk.find([old], [f"{tmp_path}/usual/*"]).home == new


def test_the_usual_folders_are_patterns(tmp_path: Path) -> None:
    home = fake_jdk(tmp_path / "Machines" / "temurin" / "Contents" / "Home", "24.0.1")
    (tmp_path / "Machines" / "empty").mkdir()
    assert jdk.find([], [f"{tmp_path}/nowhere/*", f"{tmp_path}/Machines/*/Contents/Home"]).home == home


def test_java_on_the_path_is_followed_to_its_jdk(tmp_path: Path, no_java_on_the_path: Path) -> None:
    home = fake_jdk(tmp_path / "linked", "23")
    (no_java_on_the_path / "java").symlink_to(home / "bin" / "java")
    assert jdk.find([], NO_FOLDERS).home == home


def test_the_error_names_what_was_found_and_the_remedy(tmp_path: Path) -> None:
    old = fake_jdk(tmp_path / "old", "1.8.0_402")
    runtime = fake_jdk(tmp_path / "runtime", "25.0.3", compiler=False)
    with pytest.raises(ConfigError) as error:
        jdk.find([old, runtime, tmp_path / "nowhere"], NO_FOLDERS)
    assert f"found 8 at {old}, 25 without javac at {runtime}." in error.value.message
    assert "ES_JAVA_HOME" in error.value.remedy


def test_the_error_says_when_there_is_no_java_at_all() -> None:
    with pytest.raises(ConfigError, match="found none"):
        jdk.find([], NO_FOLDERS)


def test_a_jdk_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = fake_jdk(tmp_path / "bare", "")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho java.base@22.0.2\necho jdk.incubator.vector@22.0.2\n")
    found = jdk.find([home], NO_FOLDERS)
    assert found.version == 22
    assert found.has_vector


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    home = fake_jdk(tmp_path / "broken", "")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    assert jdk.inspect(home) is None


def test_vectors_use_simd_only_where_the_jdk_has_the_module(tmp_path: Path) -> None:
    plain = jdk.inspect(fake_jdk(tmp_path / "plain", "25"))
    full = jdk.inspect(fake_jdk(tmp_path / "full", "25", "java.base jdk.incubator.vector"))
    assert plain
    assert full
    assert (plain.has_vector, full.has_vector) == (False, True)


def test_es_java_home_is_looked_at_before_java_home() -> None:
    environment = Environment.read({"JAVA_HOME": "/usual", "ES_JAVA_HOME": "/mine"})
    assert environment.java_homes == [Path("/mine"), Path("/usual")]
    assert Environment.read({"ES_JAVA_HOME": ""}).java_homes == []


def test_the_cache_follows_the_users_cache_folder() -> None:
    assert Environment.read({"XDG_CACHE_HOME": "/caches"}).cache_dir == Path("/caches/strata")
    assert Environment().cache_dir == Path.home() / ".cache" / "strata"

"""``strata es`` where no node can be started."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployments.cli.app import app


def es(folder: Path, *arguments: str) -> Result:
    config = folder / "config.yaml"
    config.write_text(json.dumps({"data_dir": str(folder / "data")}))
    done = CliRunner().invoke(app, ["es", *arguments, "--config", str(config)])
    assert "Traceback" not in done.output
    return done


def test_status_exits_with_1_while_no_node_runs(tmp_path: Path) -> None:
    done = es(tmp_path, "status", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["running"] is False
    assert "down" in es(tmp_path, "status").stdout


def test_stop_without_a_node_is_no_error_and_makes_nothing(tmp_path: Path) -> None:
    done = es(tmp_path, "stop")
    assert done.exit_code == 0
    assert "No node runs" in done.stdout
    assert not (tmp_path / "data").exists()


def test_a_wrong_heap_is_told_with_the_remedy(tmp_path: Path) -> None:
    done = es(tmp_path, "start", "--heap", "much")
    assert done.exit_code == 1
    assert "'much' is no heap size" in done.stderr
    assert "→" in done.stderr


def test_two_nodes_are_refused(tmp_path: Path) -> None:
    assert es(tmp_path, "start", "--nodes", "2").exit_code == 2


def test_a_missing_maven_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk = tmp_path / "fake-jdk"
    (jdk / "bin").mkdir(parents=True)
    for name in ("java", "javac"):
        (jdk / "bin" / name).touch()
    (jdk / "release").write_text('JAVA_VERSION="25.0.3"\n')
    for name, value in {"ES_JAVA_HOME": jdk, "XDG_CACHE_HOME": tmp_path / "cache", "PATH": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    done = es(tmp_path, "start", "--detach")
    assert done.exit_code == 1
    assert "Maven is not installed" in done.stderr
    assert "Install it" in done.stderr

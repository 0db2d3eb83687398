"""The manifests of ``k8s/`` are sound, and what they are made of and held to is found or its lack explained."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contracts.errors import ConfigError
from deployments.cli.app import app as cli
from deployments.k8s import kustomize
from deployments.k8s.render import GENERATED, drifted, merged, overlaid, overlays, write
from deployments.k8s.schemas import Schemas, rayservice_schema, strict
from deployments.k8s.validate import validate
from tests.support.k8s import CONFIG, FOLDER, Manifest


def test_every_manifest_of_every_overlay_is_sound(k8s_schemas: Schemas, kustomize_command: list[str]) -> None:
    assert validate(FOLDER, CONFIG, k8s_schemas, kustomize_command) == []


def test_every_overlay_has_what_a_cluster_needs(kustomize_command: list[str]) -> None:
    for name in overlays(FOLDER):
        kinds = {manifest["kind"] for manifest in kustomize.build(kustomize_command, FOLDER / "overlays" / name)}
        assert {"RayService", "NetworkPolicy", "ServiceAccount", "Ingress", "ConfigMap"} <= kinds
        assert ("PodDisruptionBudget" in kinds) == (name != "small")
        assert ("Elasticsearch" in kinds, "StatefulSet" in kinds) == (name != "small", name == "small")


def test_every_process_of_ray_may_be_given_the_variables_of_the_knowledge_base(gpu_manifests: list[Manifest]) -> None:
    """K8: any of them may be the one that builds the graph."""
    (service,) = [each for each in gpu_manifests if each["kind"] == "RayService"]
    cluster = service["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {"configMapRef": {"name": "strata-knowledge-base", "optional": True}} in container["envFrom"]


def test_the_command_prints_what_is_wrong_and_fails(tmp_path: Path, kustomize_command: list[str]) -> None:
    folder = tmp_path / "k8s"
    shutil.copytree(FOLDER, folder)
    budget = folder / "base" / "disruption.yaml"
    budget.write_text(
        budget.read_text(encoding="utf-8").replace("minAvailable: 1", "minAvailable: 9"), encoding="utf-8"
    )
    shown = CliRunner().invoke(cli, ["k8s", "validate", "--no-fetch", "--folder", str(folder), "-c", str(CONFIG)])
    assert shown.exit_code == 1
    assert "production-cpu PodDisruptionBudget strata-workers: minAvailable is 9 of 2 pods" in shown.stdout
    assert "not held to KubeRay's schema" in shown.stdout


def test_a_kustomization_that_can_not_be_put_together_is_an_error_with_its_reason(
    tmp_path: Path, kustomize_command: list[str]
) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [absent.yaml]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        kustomize.build(kustomize_command, tmp_path)


def test_without_go_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        rayservice_schema(tmp_path)
    assert "Install" in caught.value.remedy


def test_a_schema_with_another_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho \'{"Sum": "h1:other", "Dir": "/"}\'\n', encoding="utf-8")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ConfigError, match="h1:other"):
        rayservice_schema(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_strict_schema_refuses_what_it_lacks_and_leaves_free_parts_free() -> None:
    schema = strict(
        {
            "properties": {
                "closed": {"properties": {"properties": {"type": "string"}}},
                "labels": {"additionalProperties": {"type": "string"}},
                "any": {"type": "object"},
                "kept": {"properties": {}, "x-kubernetes-preserve-unknown-fields": True},
            }
        }
    )
    assert schema["additionalProperties"] is False
    parts = schema["properties"]
    assert parts["closed"]["additionalProperties"] is False
    assert parts["labels"]["additionalProperties"] == {"type": "string"}
    assert "additionalProperties" not in parts["any"]
    assert "additionalProperties" not in parts["kept"]


def test_the_generated_files_say_what_the_settings_say() -> None:
    assert drifted(FOLDER, CONFIG) == []


def test_changed_settings_show_as_drift_until_the_files_are_written(tmp_path: Path) -> None:
    config, folder = tmp_path / "cluster.yaml", tmp_path / "k8s"
    (folder / "overlays" / "one").mkdir(parents=True)
    (folder / "overlays" / "one" / "kustomization.yaml").touch()
    config.write_text("embedder: {backend: deterministic}\n", encoding="utf-8")
    assert len(write(folder, config)) == 3
    assert drifted(folder, config) == []
    config.write_text("embedder: {backend: deterministic, query_cache: 7}\n", encoding="utf-8")
    assert {path.name for path in drifted(folder, config)} == {"serve-config.yaml", "settings.yaml"}
    assert all(path.parent.name == GENERATED for path in write(folder, config))


@pytest.mark.parametrize("overlay", [None, *sorted(path.parent.name for path in FOLDER.glob("overlays/*/k*.yaml"))])
def test_the_settings_of_every_overlay_are_valid(overlay: str | None) -> None:
    settings = overlaid(CONFIG, overlay)
    assert settings.index.backend == "elasticsearch"
    assert settings.server.host == "0.0.0.0"
    assert settings.identity.jwt.issuer


def test_settings_of_an_overlay_change_only_what_they_name() -> None:
    below = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert merged(below, {"a": {"c": [3]}, "e": {}}) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": {}}
    assert below == {"a": {"b": 1, "c": [1, 2]}, "d": 1}

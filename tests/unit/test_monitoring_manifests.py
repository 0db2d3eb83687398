"""The monitoring component of ``k8s/``, as the overlays put it together."""

from typing import Any

import pytest
import yaml

from deployments.k8s import kustomize
from deployments.monitoring.render import rule_groups
from tests.support.k8s import FOLDER

Manifests = dict[str, Any]


@pytest.fixture(scope="module")
def manifests(kustomize_command: list[str]) -> Manifests:
    """One of each kind that is of interest here, by kind."""
    built = kustomize.build(kustomize_command, FOLDER / "overlays" / "production-cpu")
    return {each["kind"]: each for each in built if each["metadata"]["name"].startswith("strata")}


def test_every_pod_of_ray_is_scraped_at_a_port_that_it_has(manifests: Manifests) -> None:
    monitor, cluster = manifests["PodMonitor"]["spec"], manifests["RayService"]["spec"]["rayClusterConfig"]
    ports = {endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        template = group["template"]
        assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        held = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        assert ports <= held


def test_the_operator_gets_the_rules_that_are_tested(manifests: Manifests) -> None:
    assert manifests["PrometheusRule"]["spec"]["groups"] == rule_groups(FOLDER.parent)


def test_grafana_gets_the_dashboard(kustomize_command: list[str]) -> None:
    built = kustomize.build(kustomize_command, FOLDER / "overlays" / "production-gpu")
    (dashboard,) = (each for each in built if each["metadata"]["name"] == "strata-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert yaml.safe_load(dashboard["data"]["strata.json"])["title"] == "Strata"

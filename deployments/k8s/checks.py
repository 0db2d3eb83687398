"""What no schema can see: manifests that contradict one another, the settings or the code.

Each check yields what is wrong, by the manifest that has to change.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

import ray

from deployments.environment import Environment
from deployments.k8s.kustomize import Manifest
from deployments.settings import Settings

Found = Iterator[tuple[str, str]]

# What KubeRay puts behind the name of a RayService for the Service of its pods that are ready.
_SERVE_SERVICE = "-serve-svc"
_TAGGED = re.compile(r"(@sha256:[0-9a-f]{64}|:[\w][\w.-]{0,127})$")
_METRICS = "metrics-export-port"


class Manifests:
    """All manifests of an overlay.

    Args:
        manifests: As kustomize puts them together.
        settings: That the graph is started with.
    """

    def __init__(self, manifests: list[Manifest], settings: Settings) -> None:
        self.all = manifests
        self.settings = settings
        self.rayservice = next(self.of("RayService"))
        self.name = title(self.rayservice)
        self.cluster: Mapping[str, Any] = self.rayservice["spec"]["rayClusterConfig"]
        self.head: Mapping[str, Any] = self.cluster["headGroupSpec"]
        self.workers: list[Mapping[str, Any]] = self.cluster.get("workerGroupSpecs", [])

    def of(self, kind: str) -> Iterator[Manifest]:
        """The manifests of a kind."""
        return (manifest for manifest in self.all if manifest["kind"] == kind)

    def templates(self) -> Iterator[tuple[str, Mapping[str, Any], int]]:
        """Pod templates: where they stand, what they hold, how many pods there are at least."""
        yield f"{self.name}: headGroupSpec", self.head["template"], 1
        scales = self.cluster.get("enableInTreeAutoscaling")
        for group in self.workers:
            least = group.get("minReplicas" if scales else "replicas", 0)
            yield f"{self.name}: worker group {group['groupName']}", group["template"], least
        for manifest in self.all:
            if manifest["kind"] in {"StatefulSet", "Deployment", "Job"}:
                yield title(manifest), manifest["spec"]["template"], manifest["spec"].get("replicas", 1)
        for manifest in self.of("Elasticsearch"):
            for node_set in manifest["spec"]["nodeSets"]:
                yield title(manifest), node_set.get("podTemplate", {}), node_set["count"]


def title(manifest: Manifest) -> str:
    """How a manifest is named in problems."""
    return f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"


def problems(manifests: Manifests) -> Found:
    """Everything that is wrong, by manifest."""
    return chain.from_iterable(check(manifests) for check in _CHECKS)


def images(manifests: Manifests) -> Found:
    """An image without a version would be another one tomorrow."""
    for where, template, _ in manifests.templates():
        for container in _containers(template):
            image = container.get("image", "")
            if image and (not _TAGGED.search(image) or image.endswith(":latest")):
                yield where, f"the image {image} of {container['name']} has no tag of its own, nor a digest"


def head(manifests: Manifests) -> Found:
    """The head runs no stage and may die; Ray is the version that the image holds."""
    if manifests.head.get("rayStartParams", {}).get("num-cpus") != "0":
        yield manifests.name, 'headGroupSpec.rayStartParams.num-cpus is not "0": stages would run on the head'
    if not manifests.cluster.get("gcsFaultToleranceOptions", {}).get("redisAddress"):
        yield manifests.name, "gcsFaultToleranceOptions has no redisAddress: the graph would die with the head"
    if (said := manifests.cluster.get("rayVersion")) != ray.__version__:
        yield manifests.name, f"rayVersion is {said}, and the image has {ray.__version__}"


def ports(manifests: Manifests) -> Found:
    """Requests and metrics are looked for where they are."""
    port = manifests.settings.server.port
    for where, template, _ in manifests.templates():
        if not where.startswith(manifests.name):
            continue
        named = _ports(template)
        if (serve := named.get("serve")) != port:
            yield where, f"the port serve is {serve}, and server.port of the settings is {port}"
        for container in _containers(template):
            command = container.get("readinessProbe", {}).get("exec", {}).get("command", [])
            if "deployments.k8s.probe" in command and command[-1] != str(port):
                yield where, f"the readinessProbe asks port {command[-1]}, and server.port of the settings is {port}"
    for group, where in [(manifests.head, "headGroupSpec"), *((g, g["groupName"]) for g in manifests.workers)]:
        params, named = group.get("rayStartParams", {}), _ports(group["template"])
        if str(named.get("metrics")) != params.get(_METRICS):
            said = params.get(_METRICS)
            yield manifests.name, f"{where}: the port metrics is {named.get('metrics')}, and {_METRICS} is {said}"
    service = manifests.rayservice["metadata"]["name"] + _SERVE_SERVICE
    for ingress in manifests.of("Ingress"):
        for rule in ingress["spec"].get("rules", ()):
            for path in rule["http"]["paths"]:
                backend = path["backend"]["service"]
                if backend["name"] != service:
                    yield (
                        title(ingress),
                        f"it sends {path['path']} to {backend['name']}; KubeRay's service is {service}",
                    )
                if backend["port"].get("number") != port:
                    said = backend["port"].get("number")
                    yield title(ingress), f"it sends {path['path']} to port {said}, and server.port is {port}"


def closed(manifests: Manifests) -> Found:
    """Pods that no NetworkPolicy covers are open to the whole cluster, and a policy must name ports that are there."""
    policies = list(manifests.of("NetworkPolicy"))
    for where, template, _ in manifests.templates():
        if where.startswith("Job "):
            continue
        if not any(_selects(policy["spec"]["podSelector"], template) for policy in policies):
            yield where, "no NetworkPolicy covers its pods: their ports are open to the whole cluster"
    for policy in policies:
        covered = [
            template for _, template, _ in manifests.templates() if _selects(policy["spec"]["podSelector"], template)
        ]
        open_ports = set(chain.from_iterable(_ports(template).values() for template in covered))
        for rule in policy["spec"].get("ingress", ()):
            outside = any("podSelector" not in peer for peer in rule.get("from", [{}]))
            if outside and not rule.get("ports"):
                yield title(policy), "a rule lets other namespaces in on every port"
            for port in rule.get("ports", ()) if outside else ():
                if open_ports and port["port"] not in open_ports:
                    yield title(policy), f"it opens port {port['port']}, which no container of its pods has"


def disruption(manifests: Manifests) -> Found:
    """A budget that keeps every pod would stop machines from being drained, and one for no pod does nothing."""
    for budget in manifests.of("PodDisruptionBudget"):
        spec = budget["spec"]
        covered = [least for _, template, least in manifests.templates() if _selects(spec["selector"], template)]
        if not covered:
            yield title(budget), "its selector fits no pods"
        if not isinstance(spec.get("minAvailable"), int):
            yield title(budget), "pods of KubeRay need a minAvailable that is a number; other forms are ignored"
        elif covered and spec["minAvailable"] >= sum(covered):
            yield (
                title(budget),
                f"minAvailable is {spec['minAvailable']} of {sum(covered)} pods: no machine can be drained",
            )


def environment(manifests: Manifests) -> Found:
    """Every process of Ray has the switches that the settings name; variables and secrets are there."""
    maps = {each["metadata"]["name"]: each.get("data", {}) for each in manifests.of("ConfigMap")}
    known = {f"STRATA_{name.upper()}" for name in Environment.model_fields}
    for where, template, _ in manifests.templates():
        mounts = _mounts(template)
        for container in _containers(template):
            given = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
            for name, value in given.items():
                if name.startswith("STRATA_") and name not in known:
                    yield where, f"{name} is no variable of Strata"
                elif name.endswith("_FILE") and value not in mounts[container["name"]]:
                    yield where, f"{name} names {value}, which no secret is mounted as"
            for source in container.get("envFrom", ()):
                given |= maps.get(source.get("configMapRef", {}).get("name"), {})
            if where.startswith(manifests.name):
                for name, value in manifests.settings.ray.environment.items():
                    if given.get(name) != value:
                        yield where, f"{name} is {given.get(name)}, and {value} in ray.environment of the settings"


def secrets(manifests: Manifests) -> Found:
    """Secrets are made by whoever runs the cluster, and never stand in a file of this repository."""
    for secret in manifests.of("Secret"):
        yield title(secret), "secrets don't belong in manifests; name it and let the cluster's owner make it"


_CHECKS: tuple[Callable[[Manifests], Found], ...] = (
    images,
    head,
    ports,
    closed,
    disruption,
    environment,
    secrets,
)


def _containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = template.get("spec", {})
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]


def _ports(template: Mapping[str, Any]) -> dict[str, int]:
    return {
        port.get("name", str(port["containerPort"])): port["containerPort"]
        for container in _containers(template)
        for port in container.get("ports", ())
    }


def _selects(selector: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    labels = template.get("metadata", {}).get("labels", {})
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _mounts(template: Mapping[str, Any]) -> dict[str, set[str]]:
    """Paths of the secrets that each container has."""
    held: dict[str, list[str]] = {}
    for volume in template.get("spec", {}).get("volumes", ()):
        sources = [source["secret"] for source in volume.get("projected", {}).get("sources", ()) if "secret" in source]
        sources += [volume["secret"]] if "secret" in volume else []
        held[volume["name"]] = [item["path"] for source in sources for item in source.get("items", ())]
    return {
        container["name"]: {
            str(PurePosixPath(mount["mountPath"], path))
            for mount in container.get("volumeMounts", ())
            for path in held.get(mount["name"], ())
        }
        for container in _containers(template)
    }

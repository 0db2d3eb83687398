"""Whether the deployments of a graph find room in the pods of a cluster, by what Ray books: CPUs, GPUs and the like."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ray.serve.schema import DeploymentSchema, ServeDeploySchema

Amounts = Mapping[str, float]

_UNITS = {"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
# What stays over of sums of tenths.
_EPSILON = 1e-6


class Wanted(NamedTuple):
    """A deployment: what each replica books, and how many there are at most."""

    name: str
    booked: Amounts
    replicas: int


class Group(NamedTuple):
    """A worker group: what each pod has, and how many there are at most."""

    has: Amounts
    pods: int


def problems(parsed: ServeDeploySchema, cluster: Mapping[str, Any]) -> Iterator[str]:
    """What no pod has, what doesn't fit, and what would land on the head.

    Args:
        parsed: The Serve config.
        cluster: ``rayClusterConfig`` of the RayService.
    """
    size = "maxReplicas" if cluster.get("enableInTreeAutoscaling") else "replicas"
    groups = [Group(offered(group), group.get(size, 0)) for group in cluster.get("workerGroupSpecs", ())]
    # Ray keeps what books no GPU off pods that have one, while others have room.
    groups.sort(key=lambda group: group.has.get("GPU", 0.0))
    fitting = []
    for wanted in (_wanted(deployment) for app in parsed.applications for deployment in app.deployments):
        refused = list(_refused(wanted, groups))
        yield from refused
        fitting += [] if refused else [wanted] * wanted.replicas
    pods = [dict(group.has) for group in groups for _ in range(group.pods)]
    has, books = _sum(pods), _sum(replica.booked for replica in fitting)
    if name := unplaced(fitting, pods):
        yield (
            f"all replicas together book {_listed(books)}, and all pods have {_listed(has)}: "
            f"a replica of {name} finds no room"
        )


def unplaced(replicas: Sequence[Wanted], pods: Sequence[dict[str, float]]) -> str:
    """The first deployment that finds no room when the largest replicas are placed first; empty when all do.

    Args:
        replicas: One for each.
        pods: What each still has, those with a GPU last; used up.
    """
    for replica in sorted(replicas, key=lambda each: [-each.booked.get(kind, 0.0) for kind in ("GPU", "CPU")]):
        pod = next((pod for pod in pods if _fits(replica.booked, pod)), None)
        if pod is None:
            return replica.name
        for kind, amount in replica.booked.items():
            pod[kind] -= amount
    return ""


def offered(group: Mapping[str, Any]) -> dict[str, float]:
    """What a pod of a worker group has in Ray's books, as KubeRay works it out.

    Args:
        group: Of ``workerGroupSpecs``.
    """
    container = group["template"]["spec"]["containers"][0].get("resources", {})
    quantities = {**container.get("requests", {}), **container.get("limits", {})}
    found = {"CPU": float(math.ceil(quantity(quantities.get("cpu", 0))))}
    found["GPU"] = sum(quantity(amount) for name, amount in quantities.items() if name.endswith("/gpu"))
    params = group.get("rayStartParams") or {}
    found |= {kind: float(params[key]) for key, kind in (("num-cpus", "CPU"), ("num-gpus", "GPU")) if key in params}
    # In quotes, for the shell that KubeRay starts Ray with.
    found |= json.loads(params.get("resources", "").strip("'\"").replace('\\"', '"') or "{}")
    return found | {kind: quantity(amount) for kind, amount in (group.get("resources") or {}).items()}


def quantity(text: object) -> float:
    """A quantity of Kubernetes, like ``500m``, as a number."""
    said = str(text)
    unit = said.lstrip("0123456789.")
    return float(said.removesuffix(unit)) * _UNITS.get(unit, 1.0)


def _refused(wanted: Wanted, groups: Sequence[Group]) -> Iterator[str]:
    """Why no pod, even an empty one, takes a replica."""
    if not wanted.booked:
        yield f"{wanted.name} books nothing, so Ray may place it on the head"
    missing = False
    for kind, amount in wanted.booked.items():
        most = max((group.has.get(kind, 0.0) for group in groups), default=0.0)
        if amount > most + _EPSILON:
            missing = True
            has = f"a pod has at most {most:g}" if most else "no worker group has any"
            yield f"{wanted.name} books {amount:g} {kind} a replica, and {has}"
    if not missing and not any(_fits(wanted.booked, group.has) for group in groups):
        yield f"{wanted.name} books {_listed(wanted.booked)} a replica, which no worker group has in one pod"


def _wanted(deployment: DeploymentSchema) -> Wanted:
    given = deployment.model_dump(exclude_unset=True)
    options = given.get("ray_actor_options") or {}
    booked = {"CPU": options.get("num_cpus", 1.0), "GPU": options.get("num_gpus", 0.0), **options.get("resources", {})}
    scaling = given.get("autoscaling_config") or {}
    replicas = scaling.get("max_replicas") or given.get("num_replicas") or 1
    return Wanted(deployment.name, {kind: amount for kind, amount in booked.items() if amount}, replicas)


def _fits(booked: Amounts, pod: Amounts) -> bool:
    return all(pod.get(kind, 0.0) + _EPSILON >= amount for kind, amount in booked.items())


def _sum(amounts: Any) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in amounts:
        for kind, amount in each.items():
            total[kind] += amount
    return total


def _listed(amounts: Amounts) -> str:
    return " and ".join(f"{round(amount, 3):g} {kind}" for kind, amount in amounts.items() if amount) or "nothing"

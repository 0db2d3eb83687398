"""Each mistake in the manifests is found, and named."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from deployments.k8s.schemas import Schemas
from deployments.k8s.validate import problems
from tests.support.k8s import Manifest

Change = Callable[[Manifest], object]
_BUDGET = {"budget_ms": 60, "reserve_ms": 1300}


def _spec(manifest: Manifest) -> Any:
    return manifest["spec"]


def _cluster(manifest: Manifest) -> Any:
    return manifest["spec"]["rayClusterConfig"]


def _worker(manifest: Manifest, at: int = 0) -> Any:
    return _cluster(manifest)["workerGroupSpecs"][at]


def _container(manifest: Manifest, at: int = 0) -> Any:
    return _worker(manifest, at)["template"]["spec"]["containers"][0]


def _served(change: Change) -> Change:
    """A change of the Serve config inside a RayService."""

    def changed(manifest: Manifest) -> None:
        config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
        change(config)
        manifest["spec"]["serveConfigV2"] = yaml.safe_dump(config)

    return changed


def _deployment(name: str, **options: Any) -> Change:
    def changed(config: Manifest) -> None:
        app = config["applications"][0]
        found = next((each for each in app["deployments"] if each["name"] == name), None)
        if found is None:
            app["deployments"].append({"name": name, **options})
        else:
            found.update(options)

    return _served(changed)


def _args(change: Change) -> Change:
    return _served(lambda config: change(config["applications"][0]["args"]))


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        pytest.param(
            "RayService",
            lambda m: _cluster(m).update(workerGroupSpec=[]),
            ["spec.rayClusterConfig", "'workerGroupSpec' was unexpected"],
            id="a field that KubeRay lacks",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m).update(imagePullPolicies="Always"),
            ["workerGroupSpecs.0.template.spec.containers.0", "imagePullPolicies"],
            id="a field that a container lacks",
        ),
        pytest.param(
            "RayService",
            lambda m: _worker(m).update(replicas="three"),
            ["workerGroupSpecs.0.replicas", "three"],
            id="a wrong type",
        ),
        pytest.param(
            "PodDisruptionBudget",
            lambda m: _spec(m).update(minAvailble=1),
            ["spec", "minAvailble"],
            id="a field that Kubernetes lacks",
        ),
        pytest.param(
            "Elasticsearch", lambda m: _spec(m).update(nodeset=[]), ["spec", "nodeset"], id="a field that ECK lacks"
        ),
        pytest.param(
            "Elasticsearch",
            lambda m: _spec(m)["nodeSets"][0]["podTemplate"]["spec"].update(volume=[]),
            ["template.spec", "volume"],
            id="a field that ECK's pods lack",
        ),
        pytest.param(
            "Namespace",
            lambda m: m.update(kind="Namspace"),
            ["no schema is known for v1 Namspace"],
            id="an unknown kind",
        ),
        pytest.param(
            "RayService",
            _deployment("summarizer", num_replicas=1),
            ["summarizer", "which the graph lacks"],
            id="a stage that the graph lacks",
        ),
        pytest.param(
            "RayService",
            _served(lambda c: c["applications"][0]["deployments"].pop()),
            ["deployments lacks seed_search of the graph"],
            id="a stage that has no numbers",
        ),
        pytest.param(
            "RayService",
            _deployment("planner", num_replica=3),
            ["applications.0.deployments", "num_replica is no field"],
            id="a key that Serve would pass over",
        ),
        pytest.param(
            "RayService",
            _deployment("planner", num_replicas=-1),
            ["applications.0.deployments", "num_replicas"],
            id="a value that Serve refuses",
        ),
        pytest.param(
            "RayService",
            _args(lambda args: args["server"].update(prot=1)),
            ["unknown setting server.prot"],
            id="an unknown setting",
        ),
        pytest.param(
            "RayService",
            _args(lambda args: args.update(chain={"timeout_ms": 1000})),
            ["chain.budgets.reranker.budget_ms is 1200", "1000"],
            id="a budget that exceeds the total",
        ),
        pytest.param(
            "RayService",
            _args(lambda args: args.update(chain={"timeout_ms": 1200, "budgets": {"planner": _BUDGET}})),
            ["reserve_ms of all chain.budgets is 1300"],
            id="reserves that exceed the total",
        ),
        pytest.param(
            "RayService",
            _deployment("embedder", ray_actor_options={"num_gpus": 2}),
            ["embedder books 2 GPU", "at most 1"],
            id="more GPUs than a pod has",
        ),
        pytest.param(
            "RayService",
            lambda m: _cluster(m)["workerGroupSpecs"].pop(),
            ["embedder books 0.3 GPU", "no worker group has any"],
            id="GPUs without a GPU group",
        ),
        pytest.param(
            "RayService",
            _deployment("reader", ray_actor_options={"num_cpus": 1, "resources": {"fast_disk": 1}}),
            ["reader books 1 fast_disk", "no worker group has any"],
            id="a custom resource that nobody offers",
        ),
        pytest.param(
            "RayService",
            _deployment("reader", ray_actor_options={"num_cpus": 5, "num_gpus": 0.1}),
            ["reader books 5 CPU and 0.1 GPU", "no worker group has in one pod"],
            id="resources of two groups at once",
        ),
        pytest.param(
            "RayService",
            _deployment("reranker", autoscaling_config={"min_replicas": 2, "max_replicas": 9}),
            ["6.6 GPU", "4 GPU", "a replica of reranker finds no room"],
            id="more replicas than there is room for",
        ),
        pytest.param(
            "RayService",
            _deployment("planner", ray_actor_options={"num_cpus": 0}),
            ["planner books nothing", "head"],
            id="a replica that books nothing",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m)["ports"][0].update(containerPort=9000),
            ["worker group cpu", "port serve is 9000", "8000"],
            id="a serving port that the settings don't name",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m)["readinessProbe"]["exec"]["command"].__setitem__(-1, "81"),
            ["worker group cpu", "readinessProbe asks port 81"],
            id="a probe of another port",
        ),
        pytest.param(
            "RayService",
            lambda m: _worker(m, 1)["rayStartParams"].update({"metrics-export-port": "9090"}),
            ["gpu", "metrics is 8080", "9090"],
            id="metrics on another port",
        ),
        pytest.param(
            "RayService",
            _served(lambda c: c["http_options"].update(host="127.0.0.1", port=8001)),
            ["http_options.port is 8001", "http_options.host is 127.0.0.1"],
            id="a proxy that listens elsewhere",
        ),
        pytest.param(
            "Ingress",
            lambda m: _path(m)["service"].update(name="strata", port={"number": 80}),
            ["strata-serve-svc", "port 80"],
            id="an Ingress to nowhere",
        ),
        pytest.param(
            "NetworkPolicy",
            lambda m: _spec(m)["ingress"][1]["ports"][0].update(port=8001),
            ["opens port 8001"],
            id="a policy for a port that is not there",
        ),
        pytest.param(
            "NetworkPolicy",
            lambda m: _spec(m)["ingress"][1].pop("ports"),
            ["lets other namespaces in on every port"],
            id="a policy that opens everything",
        ),
        pytest.param(
            "NetworkPolicy",
            lambda m: _spec(m)["podSelector"]["matchLabels"].update({"app.kubernetes.io/name": "other"}),
            ["no NetworkPolicy covers"],
            id="pods that are open to all",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m).update(image="strata"),
            ["worker group cpu", "image strata of ray-worker has no tag"],
            id="an image without a tag",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m).update(image="strata:latest"),
            ["strata:latest"],
            id="the latest image",
        ),
        pytest.param(
            "RayService",
            lambda m: _cluster(m)["headGroupSpec"]["rayStartParams"].pop("num-cpus"),
            ["num-cpus", "stages would run on the head"],
            id="a head that takes stages",
        ),
        pytest.param(
            "RayService",
            lambda m: _cluster(m).pop("gcsFaultToleranceOptions"),
            ["gcsFaultToleranceOptions"],
            id="a head that can't die",
        ),
        pytest.param(
            "RayService",
            lambda m: _cluster(m).update(rayVersion="2.9.0"),
            ["rayVersion is 2.9.0"],
            id="another Ray than the image's",
        ),
        pytest.param(
            "PodDisruptionBudget",
            lambda m: _spec(m).update(minAvailable=2),
            ["minAvailable is 2 of 2", "drained"],
            id="a budget that forbids every drain",
        ),
        pytest.param(
            "PodDisruptionBudget",
            lambda m: _spec(m).update(minAvailable="50%"),
            ["a number"],
            id="a budget in a form that is ignored",
        ),
        pytest.param(
            "PodDisruptionBudget",
            lambda m: _spec(m)["selector"]["matchLabels"].update({"app.kubernetes.io/component": "tpu"}),
            ["selector fits no pods"],
            id="a budget for no pods",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m)["env"].append({"name": "STRATA_JWT_SECRETS_FILE", "value": "/x"}),
            ["STRATA_JWT_SECRETS_FILE is no variable"],
            id="an unknown variable",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m)["env"][1].update(value="/etc/strata/secrets/jwt"),
            ["/etc/strata/secrets/jwt, which no secret is mounted as"],
            id="a secret that is not there",
        ),
        pytest.param(
            "RayService",
            lambda m: _container(m).pop("envFrom"),
            ["worker group cpu", "RAY_SERVE_USE_GRPC_BY_DEFAULT is None"],
            id="a worker without Ray's switches",
        ),
    ],
)
def test_a_mistake_is_found_and_named(
    kind: str, change: Change, said: list[str], gpu_manifests: list[Manifest], k8s_schemas: Schemas
) -> None:
    manifests = copy.deepcopy(gpu_manifests)
    change(next(manifest for manifest in manifests if manifest["kind"] == kind))
    found = "\n".join(f"{where}: {message}" for where, message in problems(manifests, k8s_schemas))
    for part in said:
        assert part in found, found


def _path(ingress: Manifest) -> Any:
    return ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]


def test_a_secret_in_a_manifest_is_refused(gpu_manifests: list[Manifest], k8s_schemas: Schemas) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "strata-secrets"}, "stringData": {"a": "b"}}
    assert [where for where, _ in problems([*gpu_manifests, secret], k8s_schemas)] == ["Secret strata-secrets"]

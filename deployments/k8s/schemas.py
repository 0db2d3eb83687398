"""Manifests against schemas, strictly: a field that its schema lacks is an error, where the API server would drop it.

Those of Kubernetes come with the package kubernetes-validate; KubeRay's RayService is fetched with Go, by version and
checksum, and kept in our cache; of others ``k8s/schemas.yaml`` says what we use.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from contracts.errors import ConfigError
from deployments.k8s.kustomize import Manifest, run_go

KUBERNETES = "1.34"
KUBERAY = "v1.6.0"
_MODULE = f"github.com/ray-project/kuberay/ray-operator@{KUBERAY}"
# Of the module, as Go writes it to go.sum.
_SUM = "h1:1hs7Di2U/vm09ot7MIU8jUqEo7gHDc4gkbv1eFvqCsQ="
_CRD = Path("config/crd/bases/ray.io_rayservices.yaml")
_FETCH_S = 300
_RAYSERVICE = "ray.io/v1 RayService"


def rayservice_schema(cache: Path) -> dict[str, Any]:
    """The JSON schema of a RayService, made strict.

    Args:
        cache: Folder of ours; made when it is needed. What is in it already is not fetched.

    Raises:
        ConfigError: It can't be fetched, or is not what the checksum says.
    """
    kept = cache / "schemas" / f"rayservice-{KUBERAY}.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_bytes())
        return found
    # With a version, Go takes it from its own cache where it is there.
    module = json.loads(run_go(["mod", "download", "-json", _MODULE], f"KubeRay {KUBERAY}", _FETCH_S))
    if module["Sum"] != _SUM:
        raise ConfigError(f"KubeRay {KUBERAY} has the checksum {module['Sum']}, not {_SUM}.", remedy="Don't use it.")
    crd = yaml.load(Path(module["Dir"], _CRD).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    version = next(version for version in crd["spec"]["versions"] if version["name"] == "v1")
    schema: dict[str, Any] = strict(version["schema"]["openAPIV3Schema"])
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = kept.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(schema), encoding="utf-8")
    fresh.replace(kept)
    return schema


def strict(schema: Any) -> Any:
    """The schema of a custom resource as one that refuses what the API server would drop."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: strict(part) for name, part in value.items()} if key == "properties" else strict(value)
        for key, value in schema.items()
    }
    free = "additionalProperties" in made or made.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in made and not free:
        made["additionalProperties"] = False
    return made


class Schemas:
    """Checks manifests by their kinds.

    Args:
        own: The file ``k8s/schemas.yaml``.
        rayservice: As :func:`rayservice_schema` gives it; without one RayServices pass.
    """

    def __init__(self, own: Path, rayservice: dict[str, Any] | None) -> None:
        own_schemas = yaml.safe_load(own.read_text(encoding="utf-8"))
        self._custom = {
            kind: {
                "additionalProperties": False,
                "properties": {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}, "spec": spec},
            }
            for kind, spec in own_schemas.items()
        }
        for spec in own_schemas.values():
            spec.setdefault("additionalProperties", False)
        self._custom[_RAYSERVICE] = rayservice if rayservice else {}

    def problems(self, manifest: Manifest) -> Iterator[str]:
        """What is wrong with a manifest, by field."""
        kind = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
        if (schema := self._custom.get(kind)) is None:
            yield from _core(manifest)
            return
        for error in jsonschema.Draft202012Validator(schema).iter_errors(manifest):
            yield _said(error)
        for template in _templates(manifest):
            yield from _core(template)


def _core(manifest: Manifest) -> Iterator[str]:
    try:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield _said(error)
    except kubernetes_validate.SchemaNotFoundError:
        yield f"no schema is known for {manifest.get('apiVersion')} {manifest.get('kind')}"


def _templates(manifest: Manifest) -> Iterator[Manifest]:
    """Pod and claim templates of ECK, each as the resource of Kubernetes that it stands for."""
    for node_set in manifest.get("spec", {}).get("nodeSets", ()):
        if template := node_set.get("podTemplate"):
            yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        for claim in node_set.get("volumeClaimTemplates", ()):
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim}


def _said(error: Any) -> str:
    """The deepest thing that is wrong, with the path to it."""
    while error.context:
        error = max(error.context, key=lambda part: len(part.absolute_path))
    path = ".".join(str(part) for part in error.absolute_path) or "the manifest"
    return f"{path}: {error.message[:300]}"

"""Every manifest of every overlay: schemas, the Serve config, and what only shows when they are seen together."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import ValidationError
from ray.serve.schema import ServeDeploySchema

from contracts.errors import ConfigError
from deployments.k8s import checks, resources, serving
from deployments.k8s.checks import Manifests, title
from deployments.k8s.kustomize import Manifest, build
from deployments.k8s.render import drifted, overlays
from deployments.k8s.schemas import Schemas


class Problem(NamedTuple):
    """Something that has to change."""

    overlay: str
    manifest: str
    message: str


def validate(folder: Path, config: Path, schemas: Schemas, kustomize: Sequence[str]) -> list[Problem]:
    """Everything that is wrong below ``k8s``; nothing when it is sound.

    Args:
        folder: ``k8s`` of a checkout.
        config: The settings of all overlays.
        schemas: Of the manifests.
        kustomize: As ``kustomize.find`` gives it.

    Raises:
        ConfigError: A kustomization can't be put together, or the settings are wrong.
    """
    found = [
        Problem(path.parts[-3], path.name, "it is not what the settings say; run: strata k8s render --write")
        for path in drifted(folder, config)
    ]
    for name in overlays(folder):
        manifests = build(kustomize, folder / "overlays" / name)
        found += (Problem(name, *problem) for problem in problems(manifests, schemas))
    for path in sorted(folder.glob("jobs/*/kustomization.yaml")):
        manifests = build(kustomize, path.parent)
        found += (Problem(path.parent.name, *problem) for problem in _by_schema(manifests, schemas))
    return found


def problems(manifests: list[Manifest], schemas: Schemas) -> Iterator[tuple[str, str]]:
    """What is wrong with the manifests of one overlay, each with the manifest that has to change.

    Where a manifest does not fit its schema, or the Serve config its own, no more is looked at: the rest would only
    stumble over the same.

    Args:
        manifests: Put together.
        schemas: Of the manifests.
    """
    if broken := list(_by_schema(manifests, schemas)):
        yield from broken
        return
    services = [manifest for manifest in manifests if manifest["kind"] == "RayService"]
    if len(services) != 1:
        yield "RayService", f"there must be one, and there are {len(services)}"
        return
    where, text = title(services[0]), services[0]["spec"].get("serveConfigV2", "")
    wrong = list(serving.problems(text))
    yield from ((f"{where}: serveConfigV2", message) for message in wrong)
    try:
        parsed, settings = ServeDeploySchema.model_validate(yaml.safe_load(text)), serving.settings_of(text)
    except (ValidationError, ConfigError, yaml.YAMLError):
        return
    own = Manifests(manifests, settings)
    yield from ((f"{where}: serveConfigV2", message) for message in resources.problems(parsed, own.cluster))
    yield from ((f"{where}: serveConfigV2", message) for message in _listening(parsed, own))
    yield from checks.problems(own)


def _by_schema(manifests: Iterable[Manifest], schemas: Schemas) -> Iterator[tuple[str, str]]:
    for manifest in manifests:
        yield from ((title(manifest), message) for message in schemas.problems(manifest))


def _listening(parsed: ServeDeploySchema, manifests: Manifests) -> Iterator[str]:
    options, server = parsed.http_options, manifests.settings.server
    if options.port != server.port:
        yield f"http_options.port is {options.port}, and server.port of the settings is {server.port}"
    if options.host in {"127.0.0.1", "localhost", "::1"}:
        yield f"http_options.host is {options.host}: nothing outside a pod reaches it; set server.host to 0.0.0.0"

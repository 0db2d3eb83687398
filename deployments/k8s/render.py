"""The settings as KubeRay takes them: ``serveConfigV2``, the environment of Ray's processes, the settings file.

Every number of the graph stands in the settings and nowhere else. What Serve changes in place, without restarting
replicas (how many, how large a batch), goes into ``deployments``; all else is the application's ``args``, whose change
rolls every deployment. So does a change between a fixed number and autoscaling, which Serve takes for new code too.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from ray.serve._private.build_app import build_app
from ray.serve.deployment import deployment_to_schema

from contracts.errors import ConfigError
from deployments.graph import APP, build, http_options
from deployments.settings import Settings, parse, read_yaml
from deployments.stage_settings import BatchSettings, DeploymentSettings

NAME = "strata"
IMPORT_PATH = "deployments.graph:app"
GENERATED = "generated"
# A change of Ray's environment needs new processes: the hash in the head's template makes KubeRay start a new cluster.
ENVIRONMENT_HASH = "strata/ray-environment"


def overlays(folder: Path) -> list[str]:
    """Names of the overlays below ``folder``, sorted.

    Raises:
        ConfigError: There are none.
    """
    found = sorted(path.parent.name for path in folder.glob("overlays/*/kustomization.yaml"))
    if not found:
        raise ConfigError(f"{folder} has no overlays.", field="folder", remedy="Name the folder k8s of a checkout.")
    return found


def overlaid(config: Path, overlay: str | None) -> Settings:
    """The settings of a file, with those of an overlay over them: ``cluster.small.yaml`` over ``cluster.yaml``.

    Folders stay as they are written: they mean pods, not this machine.

    Args:
        config: The settings of every overlay.
        overlay: Its own ones may be missing.

    Raises:
        ConfigError: A file can't be read or a setting is wrong.
    """
    raw, source = read_yaml(config), str(config)
    own = config.with_name(f"{config.stem}.{overlay}{config.suffix}")
    if overlay and own.exists():
        raw, source = merged(raw, read_yaml(own)), f"{config} with {own.name}"
    return parse(raw, source=source)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, key by key; where both have a value that is no mapping, that of ``above``."""
    both = dict(below)
    for key, value in above.items():
        held = both.get(key)
        both[key] = merged(held, value) if isinstance(held, Mapping) and isinstance(value, Mapping) else value
    return both


def serve_config(settings: Settings) -> dict[str, Any]:
    """What ``serve deploy`` and a RayService take (ServeDeploySchema).

    Args:
        settings: As :func:`overlaid` gives them.
    """
    built = build_app(build(settings), name=APP)
    return {
        "proxy_location": settings.ray.proxy_location,
        "http_options": http_options(settings),
        # As where Strata starts Serve itself: the ingress writes one line a search.
        "logging_config": {"enable_access_log": False},
        "applications": [
            {
                "name": APP,
                "route_prefix": "/",
                "import_path": IMPORT_PATH,
                "args": arguments(settings),
                "deployments": [
                    deployment_to_schema(deployment).model_dump(mode="json", exclude_unset=True)
                    for deployment in sorted(built.deployments, key=lambda deployment: deployment.name)
                ],
            }
        ],
    }


def arguments(settings: Settings) -> dict[str, Any]:
    """The settings that were given, less what stands in ``deployments``."""
    given = _given(settings)
    if settings.limits.active:
        # The ingress goes by the number of its replicas when the ledger of the limits does not answer.
        own = settings.server.deployment.model_dump(mode="json", exclude_unset=True)
        given["server"] = {**given.get("server", {}), "deployment": own}
    return given


def files(settings: Settings, source: str) -> dict[str, str]:
    """The generated files of an overlay, by name.

    Args:
        settings: Of the overlay.
        source: Which settings they are made of, for the first line.
    """
    head = f"# Made of {source} by `strata k8s render --write`; changes belong there.\n"
    environment = "".join(f"{key}={value}\n" for key, value in sorted(settings.ray.environment.items()))
    digest = hashlib.sha256(environment.encode()).hexdigest()[:16]
    patch = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": NAME},
        "spec": {
            "serveConfigV2": dump(serve_config(settings)),
            "rayClusterConfig": {
                "headGroupSpec": {"template": {"metadata": {"annotations": {ENVIRONMENT_HASH: digest}}}}
            },
        },
    }
    return {
        "serve-config.yaml": head + dump(patch),
        "ray.env": head + environment,
        "settings.yaml": head + dump(settings.model_dump(mode="json", exclude_unset=True)),
    }


def write(folder: Path, config: Path) -> list[Path]:
    """Write the generated files of all overlays.

    Returns:
        Those that changed.

    Raises:
        ConfigError: See :func:`overlaid`.
    """
    changed = []
    for path, text in _wanted(folder, config):
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def drifted(folder: Path, config: Path) -> list[Path]:
    """Generated files that are missing, or say something else than the settings.

    Raises:
        ConfigError: See :func:`overlaid`.
    """
    return [
        path for path, text in _wanted(folder, config) if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def dump(data: object) -> str:
    """As YAML: keys in their order, texts of several lines as blocks."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _wanted(folder: Path, config: Path) -> Iterator[tuple[Path, str]]:
    for overlay in overlays(folder):
        own = config.with_name(f"{config.stem}.{overlay}{config.suffix}")
        source = f"{config.name} and {own.name}" if own.exists() else config.name
        for name, text in files(overlaid(config, overlay), source).items():
            yield folder / "overlays" / overlay / GENERATED / name, text


def _given(model: BaseModel) -> dict[str, Any]:
    plain = model.model_dump(mode="json", exclude_unset=True)
    for name in list(plain):
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            plain[name] = {} if isinstance(value, DeploymentSettings | BatchSettings) else _given(value)
            if not plain[name]:
                del plain[name]
    return plain


class _Dumper(yaml.SafeDumper):
    pass


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)

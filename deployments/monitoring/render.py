"""The files that are made of the metrics, of their rules and of the dashboard."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from contracts.errors import ConfigError
from deployments.monitoring.catalog import catalog
from deployments.monitoring.dashboard import dashboard
from deployments.monitoring.docs import markdown

FOLDER = Path("k8s/components/monitoring")
RULES = FOLDER / "rules.yaml"
_SAY = "# Made of rules.yaml by `strata metrics render --write`; changes belong there.\n"


def rule_groups(root: Path) -> list[dict[str, Any]]:
    """The groups of the rules.

    Args:
        root: Of a checkout.

    Raises:
        ConfigError: It has none.
    """
    try:
        groups: list[dict[str, Any]] = yaml.safe_load((root / RULES).read_text(encoding="utf-8"))["groups"]
    except OSError as error:
        raise ConfigError(f"{root / RULES} can't be read: {error.strerror}.", remedy="Run it in a checkout.") from None
    # A file of its own: no references to what was read.
    copy: list[dict[str, Any]] = json.loads(json.dumps(groups))
    return copy


def write(root: Path) -> list[Path]:
    """Write the files, and tell which changed.

    Raises:
        ConfigError: See :func:`rule_groups`.
    """
    changed = []
    for path, text in _differing(root):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        changed.append(path)
    return changed


def drifted(root: Path) -> list[Path]:
    """Files that are missing, or are not what they would be made.

    Raises:
        ConfigError: See :func:`rule_groups`.
    """
    return [path for path, _ in _differing(root)]


def _differing(root: Path) -> Iterator[tuple[Path, str]]:
    groups = rule_groups(root)
    manifest = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "strata"},
        "spec": {"groups": groups},
    }
    made = {
        Path("docs/metrics.md"): markdown(catalog(), groups),
        FOLDER / "generated/prometheusrule.yaml": _SAY + yaml.safe_dump(manifest, sort_keys=False, width=120),
        FOLDER / "generated/dashboard.json": json.dumps(dashboard(), indent=1) + "\n",
    }
    for name, text in made.items():
        path = root / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path, text

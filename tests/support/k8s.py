"""The manifests of ``k8s/``, and the schemas that they are held to."""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import kubernetes_validate
import pytest

from contracts.errors import ConfigError
from deployments.environment import Environment
from deployments.k8s import kustomize
from deployments.k8s.schemas import Schemas, rayservice_schema

ROOT = Path(__file__).parents[2]
FOLDER, CONFIG = ROOT / "k8s", ROOT / "configs" / "cluster.yaml"

Manifest = dict[str, Any]
Found = TypeVar("Found")


@pytest.fixture(scope="session")
def k8s_schemas() -> Iterator[Schemas]:
    """KubeRay's among them, which comes by Go's module proxy, once."""
    schema = _needed(rayservice_schema)
    with pytest.MonkeyPatch.context() as patch:
        # Read from disk once, and not for each manifest of each test.
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield Schemas(FOLDER / "schemas.yaml", schema)


@pytest.fixture(scope="session")
def kustomize_command() -> list[str]:
    """Builds a kustomization, whose folder goes behind it."""
    return _needed(kustomize.find)


@pytest.fixture(scope="session")
def gpu_manifests(kustomize_command: list[str]) -> list[Manifest]:
    """Those of the largest overlay; tests change copies."""
    return kustomize.build(kustomize_command, FOLDER / "overlays" / "production-gpu")


def _needed(find: Callable[[Path], Found]) -> Found:
    """What is fetched when it is not here; where CI must not do without, a miss is a failure."""
    try:
        return find(Environment.read().cache_dir)
    except ConfigError as error:
        if os.environ.get("STRATA_TESTS_NEED_K8S_SCHEMAS"):
            raise
        pytest.skip(f"{error.message} {error.remedy}")

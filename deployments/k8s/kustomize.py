"""The manifests of an overlay, as kustomize puts them together.

It is looked for as ``kustomize``, in ``kubectl``, and in our cache; where all lack it, Go makes it, once.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from contracts.errors import ConfigError

Manifest = dict[str, Any]

_MODULE = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"
# Older ones know no components or take patches differently.
_OLDEST = 5
_BUILD_S = 60
_INSTALL_S = 900


def find(cache: Path) -> list[str]:
    """The command that builds a folder, which goes behind it.

    Args:
        cache: Folder of ours; made when it is needed.

    Raises:
        ConfigError: There is none, and Go is missing or can't make it.
    """
    if found := shutil.which("kustomize"):
        return [found, "build"]
    if (found := shutil.which("kubectl")) and _is_new(found):
        return [found, "kustomize"]
    own = cache / "bin" / "kustomize"
    if not own.exists():
        run_go(["install", _MODULE], "kustomize", _INSTALL_S, environment={"GOBIN": str(own.parent)})
    return [str(own), "build"]


def build(command: Sequence[str], folder: Path) -> list[Manifest]:
    """The manifests of a kustomization.

    Args:
        command: As :func:`find` gives it.
        folder: With a ``kustomization.yaml``.

    Raises:
        ConfigError: It can't be put together; with kustomize's own words.
    """
    done = subprocess.run(  # noqa: S603
        [*command, str(folder)], capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if done.returncode:
        raise ConfigError(f"kustomize can't build {folder}: {_last(done.stderr)}", remedy="Correct the kustomization.")
    return [manifest for manifest in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if manifest]


def run_go(arguments: Sequence[str], wanted: str, seconds: float, environment: dict[str, str] | None = None) -> str:
    """What a command of Go prints. It goes by Go's own settings of proxy and checksums.

    Args:
        arguments: After ``go``.
        wanted: What it is for, for errors.
        seconds: Longest wait.
        environment: Beside the process's.

    Raises:
        ConfigError: Go is not installed, too slow, or fails.
    """
    go = shutil.which("go")
    if go is None:
        raise ConfigError(
            f"Go is not installed; it fetches {wanted}.",
            remedy="Install it (Debian: apt-get install golang; macOS: brew install go).",
        )
    try:
        # Away from the working folder: a go.mod there would have its say.
        done = subprocess.run(  # noqa: S603
            [go, *arguments],
            cwd=Path(go).resolve().parent,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"Go took longer than {seconds:.0f} s to fetch {wanted}.", remedy="Try again.") from None
    if done.returncode:
        raise ConfigError(
            f"Go can't fetch {wanted}: {_last(done.stderr) or _last(done.stdout)}",
            remedy="See that Go reaches its module proxy (go env GOPROXY).",
        )
    return done.stdout


def _is_new(kubectl: str) -> bool:
    done = subprocess.run(  # noqa: S603
        [kubectl, "version", "--client", "-o", "json"], capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    try:
        version = json.loads(done.stdout)["kustomizeVersion"]
        return int(version.removeprefix("v").partition(".")[0]) >= _OLDEST
    except (ValueError, KeyError):
        return False


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""

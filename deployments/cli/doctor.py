"""``strata doctor``: what this machine lacks, and the command that mends it."""

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import psutil
import typer
from rich.console import Console
from rich.text import Text

from contracts.errors import ConfigError
from deployments.cli import common
from deployments.cli.common import ConfigOption, JsonOption

if TYPE_CHECKING:
    from deployments.settings import Settings

Verdict = Literal["ok", "optional", "missing"]

_PYTHON = ((3, 11), (3, 14))
_GB = 1e9
# A local graph of ten processes takes about 2 GB, the model and the demo's index below 1 GB of disk.
_MEMORY_GB, _DISK_GB = 2.5, 1.0
_STORES = ("lancedb", "pyarrow", "elasticsearch")
_PACKAGES = ("ray.serve", *_STORES, "onnxruntime", "tokenizers", "rjieba", "Stemmer", "structlog")
_EXTRAS = {"torch": ("torch", "transformers", "safetensors"), "eval": ("ir_measures",), "bench": ("matplotlib",)}


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at.

    Args:
        what: The thing.
        verdict: ``missing`` keeps the demo from running; ``optional`` does not.
        detail: What was found.
        remedy: The command that mends it; empty when nothing is to be done.
    """

    what: str
    verdict: Verdict
    detail: str
    remedy: str = ""


def doctor(as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """Look for what is missing on this machine; the exit code is 1 when the demo could not run."""
    from deployments.cli import render  # noqa: PLC0415

    findings = list(examine(common.load_settings(config)))
    if as_json:
        print(render.as_json(findings))
    else:
        marks = {"ok": Text("✓", "green"), "optional": Text("–", "yellow"), "missing": Text("✗", "red")}
        rows = ((marks[f.verdict], f.what, f.detail, f.remedy) for f in findings)
        Console().print(render.table(("", "what", "found", "remedy"), rows))
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(1)


def examine(settings: "Settings") -> Iterator[Finding]:
    """Look at this machine."""
    yield python(sys.version_info[:2])
    yield from _packages()
    yield from _model(settings)
    if settings.index.backend == "elasticsearch":
        yield _elasticsearch(settings)
    yield _port(settings)
    yield memory(psutil.virtual_memory().available)
    yield _disk(settings.data_dir)


def python(version: tuple[int, ...]) -> Finding:
    """Whether this Python will do."""
    found = ".".join(map(str, version))
    if _PYTHON[0] <= version < _PYTHON[1]:
        return Finding("Python", "ok", found)
    return Finding("Python", "missing", found, "Install Python 3.11, 3.12 or 3.13")


def _packages() -> Iterator[Finding]:
    lacking = [name for name in _PACKAGES if not _importable(name)]
    yield (
        Finding("packages", "missing", f"no {', '.join(lacking)}", "make setup")
        if lacking
        else Finding("packages", "ok", f"all {len(_PACKAGES)}")
    )
    for extra, names in _EXTRAS.items():
        what = f"extra {extra}"
        if all(map(_importable, names)):
            yield Finding(what, "ok", ", ".join(names))
        else:
            yield Finding(what, "optional", "not installed", "make setup-all")


def _model(settings: "Settings") -> Iterator[Finding]:
    """The model of the settings; while it is not here, the hub or Maven has to be."""
    model = model_here(settings)
    if model.verdict == "ok" or settings.embedder.path:
        way = True
    else:
        way = hub_answers()
        yield Finding("model hub", "ok", "reachable") if way else Finding("model hub", "optional", "not reachable")
    # Models come in Maven packages too, for places where the hub can't be reached.
    tools = {"Maven": ("mvn", "maven"), "JDK": ("java", "default-jdk-headless")}
    found = {tool: shutil.which(program) for tool, (program, _) in tools.items()}
    if model.verdict == "missing" and not settings.embedder.path and (way or all(found.values())):
        model = msgspec.structs.replace(model, verdict="optional")
    yield model
    for tool, (_, package) in tools.items():
        if place := found[tool]:
            yield Finding(tool, "ok", place)
        else:
            verdict: Verdict = "optional" if way else "missing"
            yield Finding(tool, verdict, "not found; model packages need it", f"apt-get install {package}")


def model_here(settings: "Settings") -> Finding:
    """Whether the model of the settings is on this machine."""
    from models.resolve import installed  # noqa: PLC0415

    chosen = settings.embedder
    if chosen.backend == "deterministic":
        return Finding("model", "ok", "deterministic, needs no files")
    if chosen.path:
        return _folder(chosen.path)
    for row in installed(chosen.cache_dir):
        if row.found and row.model.name == chosen.name and chosen.backend in {"auto", row.artefact.backend}:
            return Finding("model", "ok", f"{chosen.name}, {row.artefact.backend} {row.found.precision}")
    return Finding("model", "missing", f"{chosen.name} is not here", f"strata models pull {chosen.name}")


def _folder(path: Path) -> Finding:
    if path.is_dir():
        return Finding("model", "ok", str(path))
    return Finding("model", "missing", f"{path} is no folder", "Correct embedder.path in the settings")


def hub_answers() -> bool:
    """Whether models can be had from the hub now."""
    import httpx  # noqa: PLC0415
    from huggingface_hub.constants import ENDPOINT  # noqa: PLC0415

    try:
        httpx.head(ENDPOINT, timeout=3)
    except httpx.HTTPError:
        return False
    return True


def _elasticsearch(settings: "Settings") -> Finding:
    from deployments.backends import cluster_health  # noqa: PLC0415

    try:
        found = asyncio.run(cluster_health(settings.data_dir, settings.index.elastic))
    except ConfigError as error:
        return Finding("Elasticsearch", "missing", error.message, error.remedy)
    return Finding("Elasticsearch", "ok", found)


def _port(settings: "Settings") -> Finding:
    from deployments.lifecycle import Service, port_is_free  # noqa: PLC0415

    host, port = settings.server.host, settings.server.port
    what = f"port {port}"
    if port_is_free(host, port):
        return Finding(what, "ok", "free")
    running = Service(common.run_folder(settings)).current()
    if running and running.url == settings.url:
        return Finding(what, "ok", f"used by the running service (process {running.pid})")
    return Finding(what, "missing", "used by another program", "strata up --port N, or server.port in the settings")


def memory(available: int) -> Finding:
    """Whether so many bytes of memory are enough."""
    found = f"{available / _GB:.1f} GB free"
    if available >= _MEMORY_GB * _GB:
        return Finding("memory", "ok", found)
    return Finding("memory", "missing", found, f"Free {_MEMORY_GB} GB, or co-locate stages in the settings")


def _disk(folder: Path) -> Finding:
    place = next(place for place in (folder, *folder.parents) if place.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / _GB:.1f} GB free at {place}"
    if not os.access(place, os.W_OK):
        return Finding("disk", "missing", f"{place} can't be written to", "Set STRATA_HOME to a folder of yours")
    if free >= _DISK_GB * _GB:
        return Finding("disk", "ok", found)
    return Finding("disk", "missing", found, "Free some, or set STRATA_HOME to another disk")


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False

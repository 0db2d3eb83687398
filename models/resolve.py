"""From a model's name to a folder on this machine: what is here already, then the hub, then a package."""

import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from contracts.errors import ConfigError
from models import hub, packages
from models.catalog import CATALOG, Artefact, Backend, CatalogModel, Package, Precision
from models.config import EmbedderModelConfig
from models.files import choose_in

Origin = Literal["folder", "hub", "package"]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """A model on this machine.

    Args:
        folder: Where its files lie.
        weights: The file to open, in that folder or below.
        precision: Of those weights.
        origin: A folder of the user's, the hub's cache, or a package.
    """

    folder: Path
    weights: Path
    precision: Precision
    origin: Origin

    def size(self) -> int:
        """Bytes on disk."""
        return sum(p.stat().st_size for p in self.folder.rglob("*") if p.is_file())


@dataclass(frozen=True)
class Installed:
    """A row of `strata models list`: an artefact of the catalog, and where it lies if it is here."""

    model: CatalogModel
    artefact: Artefact
    found: Found | None


def resolve(
    name: str,
    *,
    backend: Backend,
    cache_dir: Path,
    precision: Precision | None = None,
    path: Path | None = None,
    revision: str | None = None,
    progress: Progress = lambda _: None,
) -> Found:
    """Find a model, fetching it when it is not here.

    Order: ``path`` (and then nothing else), the hub's local cache, an unpacked package, the hub, the package. What is
    here wins, so a start neither waits for the network nor changes vectors because the network came or went.

    Args:
        name: A name of the catalog, or owner/name on the hub.
        backend: Which kind of files is wanted.
        cache_dir: Where packages are unpacked.
        precision: ``None`` takes the catalog's default, or int8 before fp32.
        path: A folder that holds the model.
        revision: Branch, tag or commit on the hub.
        progress: Told in a few words what is being fetched.

    Raises:
        ConfigError: Unknown name, or found nowhere; says each place looked at and what mends it.
    """
    if path is not None:
        return _in_folder(name, path, backend, precision)
    artefact = _artefact(name, backend, precision)
    wanted = artefact.precision
    if (found := _here(artefact, cache_dir, revision)) is not None:
        return found

    tried = [f"the hub's local cache has no {artefact.repo}"]
    remedies: list[str] = []
    progress(f"Asking the hub for {artefact.repo}")
    try:
        folder = hub.download(artefact.repo, revision, backend, wanted)
        if (found := _found(folder, backend, wanted, "hub")) is not None:
            return found
    except ConfigError as error:
        tried.append(f"hub {artefact.repo}: {error.message}")
    if (package := artefact.package) is not None:
        target = _target(package, cache_dir)
        progress(f"Fetching the package {package.coordinates}")
        try:
            packages.obtain(package, target)
            if (found := _found(target, backend, wanted, "package")) is not None:
                return found
        except ConfigError as error:
            tried.append(f"package {package.coordinates}: {error.message}")
            remedies.append(error.remedy)
        except OSError as error:
            tried.append(f"package {package.coordinates}: can't write to {cache_dir} ({error.strerror})")
    raise ConfigError(
        f"Model {name} ({backend}{f', {wanted}' if wanted else ''}) was not found. Looked at: {'; '.join(tried)}.",
        field="name",
        remedy=" ".join([*filter(None, remedies), "Make the hub reachable, or set path to a folder that holds it."]),
    )


def pull(config: EmbedderModelConfig, progress: Progress = lambda _: None) -> tuple[Found, Backend]:
    """``resolve`` what a config names, on the backend that it means here.

    Raises:
        ConfigError: As ``resolve``; or the deterministic embedder, which has no files.
    """
    backend = config.backend
    if backend == "deterministic":
        raise ConfigError("The deterministic embedder has no files to fetch.", field="backend")
    if backend == "auto":
        backend = "torch" if cuda() else "onnx"
    found = resolve(
        config.name,
        backend=backend,
        cache_dir=config.cache_dir,
        precision=config.precision,
        path=config.path,
        revision=config.revision,
        progress=progress,
    )
    return found, backend


def installed(cache_dir: Path) -> list[Installed]:
    """Each artefact of the catalog, and where it lies on this machine. Asks no network."""
    return [
        Installed(model, artefact, _here(artefact, cache_dir, None))
        for model in CATALOG.values()
        for artefact in model.artefacts
    ]


def cuda() -> bool:
    """Whether torch is installed and sees a CUDA device."""
    if importlib.util.find_spec("torch") is None:
        return False
    return bool(importlib.import_module("torch").cuda.is_available())


def _artefact(name: str, backend: Backend, precision: Precision | None) -> Artefact:
    model = CATALOG.get(name)
    if model is None:
        if name.count("/") != 1:
            raise ConfigError(
                f"Model {name} is unknown.",
                field="name",
                remedy=f"Known are {', '.join(CATALOG)}; or give owner/name of a model on the hub, or set path.",
            )
        return Artefact(backend, precision, name)
    artefact = model.artefact(backend, precision)
    if artefact is None:
        raise ConfigError(
            f"Model {name} has no {precision} files for {backend}.",
            field="precision",
            remedy=f"It has {', '.join(f'{a.backend} {a.precision}' for a in model.artefacts)}.",
        )
    return artefact


def _in_folder(name: str, path: Path, backend: Backend, precision: Precision | None) -> Found:
    found = _found(path, backend, precision, "folder")
    if found is None:
        what = "tokenizer.json and model.onnx" if backend == "onnx" else "config.json and model.safetensors"
        raise ConfigError(
            f"Model {name} was not found. Looked at: the folder {path}, which "
            f"{f'holds no {backend} model' if path.is_dir() else 'does not exist'}"
            f"{f' of precision {precision}' if precision else ''}.",
            field="path",
            remedy=f"Set path to a folder with {what}, or leave it out.",
        )
    return found


def _here(artefact: Artefact, cache_dir: Path, revision: str | None) -> Found | None:
    folder = hub.cached(artefact.repo, revision)
    if folder is not None and (found := _found(folder, artefact.backend, artefact.precision, "hub")) is not None:
        return found
    if artefact.package is None:
        return None
    return _found(_target(artefact.package, cache_dir), artefact.backend, artefact.precision, "package")


def _target(package: Package, cache_dir: Path) -> Path:
    return cache_dir / f"{re.sub('[:=]+', '-', package.coordinates)}-{package.sha256[:8]}"


def _found(folder: Path, backend: Backend, precision: Precision | None, origin: Origin) -> Found | None:
    chosen = choose_in(folder, backend, precision)
    return None if chosen is None else Found(folder, folder / chosen.weights[0], chosen.precision, origin)

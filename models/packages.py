"""Models out of packages: fetched by the registry's own client, checked, unpacked in one step."""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from contracts.errors import ConfigError
from models.catalog import Package

TIMEOUT = 900


def fetch(package: Package, folder: Path) -> Path:
    """Download a package's archive into ``folder`` and return its path.

    Raises:
        ConfigError: The client is not installed, or could not fetch it.
    """
    if package.manager == "maven":
        maven = shutil.which("mvn")
        if maven is None:
            raise ConfigError("Maven is not installed", remedy="Install Maven.")
        arguments = [f"-Dartifact={package.coordinates}", f"-DoutputDirectory={folder}"]
        _run([maven, "-q", "-B", "-Dstyle.color=never", "dependency:copy", *arguments])
    else:
        if importlib.util.find_spec("pip") is None:
            raise ConfigError("pip is not installed", remedy="Run `python -m ensurepip`.")
        options = [
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--retries=1",
            f"--dest={folder}",
        ]
        _run([sys.executable, "-m", "pip", "download", *options, package.coordinates])
    archives = [p for p in folder.iterdir() if p.suffix in {".jar", ".whl"}]
    if len(archives) != 1:
        raise ConfigError("the client reported success but left no archive")
    return archives[0]


def _run(command: Sequence[str]) -> None:
    tool = Path(command[0]).name
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{tool} took longer than {TIMEOUT} s") from error
    if done.returncode:
        # Maven and pip both say what is wrong in the first line marked so.
        said = re.search(r"^\[?ERROR[\]:] *(.{1,300})", done.stdout + done.stderr, re.MULTILINE)
        raise ConfigError(f"{tool} failed: {said[1] if said else f'exit status {done.returncode}'}")


def unpack(archive: Path, package: Package, target: Path) -> None:
    """Check an archive and unpack the model into ``target``, which appears whole or not at all.

    Raises:
        ConfigError: The archive's sha256 is not the package's, or it lacks the model.
    """
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise ConfigError(f"its sha256 is {digest[:12]}…, not {package.sha256[:12]}…: refused")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as scratch, zipfile.ZipFile(archive) as jar:
        fresh = Path(scratch, "model")
        for source, destination in package.members:
            members = [m for m in jar.namelist() if m.startswith(source) and not m.endswith("/")]
            if not members:
                raise ConfigError(f"the archive has no {source}")
            for member in members:
                path = fresh / (destination + member.removeprefix(source))
                path.parent.mkdir(parents=True, exist_ok=True)
                with jar.open(member) as reader, path.open("wb") as writer:
                    shutil.copyfileobj(reader, writer)
        try:
            fresh.rename(target)
        except OSError:
            # Another process was first; its copy is the same, for the sha256 is.
            if not target.is_dir():
                raise


def obtain(package: Package, target: Path) -> None:
    """Fetch, check and unpack.

    Raises:
        ConfigError: One of them failed.
    """
    with tempfile.TemporaryDirectory(prefix="strata-model-") as folder:
        unpack(fetch(package, Path(folder)), package, target)

"""Which JDK the nodes run on: the first of this machine that is new enough and has a compiler."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import ConfigError

OLDEST = 21
FOLDERS = (
    "/usr/lib/jvm/*",
    "/opt/*jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
)
_ASK_S = 30


@dataclass(frozen=True)
class Jdk:
    """A JDK.

    Args:
        home: Its folder, which holds ``bin/java`` and ``bin/javac``.
        version: The major one, for instance 25.
        modules: The names of its modules.
    """

    home: Path
    version: int
    modules: frozenset[str]

    @property
    def has_vector(self) -> bool:
        """Whether vector distances can use SIMD instructions."""
        return "jdk.incubator.vector" in self.modules


def find(preferred: Iterable[Path] = (), folders: Iterable[str] = FOLDERS) -> Jdk:
    """Choose a JDK.

    Args:
        preferred: Homes looked at first, in this order; for instance ES_JAVA_HOME and JAVA_HOME.
        folders: Patterns of further homes; ``java`` on the PATH comes last.

    Returns:
        The first of version 21 or newer that has a compiler.

    Raises:
        ConfigError: There is none; the message names what was found instead.
    """
    unfit = []
    for home in dict.fromkeys(_homes(preferred, folders)):
        found = inspect(home)
        if found is None:
            continue
        compiles = (home / "bin" / "javac").is_file()
        if found.version >= OLDEST and compiles:
            return found
        unfit.append(f"{found.version}{'' if compiles else ' without javac'} at {home}")
    instead = f"found {', '.join(unfit)}" if unfit else "found none"
    raise ConfigError(
        f"Elasticsearch needs a JDK of version {OLDEST} or newer; {instead}.",
        field="ES_JAVA_HOME",
        remedy=f"Install a JDK {OLDEST} or newer (a JRE has no compiler), or set ES_JAVA_HOME to the folder of one.",
    )


def inspect(home: Path) -> Jdk | None:
    """What lies in a folder, by its ``release`` file or else by asking its ``java``; ``None`` when it is no Java."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return _ask(home)
    entries = dict(re.findall(r'^(\w+)="(.*)"$', release, re.MULTILINE))
    version = _major(entries.get("JAVA_VERSION", ""))
    return Jdk(home, version, frozenset(entries.get("MODULES", "").split())) if version else None


def _homes(preferred: Iterable[Path], folders: Iterable[str]) -> Iterator[Path]:
    yield from preferred
    for pattern in folders:
        path = Path(pattern).expanduser()
        root = Path(path.anchor)
        yield from sorted(root.glob(str(path.relative_to(root))), reverse=True)
    if java := shutil.which("java"):
        yield Path(java).resolve().parents[1]


def _ask(home: Path) -> Jdk | None:
    """Java 8 and older know no modules and answer with an error."""
    command = [str(home / "bin" / "java"), "--list-modules"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    modules = dict(line.split("@", 1) for line in done.stdout.split() if "@" in line)
    version = _major(modules.get("java.base", ""))
    return Jdk(home, version, frozenset(modules)) if version else None


def _major(version: str) -> int:
    """``25.0.3`` is 25, ``1.8.0_402`` is 8, anything else 0."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0

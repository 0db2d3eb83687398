"""Elasticsearch's own server, fetched with Maven once for all clusters of the user.

What Maven has is the server and its network module, without the modules of the full distribution: no scripts, no
security. One folder a version, laid out as the server expects its home::

    lib/                        the server's jars, its module path
    modules/transport-netty4/   HTTP and the traffic between nodes
    launcher/                   EsNode.java, compiled
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

from contracts.errors import ConfigError
from index.elastic.devnode.jdk import OLDEST, Jdk

VERSION = "9.2.0"
_MODULE = "transport-netty4"
_DEPENDENCIES = (("org.elasticsearch", "elasticsearch"), ("org.elasticsearch.plugin", _MODULE))
_MODULE_JARS = (_MODULE, "netty-", "elasticsearch-ssl-config")
_DESCRIPTOR = "plugin-descriptor.properties"
_FETCH_S = 900
_COMPILE_S = 120


@dataclass(frozen=True)
class Distribution:
    """The server's files and the JDK that runs them.

    Args:
        home: The folder described above; only read by nodes.
        jdk: Runs it.
    """

    home: Path
    jdk: Jdk

    def command(self, config: Path, *, heap: str, processors: int, attached: bool) -> list[str]:
        """The command of one node.

        Args:
            config: The folder of its settings.
            heap: As Java takes it, for instance ``512m``.
            processors: CPUs that its thread pools are sized for.
            attached: Whether it stops when its standard input ends.
        """
        vector = "jdk.incubator.vector," if self.jdk.has_vector else ""
        return [
            str(self.jdk.home / "bin" / "java"),
            f"-Xms{heap}",
            f"-Xmx{heap}",
            f"-XX:ActiveProcessorCount={processors}",
            # A node that ran out of memory answers nothing, or wrongly; one that is gone is noticed.
            "-XX:+ExitOnOutOfMemoryError",
            # What Elasticsearch's own start script sets too.
            "-Dio.netty.noUnsafe=true",
            "-Dlog4j.shutdownHookEnabled=false",
            "-Dlog4j2.disable.jmx=true",
            f"--module-path={self.home / 'lib'}",
            f"--add-modules={vector}ALL-MODULE-PATH",
            "--enable-native-access=org.elasticsearch.nativeaccess,org.apache.lucene.core",
            "-cp",
            str(self.home / "launcher"),
            "EsNode",
            str(self.home),
            str(config),
            *(["attached"] if attached else []),
        ]


def provide(cache: Path, jdk: Jdk) -> Distribution:
    """The distribution, fetched and compiled when it is not in the cache yet.

    Args:
        cache: Folder shared by all clusters of the user; made when missing.
        jdk: Compiles the launcher and runs the nodes.

    Raises:
        ConfigError: Maven is missing, can't fetch the jars, or the launcher can't be compiled.
    """
    source = files(__package__).joinpath("EsNode.java").read_bytes()
    home = cache / f"elasticsearch-{VERSION}-{hashlib.sha256(source).hexdigest()[:8]}"
    if not home.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
            fresh = Path(scratch, "home")
            _fetch(fresh, jdk)
            _compile(source, fresh, jdk)
            try:
                fresh.rename(home)
            except OSError:
                # Another process was first; its files are the same.
                if not home.is_dir():
                    raise
    return Distribution(home, jdk)


def pom() -> bytes:
    """Maven's project file, which names the jars."""
    project = ElementTree.Element("project", xmlns="http://maven.apache.org/POM/4.0.0")
    coordinates = {"modelVersion": "4.0.0", "groupId": "strata", "artifactId": "devnode", "version": "1"}
    for tag, text in {**coordinates, "packaging": "pom"}.items():
        ElementTree.SubElement(project, tag).text = text
    dependencies = ElementTree.SubElement(project, "dependencies")
    for group, artifact in _DEPENDENCIES:
        dependency = ElementTree.SubElement(dependencies, "dependency")
        for tag, text in {"groupId": group, "artifactId": artifact, "version": VERSION}.items():
            ElementTree.SubElement(dependency, tag).text = text
    return ElementTree.tostring(project)


def _fetch(home: Path, jdk: Jdk) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(
            "Maven is not installed; the development node's jars come with it.",
            remedy="Install it (Debian: apt-get install maven; macOS: brew install maven).",
        )
    lib, module = home / "lib", home / "modules" / _MODULE
    module.mkdir(parents=True)
    project = home / "pom.xml"
    project.write_bytes(pom())
    goal = [maven, "-q", "-B", "-Dstyle.color=never", "-f", str(project), "dependency:copy-dependencies"]
    # Maven would fail without a default java on machines whose JDK only we found.
    _run(["env", f"JAVA_HOME={jdk.home}", *goal, f"-DoutputDirectory={lib}"], "Maven", _FETCH_S)
    for jar in list(lib.glob("*.jar")):
        if jar.name.startswith(_MODULE_JARS):
            jar.rename(module / jar.name)
    with zipfile.ZipFile(module / f"{_MODULE}-{VERSION}.jar") as archive:
        (module / _DESCRIPTOR).write_bytes(archive.read(f"META-INF/es-plugins/{_MODULE}/{_DESCRIPTOR}"))


def _compile(source: bytes, home: Path, jdk: Jdk) -> None:
    launcher = home / "launcher"
    launcher.mkdir()
    (launcher / "EsNode.java").write_bytes(source)
    # For the oldest JDK that will do, so that the cache serves a change of JDK.
    options = ["--release", str(OLDEST), "-cp", str(home / "lib" / "*"), "-d", str(launcher)]
    _run([str(jdk.home / "bin" / "javac"), *options, str(launcher / "EsNode.java")], "javac", _COMPILE_S)


def _run(command: Sequence[str], tool: str, seconds: float) -> None:
    remedy = "See that Maven reaches its repository, also through settings.xml." if tool == "Maven" else ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{tool} took longer than {seconds:.0f} s.", remedy=remedy) from None
    if done.returncode:
        reason = said(done.stdout + done.stderr) or f"exit status {done.returncode}"
        raise ConfigError(f"{tool} failed: {reason}", remedy=remedy)


def said(output: str) -> str:
    """What went wrong: the first line marked as an error (Maven's later ones only point to its manual), or the last."""
    if marked := re.search(r"(?:\[ERROR\]|error:) *(\S.{0,400})", output):
        return marked[1]
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:400] if lines else ""

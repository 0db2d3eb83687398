"""The server's files: fetched with Maven once, whole or not at all."""

import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from contracts.errors import ConfigError
from index.elastic.devnode import distribution
from index.elastic.devnode.distribution import VERSION, Distribution, provide, said
from index.elastic.devnode.jdk import Jdk

MODULE = f"transport-netty4-{VERSION}.jar"
JARS = (f"elasticsearch-{VERSION}.jar", "lucene-core-10.jar", MODULE, "netty-common-4.jar")

FAKE_MAVEN = """#!/bin/sh
echo run >> {log}
echo $JAVA_HOME >> {log}
for argument in "$@"; do case $argument in -DoutputDirectory=*) lib=${{argument#*=}};; esac; done
mkdir -p $lib && cp {jars}/*.jar $lib
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def fake_jdk(tmp_path: Path) -> Jdk:
    """A JDK whose compiler only notes that it was called."""
    program(tmp_path / "jdk" / "bin" / "javac", f'#!/bin/sh\necho "$@" > {tmp_path}/compiled\n')
    return Jdk(tmp_path / "jdk", 25, frozenset())


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in Maven's place."""

    def put(script: str) -> None:
        tool = program(tmp_path / "mvn", script)
        monkeypatch.setattr(distribution.shutil, "which", lambda _: str(tool))

    return put


@pytest.fixture
def fake_maven(tmp_path: Path, maven: Callable[[str], None]) -> Path:
    """A Maven that has the jars; returns the file in which it notes each run and its JAVA_HOME."""
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in JARS:
        with zipfile.ZipFile(jars / name, "w") as jar:
            jar.writestr("META-INF/es-plugins/transport-netty4/plugin-descriptor.properties", "name=transport-netty4")
    maven(FAKE_MAVEN.format(log=tmp_path / "log", jars=jars))
    return tmp_path / "log"


def test_the_server_and_its_network_module_lie_as_the_server_expects(
    tmp_path: Path, fake_maven: Path, fake_jdk: Jdk
) -> None:
    home = provide(tmp_path / "cache", fake_jdk).home
    module = home / "modules" / "transport-netty4"
    assert {path.name for path in (home / "lib").iterdir()} == {JARS[0], JARS[1]}
    assert {path.name for path in module.iterdir()} == {MODULE, "netty-common-4.jar", "plugin-descriptor.properties"}
    assert (module / "plugin-descriptor.properties").read_text() == "name=transport-netty4"


def test_maven_runs_on_the_jdk_that_was_found(tmp_path: Path, fake_maven: Path, fake_jdk: Jdk) -> None:
    provide(tmp_path / "cache", fake_jdk)
    assert fake_maven.read_text().split() == ["run", str(fake_jdk.home)]


def test_the_launcher_is_compiled_for_the_oldest_jdk_that_will_do(
    tmp_path: Path, fake_maven: Path, fake_jdk: Jdk
) -> None:
    provide(tmp_path / "cache", fake_jdk)
    assert "--release 21" in (tmp_path / "compiled").read_text()


def test_what_is_in_the_cache_is_not_fetched_again(tmp_path: Path, fake_maven: Path, fake_jdk: Jdk) -> None:
    first = provide(tmp_path / "cache", fake_jdk)
    assert provide(tmp_path / "cache", fake_jdk) == first
    assert fake_maven.read_text().count("run") == 1


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "echo '[ERROR] Could not resolve g:a:1 -> [Help 1]'; echo '[ERROR] Re-run Maven with -e'; exit 1",
            "resolve g:a:1",
        ),
        ("echo 'The JAVA_HOME variable is wrong' >&2; exit 1", "JAVA_HOME variable is wrong"),
        ("exit 3", "exit status 3"),
    ],
)
def test_a_maven_that_fails_is_quoted_and_leaves_nothing(
    tmp_path: Path, maven: Callable[[str], None], fake_jdk: Jdk, script: str, expected: str
) -> None:
    maven(f"#!/bin/sh\n{script}\n")
    with pytest.raises(ConfigError, match=expected) as error:
        provide(tmp_path / "cache", fake_jdk)
    assert "repository" in error.value.remedy
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(tmp_path: Path, fake_maven: Path, fake_jdk: Jdk) -> None:
    program(fake_jdk.home / "bin" / "javac", "#!/bin/sh\necho 'EsNode.java:4: error: cannot find symbol'\nexit 1\n")
    with pytest.raises(ConfigError, match="javac failed: cannot find symbol"):
        provide(tmp_path / "cache", fake_jdk)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_maven_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_jdk: Jdk
) -> None:
    monkeypatch.setattr(distribution.shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match="Maven is not installed") as error:
        provide(tmp_path / "cache", fake_jdk)
    assert "apt-get install maven" in error.value.remedy


def test_a_maven_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_jdk: Jdk) -> None:
    def hang(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, 900)

    monkeypatch.setattr(distribution.shutil, "which", lambda _: "mvn")
    monkeypatch.setattr(distribution.subprocess, "run", hang)
    with pytest.raises(ConfigError, match="Maven took longer than 900 s"):
        provide(tmp_path / "cache", fake_jdk)


def test_the_project_names_server_and_module_in_one_version() -> None:
    found = re.findall(r"<artifactId>([^<]+)</artifactId><version>([^<]+)", distribution.pom().decode())
    assert found[1:] == [("elasticsearch", VERSION), ("transport-netty4", VERSION)]
    assert ElementTree.fromstring(distribution.pom()).tag == "{http://maven.apache.org/POM/4.0.0}project"


def test_without_a_marked_line_the_last_one_is_quoted() -> None:
    assert said("first\nlast\n\n") == "last"
    assert said("") == ""


def test_the_command_holds_heap_processors_and_folders(tmp_path: Path) -> None:
    command = Distribution(tmp_path, Jdk(Path("/jdk"), 25, frozenset())).command(
        Path("/config"), heap="512m", processors=2, attached=False
    )
    assert command[0] == "/jdk/bin/java"
    assert {"-Xms512m", "-Xmx512m", "-XX:ActiveProcessorCount=2"} <= set(command)
    assert command[-3:] == ["EsNode", str(tmp_path), "/config"]


def test_an_attached_node_is_told_so(tmp_path: Path) -> None:
    node = Distribution(tmp_path, Jdk(Path("/jdk"), 25, frozenset()))
    assert node.command(Path("/config"), heap="1g", processors=1, attached=True)[-1] == "attached"


@pytest.mark.parametrize(("modules", "used"), [(("jdk.incubator.vector",), True), ((), False)])
def test_simd_is_asked_for_where_the_jdk_has_it(tmp_path: Path, modules: tuple[str, ...], used: bool) -> None:
    node = Distribution(tmp_path, Jdk(Path("/jdk"), 25, frozenset(modules)))
    added = next(
        part for part in node.command(Path("/c"), heap="1g", processors=1, attached=False) if "add-mod" in part
    )
    assert ("jdk.incubator.vector" in added) is used
    assert added.endswith("ALL-MODULE-PATH")


def test_the_compose_file_has_the_tested_version_with_security_and_no_password_of_its_own() -> None:
    compose = yaml.safe_load((Path(__file__).parents[2] / "configs" / "elasticsearch.compose.yaml").read_text())
    services = compose["services"]
    assert {service["image"] for service in services.values()} == {f"elasticsearch:{VERSION}"}
    environment = services["elasticsearch"]["environment"]
    assert environment["xpack.security.enabled"] == environment["xpack.security.http.ssl.enabled"] == "true"
    assert environment["ELASTIC_PASSWORD"].startswith("${ELASTIC_PASSWORD:?")

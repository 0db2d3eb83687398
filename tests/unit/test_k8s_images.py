"""The Dockerfile, which no test can build: what it copies is there, and what it runs as."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
IGNORE = (ROOT / "docker" / "Dockerfile.dockerignore").read_text(encoding="utf-8")


def copied() -> set[str]:
    """Sources of the checkout; the last word of each line is where they go."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_what_it_copies_exists_and_reaches_the_build() -> None:
    let_in = {line[1:] for line in IGNORE.splitlines() if line.startswith("!")}
    for source in copied():
        assert (ROOT / source).exists(), source
        assert source in let_in or any(Path(source).match(pattern) for pattern in let_in), source


def test_every_package_of_the_product_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {package.rstrip("*") for package in packages} <= copied()


def test_both_images_end_without_root_and_hold_nothing_that_builds() -> None:
    for target in ("cpu", "gpu"):
        stage = DOCKERFILE.split(f"AS {target}\n")[1].split("\nFROM ")[0]
        assert "USER 1000:1000" in stage
        assert "/opt/tools" not in stage
        assert [line for line in stage.splitlines() if line.startswith("COPY")][-1].endswith("/opt/strata/app")


def test_packages_come_by_lock_and_hash_only() -> None:
    installs = re.findall(r"pip install(?:[^&]|\n)*", DOCKERFILE)
    assert installs
    assert all("--require-hashes" in install or "--no-deps" in install for install in installs)
    assert "python:latest" not in DOCKERFILE


def test_pods_run_as_the_user_of_the_image() -> None:
    rayservice = yaml.safe_load((ROOT / "k8s" / "base" / "rayservice.yaml").read_text(encoding="utf-8"))
    cluster = rayservice["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        security = group["template"]["spec"]["securityContext"]
        assert (security["runAsUser"], security["runAsNonRoot"]) == (1000, True)

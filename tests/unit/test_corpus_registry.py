"""Which corpora are loaded, and which packages are refused."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.errors import ConfigError
from corpora.memory import MemoryConfig, MemoryCorpus
from corpora.rag.registry import RegistryConfig, load_adapters
from corpora.web import WebCorpus

ADAPTER = """
class Notes:
    name = "notes"
    def __init__(self, settings=None): self.settings = settings
    def build_ingest_documents(self, ctx, raw): return []
    def build_retrieve_filter(self, ctx, raw): ...
    def arrange(self, raw, hits): return list(hits)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a package with an entry point where Python finds it, as an installer would."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(code: str = ADAPTER, *, package: str = "strata-notes", name: str = "notes", target: str = "Notes") -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[strata.corpora]\n{name} = {module}:{target}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return put


def refused(config: RegistryConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        load_adapters(config)
    assert caught.value.remedy
    return caught.value.message


def test_memory_and_web_are_there_by_default_with_their_settings() -> None:
    found = load_adapters(RegistryConfig(memory=MemoryConfig(default_sensitivity="secret")))
    assert list(found) == ["memory", "web"]
    assert isinstance(found["memory"], MemoryCorpus)
    assert isinstance(found["web"], WebCorpus)


def test_a_corpus_is_switched_off_by_leaving_it_out() -> None:
    assert list(load_adapters(RegistryConfig(enabled=("web",)))) == ["web"]


def test_a_package_adds_a_corpus_once_it_is_enabled(install: Install) -> None:
    install()
    assert "notes" not in load_adapters(RegistryConfig())
    assert list(load_adapters(RegistryConfig(enabled=("web", "notes")))) == ["notes", "web"]


def test_a_package_gets_its_settings(install: Install) -> None:
    install()
    config = RegistryConfig(enabled=("notes",), third_party={"notes": {"size": 3}})
    assert load_adapters(config)["notes"].settings == {"size": 3}  # type: ignore[attr-defined]


def test_a_package_that_is_merely_installed_runs_no_code(install: Install) -> None:
    install("raise RuntimeError")
    assert list(load_adapters(RegistryConfig())) == ["memory", "web"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("def Notes(): return None", "AttributeError"),
        ("Other = 1", "AttributeError"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        (ADAPTER.replace('"notes"', '"other"'), "another name"),
        (ADAPTER.replace("def arrange", "def sort"), "lacks arrange"),
        ("Notes = 1", "TypeError"),
    ],
)
def test_a_broken_package_is_refused_by_its_name(install: Install, code: str, words: str) -> None:
    install(code)
    message = refused(RegistryConfig(enabled=("notes",)))
    assert "strata-notes" in message
    assert words in message


def test_a_package_can_not_take_the_place_of_a_built_in_corpus(install: Install) -> None:
    install(name="memory")
    assert "strata-notes" in refused(RegistryConfig())


def test_two_packages_can_not_both_be_one_corpus(install: Install) -> None:
    install()
    install(package="other-notes")
    message = refused(RegistryConfig(enabled=("notes",)))
    assert "strata-notes" in message
    assert "other-notes" in message


@pytest.mark.parametrize("name", ["", "Notes", "../notes", "no_tes", "9notes", "n" * 33, "笔记"])
def test_a_name_that_is_not_fit_for_urls_is_refused(install: Install, name: str) -> None:
    assert "no name for a corpus" in refused(RegistryConfig(enabled=(name,)))


def test_an_unknown_corpus_is_refused_with_those_that_there_are(install: Install) -> None:
    install()
    with pytest.raises(ConfigError, match="'mail'") as caught:
        load_adapters(RegistryConfig(enabled=("mail",)))
    assert "memory, notes, web" in caught.value.remedy


def test_settings_of_a_corpus_that_is_not_enabled_are_refused() -> None:
    assert "'mail'" in refused(RegistryConfig(third_party={"mail": {}}))

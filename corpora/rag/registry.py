"""Which corpora there are: the built-in ones, and those of installed packages.

A package adds a corpus by an entry point of the group ``strata.corpora``: its name is that of the corpus, and what it
loads is called and returns a ``CorpusAdapter``. Only what ``enabled`` lists is loaded: a package that is merely
installed runs no code.
"""

import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from contracts.errors import ConfigError
from corpora.memory import MemoryConfig, MemoryCorpus
from corpora.rag.ports import CorpusAdapter
from corpora.web import WebConfig, WebCorpus

GROUP = "strata.corpora"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")
_METHODS = ("build_ingest_documents", "build_retrieve_filter", "arrange")
_BUILT_IN: Mapping[str, Callable[["RegistryConfig"], CorpusAdapter]] = {
    "memory": lambda config: MemoryCorpus(config.memory),
    "web": lambda config: WebCorpus(config.web),
}


class RegistryConfig(BaseModel):
    """Which corpora are served, and the settings of each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: tuple[str, ...] = Field(
        ("memory", "web"), description="Names of the corpora that are served; those of packages must be listed too."
    )
    memory: MemoryConfig = MemoryConfig()
    web: WebConfig = WebConfig()
    third_party: dict[str, dict[str, Any]] = Field(
        {}, description="Settings of corpora from packages, by name; the package says what it takes."
    )


def load_adapters(config: RegistryConfig) -> dict[str, CorpusAdapter]:
    """The adapters of all enabled corpora by name, in the order of the names.

    Raises:
        ConfigError: A name is not valid, known, or taken once; or a package's adapter can't be made. Names the package.
    """
    for name in config.third_party.keys() - set(config.enabled):
        raise ConfigError(
            f"Corpus {name!r} has settings and is not enabled.",
            field=f"corpora.third_party.{name}",
            remedy="List it in corpora.enabled, or take its settings out.",
        )
    points = entry_points(group=GROUP)
    return {name: _adapter(name, config, points) for name in sorted(set(config.enabled))}


def _adapter(name: str, config: RegistryConfig, points: EntryPoints) -> CorpusAdapter:
    if not _NAME.fullmatch(name):
        remedy = "Use a-z, 0-9 and -, at most 32 characters, the first a letter."
        raise ConfigError(f"{name!r} is no name for a corpus.", field="corpora.enabled", remedy=remedy)
    built_in, found = _BUILT_IN.get(name), list(points.select(name=name))
    if built_in and found:
        raise _refused(found[0], "has the name of a built-in corpus", "Uninstall it, or have it renamed.")
    if built_in:
        return built_in(config)
    if len(found) > 1:
        raise _refused(found[0], f"is also one of package {_package(found[1])}", "Uninstall one of the two.")
    if not found:
        known = ", ".join(sorted({*_BUILT_IN, *points.names}))
        remedy = f"Known are {known}. Install the package of any other."
        raise ConfigError(f"There is no corpus {name!r}.", field="corpora.enabled", remedy=remedy)
    return _loaded(found[0], config.third_party.get(name))


def _loaded(point: EntryPoint, settings: Mapping[str, Any] | None) -> CorpusAdapter:
    try:
        factory = point.load()
        adapter: CorpusAdapter = factory() if settings is None else factory(settings)
        named = adapter.name == point.name
    except Exception as error:
        raise _refused(point, f"can't be loaded: {type(error).__name__}: {error}", "Mend or disable it.") from error
    if not named:
        raise _refused(point, "gives an adapter of another name", "Make the two names one.")
    if lacking := [method for method in _METHODS if not callable(getattr(adapter, method, None))]:
        raise _refused(point, f"lacks {', '.join(lacking)}", "See docs/corpora.md.")
    return adapter


def _refused(point: EntryPoint, fault: str, remedy: str) -> ConfigError:
    message = f"Corpus {point.name!r} of package {_package(point)} {fault}."
    return ConfigError(message, field="corpora.enabled", remedy=remedy)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module

"""How a model's vectors are made: what the config says, else the catalog, else the model's own files."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError
from contracts.records import ModelRef
from models.catalog import CATALOG, Pooling, Precision
from models.config import EmbedderModelConfig
from models.files import read_json

# Sentence Transformers' names in 1_Pooling/config.json.
_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_UNDERSTOOD = {"Transformer", "Pooling", "Normalize"}
DEFAULT_MAX_TOKENS = 512
# Tokenizers that know no limit write 10^30.
_NO_LIMIT = 10**9


@dataclass(frozen=True)
class Profile:
    """All that shapes a vector besides the weights; ``dimensions`` is what they must have, ``None`` for any."""

    name: str
    version: str
    pooling: Pooling
    max_tokens: int
    query_prefix: str
    passage_prefix: str
    dimensions: int | None

    def ref(self, precision: Precision, dimensions: int) -> ModelRef:
        """The identity of the vectors: it changes with everything that changes a passage's vector.

        The query prefix is no part of it: an index may be searched with another one.

        Raises:
            ConfigError: The vectors have other dimensions than they must.
        """
        if self.dimensions not in {None, dimensions}:
            raise ConfigError(
                f"Model {self.name} makes vectors of {dimensions} dimensions, not {self.dimensions}.",
                field="dimensions",
                remedy=f"Set it to {dimensions}, leave it out, or take another model.",
            )
        shape = f"{self.pooling}|{self.max_tokens}|{self.passage_prefix}"
        return ModelRef(
            self.name, f"{self.version}-{precision}-{hashlib.sha256(shape.encode()).hexdigest()[:6]}", dimensions
        )


def read_profile(config: EmbedderModelConfig, folder: Path) -> Profile:
    """Complete a config from the catalog and the files in ``folder``.

    Raises:
        ConfigError: The pooling is not known, or the model has layers after its pooling.
    """
    known = CATALOG.get(config.name)
    _check_modules(config.name, folder)
    prompts = _read(folder, "config_sentence_transformers.json").get("prompts") or {}
    query, passage = prompts.get("query", ""), prompts.get("passage") or prompts.get("document") or ""
    return Profile(
        name=config.name,
        version=config.version or (known.version if known else config.revision or "1"),
        pooling=config.pooling or (known.pooling if known else _pooling(config.name, folder)),
        max_tokens=config.max_tokens or (known.max_tokens if known else read_max_tokens(folder)),
        query_prefix=_first(config.query_prefix, known.query_prefix if known else None, query),
        passage_prefix=_first(config.passage_prefix, known.passage_prefix if known else None, passage),
        dimensions=config.dimensions or (known.dimensions if known else None),
    )


def read_max_tokens(folder: Path) -> int:
    """The longest text a model takes, tokens: what it was trained with, else what it can hold, else 512."""
    trained = _read(folder, "sentence_bert_config.json").get("max_seq_length")
    if isinstance(trained, int):
        return trained
    held = _read(folder, "tokenizer_config.json").get("model_max_length")
    positions = _read(folder, "config.json").get("max_position_embeddings")
    limits = [n for n in (held, positions) if isinstance(n, int) and n < _NO_LIMIT]
    return min(limits, default=DEFAULT_MAX_TOKENS)


def _pooling(name: str, folder: Path) -> Pooling:
    modes = _read(folder, "1_Pooling/config.json")
    named = [_POOLINGS.get(key) for key, on in modes.items() if key.startswith("pooling_mode_") and on is True]
    if (mode := modes.get("pooling_mode")) is not None:
        named = [_POOLINGS.get(f"pooling_mode_{mode}{s}") for s in ("", "_tokens", "_token")]
        named = [n for n in named if n] or [None]
    if len(named) != 1 or named[0] is None:
        raise ConfigError(
            f"Model {name} does not say its pooling, or one that is not known.",
            field="pooling",
            remedy="Set pooling to mean, cls or last, as the model's card says.",
        )
    return named[0]


def _check_modules(name: str, folder: Path) -> None:
    kinds = {module["type"].rpartition(".")[2] for module in read_json(folder / "modules.json") or []}
    if kinds - _UNDERSTOOD:
        raise ConfigError(
            f"Model {name} has layers that are not supported: {', '.join(sorted(kinds - _UNDERSTOOD))}.",
            field="name",
            remedy="Take a model of a transformer, pooling and normalisation.",
        )


def _first(*values: str | None) -> str:
    return next(value for value in values if value is not None)


def _read(folder: Path, name: str) -> dict[str, Any]:
    return read_json(folder / name) or {}

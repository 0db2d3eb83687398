"""Which files of a repository or folder make a model; pure, so the same choice serves a listing and a disk."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.errors import ConfigError
from models.catalog import Backend, Precision

_ONNX: tuple[tuple[Precision, tuple[str, ...]], ...] = (
    ("int8", ("model_quantized.onnx", "model_int8.onnx", "model_uint8.onnx")),
    ("fp32", ("model.onnx",)),
)
_SHARD = re.compile(r"(?:model|pytorch_model)-\d+-of-(\d+)\.(?:safetensors|bin)")
_SIDE = re.compile(r"[^/]+\.(?:json|txt|model)|1_Pooling/config\.json")
_INDEX = ".index.json"


@dataclass(frozen=True)
class Choice:
    """The files of a model. ``weights`` are relative paths, the one to open first; ``side`` all small files."""

    weights: tuple[str, ...]
    side: tuple[str, ...]
    precision: Precision

    @property
    def files(self) -> list[str]:
        """All of them."""
        return [*self.weights, *self.side]


def choose(names: Collection[str], backend: Backend, precision: Precision | None) -> Choice | None:
    """Pick the files to load.

    Args:
        names: Relative paths with forward slashes.
        backend: onnx wants an ``.onnx`` file and ``tokenizer.json``; torch safetensors (or else a ``.bin``) and
            ``config.json``.
        precision: ``None`` takes int8 before fp32.

    Returns:
        ``None`` when something needed is missing.
    """
    side = tuple(sorted(n for n in names if _SIDE.fullmatch(n) and not n.endswith(_INDEX)))
    if backend == "onnx":
        for kind, stems in _ONNX:
            weights = next((f + s for s in stems for f in ("", "onnx/") if f + s in names), None)
            if weights and precision in {None, kind} and "tokenizer.json" in names:
                # Weights above 2 GB lie beside the graph.
                external = sorted(n for n in names if n.startswith((f"{weights}_data", f"{weights}.data")))
                return Choice((weights, *external), side, kind)
        return None
    if precision == "int8" or "config.json" not in names:
        return None
    for whole in ("model.safetensors", "pytorch_model.bin"):
        if whole in names:
            return Choice((whole,), side, "fp32")
        if whole + _INDEX in names:
            suffix = whole.rpartition(".")[2]
            shards = {n: m for n in names if n.endswith(suffix) and (m := _SHARD.fullmatch(n))}
            if shards and all(len(shards) == int(m[1]) for m in shards.values()):
                return Choice((whole + _INDEX, *sorted(shards)), side, "fp32")
    return None


def read_json(path: Path) -> Any:
    """What a JSON file holds; ``None`` when there is no such file.

    Raises:
        ConfigError: It is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON.", field="path", remedy="Fetch the model anew.") from error


def choose_in(folder: Path, backend: Backend, precision: Precision | None) -> Choice | None:
    """``choose`` on what lies in a folder."""
    names = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
    return choose(names, backend, precision)

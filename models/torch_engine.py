"""Runs any Hugging Face encoder on torch; fp16 on CUDA. Needs the extra ``torch``."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from contracts.errors import ConfigError
from contracts.ports import Vectors
from models.batching import pad
from models.catalog import Pooling
from models.config import Compute, TorchOptions
from models.pooling import pool, unit
from models.tokens import TextTokenizer

logging.disable_progress_bar()
_DTYPES: dict[Compute, Any] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Placed:
    """A model on its device, in its number format, ready for inference.

    Args:
        auto: The transformers class that loads it.
        folder: Holds ``config.json`` and the weights. Code that comes with a model is never run.
        options: Device and format. On CPUs weights stay fp32 and a narrower format is used by autocast.
        threads: CPU threads, for the whole process.

    Raises:
        ConfigError: The folder can't be loaded, or there is no such device.
    """

    def __init__(self, auto: Any, folder: Path, options: TorchOptions, threads: int) -> None:
        has_cuda = torch.cuda.is_available()
        if options.device == "cuda" and not has_cuda:
            raise ConfigError("There is no CUDA device.", field="device", remedy="Set device to auto or cpu.")
        self.device = "cuda" if has_cuda and options.device != "cpu" else "cpu"
        compute = options.compute
        if compute == "auto":
            compute = "fp16" if self.device == "cuda" else "fp32"
        self._autocast = _DTYPES[compute] if self.device == "cpu" and compute != "fp32" else None
        if self.device == "cpu":
            torch.set_num_threads(threads)
        dtype = _DTYPES[compute] if self.device == "cuda" else torch.float32
        try:
            model = auto.from_pretrained(folder, dtype=dtype, local_files_only=True)
        except Exception as error:  # transformers and safetensors raise a dozen kinds, all for files they can't use.
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise ConfigError(f"transformers can't load {folder}: {reason}", field="path") from error
        model.config.use_cache = False
        self.model = model.to(self.device).eval()

    def autocast(self) -> AbstractContextManager[Any]:
        """The context to compute in."""
        return nullcontext() if self._autocast is None else torch.autocast("cpu", dtype=self._autocast)

    def tensors(self, **arrays: Any) -> dict[str, Any]:
        """Arrays as tensors on the device."""
        return {name: torch.as_tensor(array, device=self.device) for name, array in arrays.items()}


class TorchEngine:
    """An encoder on torch.

    Args:
        folder: Holds the model.
        pooling: How token vectors become one.
        pad_id: What fills the shorter rows of a batch.
        options: Device and number format.
        threads: CPU threads, for the whole process.

    Raises:
        ConfigError: The folder can't be loaded, or there is no such device.
    """

    def __init__(self, folder: Path, *, pooling: Pooling, pad_id: int, options: TorchOptions, threads: int) -> None:
        self._placed = Placed(AutoModel, folder, options, threads)
        self._pooling = pooling
        self._pad_id = pad_id

    def encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """See ``models.encoder.Engine``."""
        ids, mask = pad(rows, self._pad_id)
        with torch.inference_mode(), self._placed.autocast():
            inputs = self._placed.tensors(input_ids=ids, attention_mask=mask)
            hidden = self._placed.model(**inputs).last_hidden_state.float()
            pooled = pool(hidden, inputs["attention_mask"], self._pooling)
        return unit(pooled.cpu().numpy())


def load_tokenizer(folder: Path, max_tokens: int) -> TextTokenizer:
    """A tokenizer in any form that transformers reads.

    Raises:
        ConfigError: There is none.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"{folder} has no fast tokenizer.", field="path", remedy="Add its tokenizer.json.")
    return TextTokenizer(backend, max_tokens, tokenizer.pad_token_id or 0)

"""Runs an encoder on onnxruntime, the fastest on CPUs."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort

from contracts.errors import ConfigError
from contracts.ports import Vectors
from models.batching import pad
from models.catalog import Pooling
from models.pooling import pool, unit

_KNOWN_INPUTS = {"input_ids", "attention_mask", "token_type_ids", "position_ids"}
_OUTPUTS = ("last_hidden_state", "token_embeddings")


class OnnxEngine:
    """An encoder in ONNX.

    An int8 model scales its activations by the largest value in the batch, so a text's vector would depend on its
    neighbours (cosine down to 0.987) and lose precision. Its texts therefore run one by one, side by side on the
    threads: as fast on CPUs, nearer to fp32, and the same text always has the same vector.

    Args:
        weights: The ``.onnx`` file.
        pooling: How token vectors become one.
        pad_id: What fills the shorter rows of a batch.
        one_by_one: For int8 weights.
        threads: CPU threads.

    Raises:
        ConfigError: Not the ONNX of an encoder.
    """

    def __init__(self, weights: Path, *, pooling: Pooling, pad_id: int, one_by_one: bool, threads: int) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1 if one_by_one else threads
        options.log_severity_level = 4  # What goes wrong is raised; it need not be printed as well.
        try:
            self._session = ort.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a dozen kinds, all for a file it can't use.
            raise ConfigError(f"onnxruntime can't load {weights} ({type(error).__name__}).", field="path") from error
        self._inputs = {i.name for i in self._session.get_inputs()}
        outputs = [o.name for o in self._session.get_outputs()]
        self._output = next((name for name in _OUTPUTS if name in outputs), "")
        if not self._output or not {"input_ids", "attention_mask"} <= self._inputs <= _KNOWN_INPUTS:
            raise ConfigError(
                f"{weights} is not the ONNX of an encoder: it takes {sorted(self._inputs)} and gives {outputs}.",
                field="name",
                remedy="Set backend to torch.",
            )
        self._pooling = pooling
        self._pad_id = pad_id
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="onnx") if one_by_one else None

    def encode(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """See ``models.encoder.Engine``."""
        if self._threads is None:
            return self._batch(rows)
        alone: Iterable[list[Sequence[int]]] = ([row] for row in rows)
        run = self._threads.map if len(rows) > 1 else map
        return np.concatenate(list(run(self._batch, alone)))

    def _batch(self, rows: Sequence[Sequence[int]]) -> Vectors:
        ids, mask = pad(rows, self._pad_id)
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
        }
        fed = {name: value for name, value in inputs.items() if name in self._inputs}
        (hidden,) = self._session.run([self._output], fed)
        return unit(pool(hidden, mask, self._pooling))

"""Scores (query, passage) pairs with any Hugging Face sequence classifier. Needs the extra ``torch``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from contracts.errors import ConfigError
from models.batching import batches
from models.config import TorchOptions
from models.tokens import encodable
from models.torch_engine import Placed

_BINARY = 2


class TorchPairScorer:
    """A cross-encoder.

    Its logits are mapped to 0..1 (design decision 7): one label by the sigmoid; two labels by the softmax, of which the
    label with index 1 is taken as "relevant".

    Args:
        folder: Holds model and tokenizer.
        options: Device and number format.
        max_tokens: Longer pairs are cut, from the longer of the two texts.
        batch_tokens: Tokens a batch, padding included.
        threads: CPU threads, for the whole process.

    Raises:
        ConfigError: The folder can't be loaded, or is not a classifier of one or two labels.
    """

    def __init__(
        self, folder: Path, *, options: TorchOptions, max_tokens: int, batch_tokens: int, threads: int
    ) -> None:
        self._placed = Placed(AutoModelForSequenceClassification, folder, options, threads)
        labels = self._placed.model.config.num_labels
        if labels not in {1, _BINARY}:
            raise ConfigError(
                f"{folder} has {labels} labels; a cross-encoder has one or two.", field="name", remedy="Take another."
            )
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._max_tokens = max_tokens
        self._batch_tokens = batch_tokens
        try:
            # Unequal lengths, so that a model that can't be padded shows here and not in a request.
            self.score([("a", "b"), ("a b", "c d e")])
        except (ValueError, IndexError, RuntimeError) as error:
            raise ConfigError(f"{folder} can't score pairs: {str(error)[:200]}", field="name") from error

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """See ``contracts.ports.PairScorer``."""
        scores = np.zeros(len(pairs), dtype=np.float32)
        if not pairs:
            return scores
        queries = [encodable(query) for query, _ in pairs]
        passages = [encodable(passage) for _, passage in pairs]
        encoded: dict[str, list[list[int]]] = self._tokenizer(
            queries, passages, truncation="longest_first", max_length=self._max_tokens
        )
        for batch in batches([len(row) for row in encoded["input_ids"]], self._batch_tokens):
            rows = {name: [values[i] for i in batch] for name, values in encoded.items()}
            scores[batch] = self._probabilities(self._tokenizer.pad(rows, padding_side="right", return_tensors="np"))
        return scores

    def _probabilities(self, inputs: Any) -> NDArray[np.float32]:
        with torch.inference_mode(), self._placed.autocast():
            logits = self._placed.model(**self._placed.tensors(**inputs)).logits.float()
        relevant = logits.sigmoid()[:, 0] if logits.shape[1] == 1 else logits.softmax(dim=1)[:, 1]
        return np.asarray(relevant.cpu().numpy(), dtype=np.float32)

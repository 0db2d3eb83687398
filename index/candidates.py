"""From what the recalls of one query found to one list of hits, each with its two true scores; for every backend."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from contracts.errors import ConfigError, RecallFailed
from contracts.ports import OTHER_MODEL, Recall, Recalled, RecallHit, RecallQuery
from contracts.records import ModelRef
from index.bm25 import BM25Config, Statistics, coverage
from index.text import Analysis, Countable

# Account, kind and URI of a node.
Key = tuple[str, str, str]
# The fields of a hit that a backend reads from a record, in order; the scores come after them.
SHOWN = RecallHit.__struct_fields__[:-3]
# By 1 for the dense recall plus 2 for the keyword recall.
FOUND_BY: tuple[Literal["dense", "keyword", "both"], ...] = ("dense", "dense", "keyword", "both")


class Candidates:
    """The records found for one query.

    Args:
        limit: Hits kept of each recall.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shown: dict[Key, tuple[Any, ...]] = {}
        self._texts: dict[Key, tuple[Countable, Countable]] = {}
        self._members: dict[Recall, set[Key]] = {"dense": set(), "keyword": set()}
        self._coverages: dict[Key, float] = {}
        self._best: set[Key] = set()

    def add(
        self,
        recall: Recall,
        keys: Iterable[Key],
        shown: Iterable[tuple[Any, ...]],
        texts: Iterable[tuple[Countable, Countable]],
    ) -> None:
        """Take in records of a recall.

        Args:
            recall: Which recall found them.
            keys: What tells them apart.
            shown: Their ``SHOWN`` fields.
            texts: Their words and bigrams.
        """
        keys = list(keys)
        self._members[recall].update(keys)
        self._shown.update(zip(keys, shown, strict=True))
        self._texts.update(zip(keys, texts, strict=True))

    def score(self, terms: Analysis, statistics: Callable[[str, str], Statistics], config: BM25Config) -> None:
        """Give every candidate its coverage, and keep the ``limit`` best of the keyword recall.

        Args:
            terms: The analysed query.
            statistics: Of an account and kind.
            config: Constants by kind.
        """
        grouped: dict[tuple[str, str], list[Key]] = {}
        for key in self._texts:
            grouped.setdefault(key[:2], []).append(key)
        for (account_id, kind), keys in grouped.items():
            texts = map(self._texts.__getitem__, keys)
            known = statistics(account_id, kind)
            found = coverage(terms, texts, known, config.saturation(kind), config.bigram_weight)
            self._coverages.update(zip(keys, found, strict=True))
        ranked = sorted(self._members["keyword"], key=self._coverages.__getitem__, reverse=True)
        self._best = set(ranked[: self._limit])

    def keyword_only(self) -> list[Key]:
        """The kept candidates that dense recall did not find, once they are scored."""
        return [key for key in self._shown if key in self._best and key not in self._members["dense"]]

    def recalled(
        self, cosines: Mapping[Key, float], failed: Mapping[Recall, str], partial: Mapping[Recall, str]
    ) -> Recalled:
        """The answer, once candidates are scored.

        Args:
            cosines: By key, 0..1; a key left out counts as 0.
            failed: Recalls that failed, with the reason.
            partial: Recalls that looked at a part of the index, with the reason.
        """
        dense, best = self._members["dense"], self._best
        hits = tuple(
            RecallHit(*(*shown, cosines.get(key, 0.0), self._coverages[key], FOUND_BY[found_by]))
            for key, shown in self._shown.items()
            if (found_by := (key in dense) + 2 * (key in best))
        )
        more = any(len(keys) >= self._limit for keys in self._members.values())
        return Recalled(hits, failed, more, partial)


def check_dimensions(held: ModelRef, queries: Sequence[RecallQuery]) -> None:
    """Refuse vectors that can't be compared with those of the index and do not say of which model they are.

    Raises:
        ConfigError: A vector has another dimension.
    """
    for query in queries:
        if query.vector is not None and query.model is None and query.vector.shape != (held.dimensions,):
            raise ConfigError(
                f"The query's vector has shape {query.vector.shape}, the index holds vectors of "
                f"{held.dimensions} dimensions.",
                field="embedder",
                remedy="Use the embedder the index was built with, or ingest again.",
            )


def refuse_other_model(query: RecallQuery, held: ModelRef) -> tuple[RecallQuery, dict[Recall, str]]:
    """A query without its vector when that is of another model than the index's, and dense recall's failure then."""
    if query.vector is None or query.model is None or query.model == held:
        return query, {}
    return msgspec.structs.replace(query, vector=None), {"dense": OTHER_MODEL}


def require_some(failed: Mapping[Recall, str], found: Collection[object]) -> None:
    """Let one failed recall pass while the other has answered.

    Raises:
        RecallFailed: Recalls failed, and none is left (C30).
    """
    if failed and not found:
        raise RecallFailed(
            "; ".join(f"{recall} recall: {why}" for recall, why in sorted(failed.items())),
            remedy="Retry; `strata doctor` checks the index.",
        )

"""Searches one at a time, timed, and what of the nearest records they find."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from contracts.errors import RecallFailed
from contracts.filters import Eq, all_of
from contracts.ports import RecallHit, RecallQuery, SearchIndex
from evaluation.synthetic import Account, Question, percent

Mode = Literal["dense", "keyword", "both"]
Told = Callable[[str], None]
MODES: tuple[Mode, ...] = ("dense", "keyword", "both")
# Hits asked for, and the best of them that recall is also told of.
LIMIT, BEST = 100, 10
# Questions asked before any is timed.
WARM_UP = 10
_ALL = 100


class Scope(NamedTuple):
    """What is searched: a share, in percent, of an account's records."""

    name: str
    account: Account
    share: int = _ALL

    def query(self, question: Question, mode: Mode) -> RecallQuery:
        """A question about these records."""
        condition = all_of(Eq("account_id", self.account.name), percent(self.share) if self.share < _ALL else None)
        text = "" if mode == "dense" else question.text
        return RecallQuery(text, None if mode == "keyword" else question.vector, condition, LIMIT)


class Searched(msgspec.Struct, frozen=True):
    """How one kind of search went.

    Args:
        index: Which backend, or which setting of it.
        scope: What was searched.
        mode: Which recalls.
        p50_ms: Median, milliseconds.
        p95_ms: 95th percentile.
        recall_10: Share of the ten nearest records among the ten best hits; of dense searches only.
        recall_100: Share of the hundred nearest records among all hits.
    """

    index: str
    scope: str
    mode: Mode
    p50_ms: float
    p95_ms: float
    recall_10: float | None
    recall_100: float | None


async def search(
    indices: Mapping[str, SearchIndex], scopes: Sequence[Scope], modes: Sequence[Mode], queries: int, told: Told
) -> list[Searched]:
    """Time searches of all kinds on all indices, turn and turn about.

    Args:
        indices: By the name that results have.
        scopes: What is searched.
        modes: Which recalls.
        queries: Timed searches of each kind.
        told: How many are done.

    Raises:
        RecallFailed: A search was not answered in full.
    """
    series = {(name, scope, mode): _Series() for scope in scopes for mode in modes for name in indices}
    asked = [scope.account.questions(WARM_UP + queries) for scope in scopes]
    for number, questions in enumerate(zip(*asked, strict=True)):
        for scope, question in zip(scopes, questions, strict=True):
            nearest = scope.account.nearest(question.vector, LIMIT, scope.share)
            for mode in modes:
                for name in _turned(list(indices), number):
                    ms, hits = await _timed(indices[name], scope.query(question, mode))
                    if number >= WARM_UP:
                        series[name, scope, mode].note(ms, hits, nearest)
        told(f"Searching: {max(0, number + 1 - WARM_UP)} of {queries} questions")
    return [each.result(name, scope, mode) for (name, scope, mode), each in series.items()]


class _Series:
    """The searches of one kind."""

    def __init__(self) -> None:
        self._ms: list[float] = []
        self._found: dict[int, list[float]] = {BEST: [], LIMIT: []}

    def note(self, ms: float, hits: Sequence[RecallHit], nearest: Sequence[str]) -> None:
        self._ms.append(ms)
        ranked = [hit.uri for hit in sorted(hits, key=lambda hit: hit.vector, reverse=True)]
        for depth, shares in self._found.items():
            shares.append(recall(ranked[:depth], nearest[:depth]))

    def result(self, name: str, scope: Scope, mode: Mode) -> Searched:
        p50, p95 = (round(float(ms), 2) for ms in np.percentile(self._ms, [50, 95]))
        found = (round(float(np.mean(shares)), 4) if mode == "dense" else None for shares in self._found.values())
        return Searched(name, scope.name, mode, p50, p95, *found)


def recall(found: Sequence[str], wanted: Sequence[str]) -> float:
    """The share of what is wanted that was found; 1 when nothing is."""
    return len(set(found) & set(wanted)) / len(wanted) if wanted else 1.0


async def _timed(index: SearchIndex, query: RecallQuery) -> tuple[float, Sequence[RecallHit]]:
    started = time.perf_counter()
    (answer,) = await index.recall([query])
    ms = (time.perf_counter() - started) * 1000
    if lacking := {**answer.failed, **answer.partial}:
        raise RecallFailed("; ".join(f"{name} recall: {why}" for name, why in sorted(lacking.items())))
    return ms, answer.hits


def _turned(names: list[str], by: int) -> list[str]:
    """The names in turn, another one first each time."""
    first = by % len(names)
    return names[first:] + names[:first]

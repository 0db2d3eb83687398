"""Timed searches, on an index that stands in for a real one."""

from collections.abc import Sequence
from typing import cast

import pytest

from contracts.deadline import Deadline
from contracts.errors import RecallFailed
from contracts.ports import Recall, Recalled, RecallHit, RecallQuery, SearchIndex
from evaluation.synthetic import Account, Shape
from evaluation.timed_search import MODES, WARM_UP, Scope, recall, search

ACCOUNT = Account(Shape(rows=400, dimensions=8, accounts=3), 0)
SCOPES = [Scope("all", ACCOUNT), Scope("a tenth", ACCOUNT, 10)]


class FakeIndex:
    """Finds every second of the nearest records, the best one among them, and says so in a log."""

    def __init__(self, name: str, log: list[tuple[str, RecallQuery]], failed: dict[Recall, str] | None = None) -> None:
        self._name = name
        self._log = log
        self._failed = failed or {}

    async def recall(self, queries: Sequence[RecallQuery], deadline: Deadline | None = None) -> list[Recalled]:
        (query,) = queries
        self._log.append((self._name, query))
        if query.vector is None:
            return [Recalled((), self._failed, more=False)]
        nearest = ACCOUNT.nearest(query.vector, query.limit, 10 if "tags" in repr(query.condition) else 100)
        hits = [_hit(uri, 1 - rank / 1000) for rank, uri in enumerate(nearest) if rank % 2 == 0]
        return [Recalled(tuple(reversed(hits)), self._failed, more=False)]


def _hit(uri: str, cosine: float) -> RecallHit:
    return RecallHit(uri, "", "", "", "", "", "", 1, "", False, False, False, cosine, 0.0, "dense")


def indices(log: list[tuple[str, RecallQuery]], **failed: dict[Recall, str]) -> dict[str, SearchIndex]:
    return {name: cast("SearchIndex", FakeIndex(name, log, failed.get(name))) for name in ("one", "other")}


def silent(_: str) -> None:
    """Tell nobody."""


async def test_each_kind_of_search_is_measured_on_each_index() -> None:
    log: list[tuple[str, RecallQuery]] = []
    results = await search(indices(log), SCOPES, MODES, 4, silent)
    assert {(each.index, each.scope, each.mode) for each in results} == {
        (name, scope.name, mode) for name in ("one", "other") for scope in SCOPES for mode in MODES
    }
    assert len(log) == (WARM_UP + 4) * len(results)
    assert all(0 <= each.p50_ms <= each.p95_ms for each in results)


async def test_indices_take_turns_with_the_same_queries_and_each_goes_first_as_often() -> None:
    log: list[tuple[str, RecallQuery]] = []
    await search(indices(log), SCOPES, MODES, 4, silent)
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert all({one[0], other[0]} == {"one", "other"} for one, other in pairs)
    assert all(
        (one[1].text, one[1].condition, one[1].vector is None)
        == (other[1].text, other[1].condition, other[1].vector is None)
        for one, other in pairs
    )
    assert sum(one[0] == "one" for one, _ in pairs) == len(pairs) / 2


async def test_recall_is_that_of_the_best_hits_against_the_nearest_records() -> None:
    """Every second is found: the first ten hits hold the 1st, 3rd … 19th, so five of the ten nearest."""
    results = await search(indices([]), SCOPES, ["dense", "both"], 4, silent)
    found = {(each.scope, each.mode): (each.recall_10, each.recall_100) for each in results}
    assert found["all", "dense"] == (0.5, 0.5)
    assert found["a tenth", "dense"] == pytest.approx((0.5, 0.5), abs=0.03)
    assert found["all", "both"] == (None, None)


async def test_a_search_that_was_answered_in_part_is_no_figure() -> None:
    with pytest.raises(RecallFailed, match="dense recall: too slow"):
        await search(indices([], other={"dense": "too slow"}), SCOPES, ["dense"], 1, silent)


@pytest.mark.parametrize(
    ("found", "wanted", "share"),
    [(["a", "b"], ["b", "a"], 1.0), (["a"], ["b", "a"], 0.5), ([], ["a"], 0.0), (["a"], [], 1.0)],
)
def test_recall_is_the_share_of_what_is_wanted(found: list[str], wanted: list[str], share: float) -> None:
    assert recall(found, wanted) == share

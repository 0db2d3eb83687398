"""A replica on the index looks whether the index is well."""

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import RecallFailed
from contracts.stages import ReadRequest, ReadResult, Stage
from deployments.settings import IndexSettings
from deployments.stages import indexed
from deployments.stages.indexed import IndexedReplica
from tests.support.waiting import until


class FakeIndex:
    """Answers, or not."""

    error: Exception | None = None

    async def meta(self, account_id: str, uris: list[str]) -> dict[str, Any]:
        if self.error:
            raise self.error
        return {}


class Replica(IndexedReplica[ReadRequest, ReadResult]):
    """One that is only looked at."""

    name = "reader"

    def build(self) -> Stage[ReadRequest, ReadResult]:
        return None  # type: ignore[return-value]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What the metric is told, in order."""
    answers: list[bool] = []
    monkeypatch.setattr(indexed, "_LOOK_S", 0.001)
    monkeypatch.setattr(indexed.IndexMetrics, "answered", lambda self, well: answers.append(well))
    return answers


async def opened(monkeypatch: pytest.MonkeyPatch, index: FakeIndex) -> Replica:
    async def opens(*_: object) -> FakeIndex:
        return index

    monkeypatch.setattr(indexed, "open_reader", opens)
    replica = object.__new__(Replica)
    await replica.open(Path(), IndexSettings())
    return replica


@pytest.mark.parametrize("error", [RecallFailed("It is down."), TimeoutError(), OSError("broken")])
async def test_an_index_that_stops_answering_shows_and_so_does_its_return(
    monkeypatch: pytest.MonkeyPatch, told: list[bool], error: Exception
) -> None:
    index = FakeIndex()
    replica = await opened(monkeypatch, index)
    assert told == [True]
    index.error = error
    await until(lambda: told[-1] is False)
    index.error = None
    await until(lambda: told[-1] is True)
    replica.watch.stop()


async def test_a_replica_starts_while_the_index_is_down(monkeypatch: pytest.MonkeyPatch, told: list[bool]) -> None:
    index = FakeIndex()
    index.error = RecallFailed("It is down.")
    replica = await opened(monkeypatch, index)
    assert told == [False]
    replica.watch.stop()

"""Shadows (R8): the path that did not answer, run beside the answer and compared with it; no caller waits for one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from contracts.errors import StageTimeout, StrataError
from corpora.rag.ports import CorpusObserver
from corpora.rag.types import CorpusHit, Retrieved, ShadowEvent

DROPPED = "dropped"
_UNEXPECTED = "RET-5004"


class Shadows:
    """Runs shadows, some at once.

    Args:
        most: How many at once; further ones are dropped.
        seconds: Each one's deadline.
        observer: Told how each compares.
    """

    def __init__(self, most: int, seconds: float, observer: CorpusObserver) -> None:
        self._most = most
        self._seconds = seconds
        self._observer = observer
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, answer: Retrieved, seconds: float, other: Callable[[], Awaitable[Retrieved]]) -> None:
        """Begin one, and return at once.

        Args:
            answer: What the caller gets.
            seconds: How long it took.
            other: Retrieves on the other path.
        """
        if len(self._running) >= self._most:
            self._observer.shadowed(ShadowEvent(answer.request_id, answer.corpus, answer.path, DROPPED))
            return
        task = asyncio.create_task(self._compare(answer, seconds, other))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """End those that run."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _compare(self, answer: Retrieved, seconds: float, other: Callable[[], Awaitable[Retrieved]]) -> None:
        began = time.perf_counter()
        shared: float | None = None
        try:
            async with asyncio.timeout(self._seconds):
                shadow = await other()
            outcome = "degraded" if shadow.degraded else "ok"
            shared = overlap(answer.hits, shadow.hits)
        except TimeoutError:
            outcome = StageTimeout.code
        except StrataError as error:
            outcome = error.code
        except Exception:  # A shadow never breaks anything; that it broke is what it tells.
            outcome = _UNEXPECTED
        later = (time.perf_counter() - began - seconds) * 1000
        self._observer.shadowed(
            ShadowEvent(answer.request_id, answer.corpus, answer.path, outcome, shared, round(later, 3))
        )


def overlap(one: Sequence[CorpusHit], other: Sequence[CorpusHit]) -> float:
    """Share of hits that both have, of the longer list; 1 when both are empty."""
    longer = max(len(one), len(other))
    return len({hit.uri for hit in one} & {hit.uri for hit in other}) / longer if longer else 1.0

"""Metrics and log of the knowledge base; see ``deployments/metrics.py`` for what all have in common."""

import time

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.errors import StrataError
from contracts.stages import Stage
from corpora.knowledge_base.outbox import Behind
from corpora.knowledge_base.types import SearchOutcome, SearchRequest
from deployments.logs import json_log, query_hash
from deployments.metrics import Milliseconds, Reading, Tally


class Observed:
    """A search, counted, and a line of JSON in the log for each: no text of the query, no text of an answer.

    Args:
        search: The search itself.
    """

    def __init__(self, search: Stage[SearchRequest, SearchOutcome]) -> None:
        self._search = search
        self._log = json_log()
        self._searches = Tally("kb_search", "Searches: ok, gap, degraded or an error code.", "outcome")
        self._ms = Milliseconds("kb_search_ms", "Duration of a search, inside its deployment.")
        self._results = Tally("kb_result_count", "Results answered.")
        self._fallback = Tally("kb_fallback_count", "Parts left out of answers.", "stage", "code")

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: SearchRequest, /) -> SearchOutcome:
        """Search."""
        started = time.perf_counter()
        outcome, answer = "abandoned", None
        try:
            answer = await self._search(ctx, deadline, request)
            outcome = "gap" if answer.gap_id else "degraded" if answer.degraded else "ok"
            return answer
        except Exception as error:
            outcome = error.code if isinstance(error, StrataError) else StrataError.code
            raise
        finally:
            self._note(ctx, request, outcome, answer, time.perf_counter() - started)

    def _note(
        self, ctx: RequestContext, request: SearchRequest, outcome: str, answer: SearchOutcome | None, seconds: float
    ) -> None:
        self._searches.add(1, outcome)
        self._ms.add(seconds)
        self._results.add(len(answer.results) if answer else 0)
        reasons = answer.reasons if answer else ()
        for part in reasons:
            self._fallback.add(1, part.stage, part.reason.split(":", 1)[0])
        self._log.info(
            "kb_search",
            request_id=ctx.request_id,
            account_id=ctx.account_id,
            query_hash=query_hash(ctx.account_id, request.query_text),
            filters=sorted(request.filters),
            entity_type_count=len(request.entity_types),
            outcome=outcome,
            result_count=len(answer.results) if answer else 0,
            reasons=[part.reason for part in reasons],
            total_ms=round(seconds * 1000),
        )


class BehindMetrics:
    """How far the index is behind; told by the deployment that works on it."""

    def __init__(self) -> None:
        self._waiting = Reading("kb_behind", "Entities whose chunks in the index are behind.")
        self._failing = Reading("kb_behind_failing", "Those of them that failed before.")
        self._age = Reading("kb_behind_ms", "How long the one that waits longest has been due.")

    def show(self, behind: Behind) -> None:
        """The state as it is now."""
        self._waiting.show(behind.waiting)
        self._failing.show(behind.failing)
        self._age.show(behind.oldest_ms)

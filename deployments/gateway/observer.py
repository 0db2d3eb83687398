"""Metrics and log of the gateway, in Ray's and Serve's; see ``deployments/metrics.py`` for what all have in common."""

from collections import Counter
from typing import Any

from deployments.logs import json_log, query_hash
from deployments.metrics import Milliseconds, Tally
from gateway.requests import SearchMemoriesRequest
from gateway.results import SearchMemoriesResponse
from gateway.upstream import User


class GatewayMetrics:
    """Counts what the gateway does."""

    def __init__(self) -> None:
        self._searches = Tally("gateway_search", "Searches: ok, degraded or an error code.", "method", "outcome")
        self._ms = Milliseconds("gateway_search_ms", "Duration of a search in the ingress.", "method")
        self._results = Tally("gateway_result_count", "Memories answered.", "memory_type")
        self._fallback = Tally("gateway_fallback_count", "Parts left out of answers.", "stage", "code")
        self._refused = Tally("gateway_login_refused_count", "Users not let in: key_wrong, throttled.", "reason")

    def ended(
        self,
        request: SearchMemoriesRequest | None,
        answer: SearchMemoriesResponse | None,
        outcome: str,
        seconds: float,
    ) -> None:
        """A search ended; see :meth:`GatewayLog.ended`."""
        method = request.method if request else "?"
        self._searches.add(1, method, outcome)
        self._ms.add(seconds, method)
        if answer is None:
            return
        for memory_type, count in Counter(result.memory_type for result in answer.results).items():
            self._results.add(count, memory_type)
        for part in answer.degraded:
            self._fallback.add(1, part.stage, _code(part.reason))

    def refused(self, reason: str) -> None:
        """A user was not let in."""
        self._refused.add(1, reason)


class GatewayLog:
    """One line of JSON a search; no query, no key, no filter values, and no name before it is proved."""

    def __init__(self) -> None:
        self._log = json_log()

    def ended(
        self,
        request_id: str,
        request: SearchMemoriesRequest | None,
        user: User | None,
        answer: SearchMemoriesResponse | None,
        *,
        outcome: str,
        seconds: float,
    ) -> None:
        """A search ended.

        Args:
            request_id: Of the request.
            request: What was asked; ``None`` where it was not understood.
            user: Who asked; ``None`` where that was not proved.
            answer: ``None`` where there was none.
            outcome: ok, degraded or an error code.
            seconds: How long it took.
        """
        self._log.info(
            "memories_search",
            request_id=request_id,
            **(_who(user) if user else {}),
            **(_what(request) if request else {}),
            **({"query_hash": query_hash(user.account_id, request.query)} if user and request else {}),
            **(_found(answer) if answer else {}),
            outcome=outcome,
            latency_ms=round(seconds * 1000, 1),
        )


def _who(user: User) -> dict[str, Any]:
    return {"account_id": user.account_id, "user_id": user.user_id}


def _what(request: SearchMemoriesRequest) -> dict[str, Any]:
    return {
        "scope": request.scope,
        "method": request.method,
        "top_k": request.top_k,
        "for_agent": request.agent_id is not None,
        "filtered": bool(request.filters),
    }


def _found(answer: SearchMemoriesResponse) -> dict[str, Any]:
    reasons = [f"{part.stage}:{_code(part.reason)}" for part in answer.degraded]
    return {"result_count": len(answer.results), "fallback_reason": reasons}


def _code(reason: str) -> str:
    return reason.split(":", 1)[0]

"""What the product writes to Serve's log: one line of JSON a request (C42), and what broke; never text of a request."""

import hashlib
import logging
import traceback
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.requests import ReadBatchRequest, ReadMemoryRequest, SearchMemoryRequest
from contracts.responses import SearchMemoryResponse
from contracts.stages import Assembly, RecheckResult, SeedResult, Stage

logger = logging.getLogger("ray.serve")

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass
class Notes:
    """What a search's stages returned beyond its answer; of two rounds, the last counts."""

    seeds: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    threshold_filtered: int = 0

    def take(self, result: object) -> None:
        """Note the result of a stage."""
        match result:
            case SeedResult():
                self.seeds = sum(map(len, result.hits))
            case RecheckResult():
                self.drops = Counter(drop.exclude_reason for drop in result.drops)
            case Assembly():
                self.threshold_filtered = result.threshold_filtered


_current: ContextVar[Notes] = ContextVar("notes")


def take_notes() -> Notes:
    """Fresh notes for the search that this task now begins."""
    notes = Notes()
    _current.set(notes)
    return notes


class Noted(Generic[In, Out]):
    """A stage whose results go into the notes of the search that called it.

    Args:
        stage: The stage itself.
    """

    def __init__(self, stage: Stage[In, Out]) -> None:
        self._stage = stage

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: In, /) -> Out:
        """Call the stage."""
        result = await self._stage(ctx, deadline, request)
        if notes := _current.get(None):
            notes.take(result)
        return result


def json_log() -> structlog.BoundLogger:
    """Serve's log, a line of JSON an event."""
    render = structlog.processors.JSONRenderer(ensure_ascii=False)
    log: structlog.BoundLogger = structlog.wrap_logger(logger, processors=[render], wrapper_class=structlog.BoundLogger)
    return log


class RequestLog:
    """The log of requests."""

    def __init__(self) -> None:
        self._log = json_log()

    def searched(
        self, ctx: RequestContext, request: SearchMemoryRequest, answer: SearchMemoryResponse, notes: Notes
    ) -> None:
        """A search was answered."""
        self._log.info(
            "search_memory",
            **_who(ctx),
            **_what(ctx, request),
            typed_query_count=len(answer.typed_queries),
            seed_count=notes.seeds,
            final_count=len(answer.hits),
            degraded=[part.stage for part in answer.degraded],
            warnings=answer.trace.warnings,
            recheck_drop_reasons=dict(notes.drops),
            total_ms=answer.trace.total_ms,
        )

    def search_failed(self, ctx: RequestContext, request: SearchMemoryRequest, code: str) -> None:
        """A search was refused or failed."""
        self._log.info("search_memory", **_who(ctx), **_what(ctx, request), error=code)

    def read(
        self,
        ctx: RequestContext,
        request: ReadMemoryRequest | ReadBatchRequest,
        *,
        answered: int = 0,
        seconds: float,
        code: str = "",
    ) -> None:
        """A read was answered, refused or failed.

        Args:
            ctx: Who asked.
            request: What was asked.
            answered: Texts handed out.
            seconds: How long it took.
            code: Of the error, if there was one.
        """
        uris = request.uris if isinstance(request, ReadBatchRequest) else [request.uri]
        self._log.info(
            "read_batch" if isinstance(request, ReadBatchRequest) else "read_memory",
            **_who(ctx),
            level=request.level,
            uri_count=len(uris),
            final_count=answered,
            total_ms=round(seconds * 1000),
            **({"error": code} if code else {}),
        )

    def refused(self, event: str, request_id: str, code: str) -> None:
        """A request was refused before it was understood, or given up by its caller."""
        self._log.info(event, request_id=request_id, error=code)


def _who(ctx: RequestContext) -> dict[str, Any]:
    return {
        "request_id": ctx.request_id,
        "account_id": ctx.account_id,
        "role": ctx.role,
        "effective_owner_spaces": ctx.owner_spaces() or ["*"],
    }


def _what(ctx: RequestContext, request: SearchMemoryRequest) -> dict[str, Any]:
    return {"query_hash": query_hash(ctx.account_id, request.query), "top_k": request.top_k}


def query_hash(account_id: str, query: str) -> str:
    """A hash that tells equal queries of one account; salted with the account, so that accounts can't be compared."""
    salted = hashlib.blake2b(query.encode("utf-8", "replace"), digest_size=8, key=account_id.encode()[:64])
    return salted.hexdigest()


def log_unexpected(error: BaseException, where: str) -> None:
    """Log an error that nobody foresaw: its type and the places it passed, without its message.

    A message may hold what was searched for or what was found.
    """
    places = "".join(traceback.format_tb(error.__traceback__))
    logger.error("Unexpected %s in %s:\n%s", type(error).__name__, where, places)

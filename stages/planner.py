"""Planner: turns a query into typed queries by rules, in Chinese and English (C10)."""

import re

from pydantic import BaseModel, ConfigDict, Field

from contracts.context import RequestContext
from contracts.deadline import Deadline
from contracts.query import CONTEXT_TYPES, ContextType, QueryFilters, QueryHints, TimeRange, TypedQuery
from contracts.requests import SearchMemoryRequest
from contracts.stages import Plan, PlannerHints, PlanRequest, SessionArchive

_TERMS: dict[ContextType, list[str]] = {
    "memory": [
        *("偏好", "背景", "身份", "记忆", "回顾", "记得", "喜欢什么"),
        *("preference", "preferences", "prefer", "background", "remember", "recall", "who am i", "about me", "did i"),
    ],
    "skill": [
        *("怎么做", "怎么", "如何", "步骤", "命令", "流程", "教程"),
        *("how to", "how do i", "how can i", "steps", "procedure", "workflow", "tutorial", "command line"),
    ],
    "resource": [
        *("文档", "资料", "规范", "链接", "手册"),
        *("documentation", "docs", "reference", "specification", "manual", "link to", "guideline", "guidelines"),
    ],
}
_CATEGORIES: dict[ContextType, list[str]] = {
    "memory": ["profile", "preference", "event"],
    "skill": ["procedure", "command", "function", "class"],
    "resource": ["document", "section"],
}


class PlannerConfig(BaseModel):
    """What the planner goes by."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    terms: dict[ContextType, list[str]] = Field(
        _TERMS, description="Words that show an intent. More of them search fewer types: faster, but narrower."
    )
    default_categories: dict[ContextType, list[str]] = Field(
        _CATEGORIES, description="Categories lifted when the caller names none."
    )
    short_query: int = Field(
        6, ge=0, description="A query of at most this many characters (CJK) or a third as many words takes topics in."
    )
    max_topics: int = Field(4, ge=0, description="Session topics that complete a short query; more of them blur it.")


class Planner:
    """The planner stage."""

    def __init__(self, config: PlannerConfig) -> None:
        self._config = config
        self._patterns = {kind: _pattern(config.terms.get(kind, [])) for kind in CONTEXT_TYPES}

    async def __call__(self, ctx: RequestContext, deadline: Deadline, request: PlanRequest) -> Plan:
        """Plan one to three typed queries.

        The caller's ``planner_hints.context_types`` decide; else the query's words; else the session's types. None,
        or two types claiming the same words, is RET-4221: all three types side by side.
        """
        kinds, unsure = self._kinds(request)
        return typed_queries(ctx, request, kinds, self._config, unsure=unsure)

    def _kinds(self, request: PlanRequest) -> tuple[tuple[ContextType, ...], bool]:
        hinted = request.hints.context_types if request.hints else ()
        if hinted:
            return hinted, False
        if request.widen:
            return CONTEXT_TYPES, False
        matches = {kind: pattern.search(request.query.lower()) for kind, pattern in self._patterns.items() if pattern}
        found = {kind: match.span() for kind, match in matches.items() if match}
        conflict = len(set(found.values())) < len(found)
        if found and not conflict:
            return tuple(found), False
        recent = request.session.context_types if request.session else ()
        return (recent, False) if recent and not conflict else (CONTEXT_TYPES, True)


def typed_queries(
    ctx: RequestContext, request: PlanRequest, kinds: tuple[ContextType, ...], config: PlannerConfig, *, unsure: bool
) -> Plan:
    """The typed queries of ``kinds``, in priority memory > skill > resource.

    Args:
        ctx: Its account goes into the filters, whatever the caller sent (C20).
        request: What was asked.
        kinds: Context types to search.
        config: Default categories, and when topics complete a query.
        unsure: Whether this is the RET-4221 degradation.
    """
    hints = request.hints or PlannerHints()
    text = _completed(request.query.strip(), request.session, config)
    categories = request.categories or hints.categories
    queries = tuple(
        TypedQuery(
            text=text,
            context_type=kind,
            categories=categories or tuple(config.default_categories.get(kind, [])),
            target_uri=request.target_uri,
            top_k=request.top_k,
            filters=QueryFilters(ctx.account_id, request.owner_space, request.time_range),
            hints=QueryHints(hints.intent or kind, hints.must_have_terms, hints.exclude_terms),
        )
        for kind in CONTEXT_TYPES
        if kind in kinds
    )
    return Plan(queries, unsure)


def _completed(query: str, session: SessionArchive | None, config: PlannerConfig) -> str:
    short = len(query) <= config.short_query and len(query.split()) <= max(1, config.short_query // 3)
    if session is None or not session.topics or not short:
        return query
    return " ".join([query, *session.topics[: config.max_topics]])


def _pattern(terms: list[str]) -> re.Pattern[str] | None:
    if not terms:
        return None
    # Chinese has no word boundaries; in English a term must not match inside a word.
    parts = [
        rf"\b{re.escape(t.lower())}\b" if t.isascii() else re.escape(t) for t in sorted(terms, key=len, reverse=True)
    ]
    return re.compile("|".join(parts))


def three_queries(ctx: RequestContext, request: PlanRequest) -> Plan:
    """What stands in for a planner that failed: all three types, the query as it is, no default categories."""
    return typed_queries(ctx, request, CONTEXT_TYPES, PlannerConfig(default_categories={}, max_topics=0), unsure=True)


def plan_request(request: SearchMemoryRequest, target: str | None) -> PlanRequest:
    """What a search asks of the planner; ``target`` is its checked and canonical target URI."""
    times, session, hints = request.time_range, request.session_archive, request.planner_hints
    return PlanRequest(
        query=request.query,
        top_k=request.top_k,
        categories=tuple(request.categories),
        target_uri=target,
        owner_space=request.owner_space,
        time_range=TimeRange(times.start, times.end) if times else None,
        session=SessionArchive(tuple(session.topics), tuple(session.context_types)) if session else None,
        hints=PlannerHints(
            intent=hints.intent,
            context_types=tuple(hints.context_types),
            categories=tuple(hints.categories),
            must_have_terms=tuple(hints.must_have_terms),
            exclude_terms=tuple(hints.exclude_terms),
        )
        if hints
        else None,
    )

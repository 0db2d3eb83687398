"""``POST /memories/search`` from request to answer: scopes side by side, merge, tombstones, overrides (G1–G8)."""

import asyncio
import time
from collections.abc import Sequence

from msgspec.structs import replace

from contracts.deadline import Deadline
from contracts.errors import TargetForbidden, UpstreamTimeout
from contracts.trace import Degradation
from gateway.concurrently import side_by_side
from gateway.config import GatewayConfig
from gateway.login import Login
from gateway.requests import ScopeName, SearchMemoriesRequest
from gateway.results import MemoryResult, SearchMemoriesResponse, merged, of_scope
from gateway.scopes import conditions
from gateway.scopes import merged as with_scope
from gateway.store import Agent, GatewayStore, Resource
from gateway.upstream import Owner, Upstream, UpstreamAnswer, UpstreamQuery, User


class Gateway:
    """The memory gateway.

    Args:
        store: What it knows of its users.
        login: Finds out who asks.
        upstream: The memory service.
        config: How long it takes and how much it asks at once.
    """

    def __init__(self, store: GatewayStore, login: Login, upstream: Upstream, config: GatewayConfig) -> None:
        self._store = store
        self._login = login
        self._upstream = upstream
        self._config = config

    async def authenticate(self, request: SearchMemoriesRequest, address: str) -> User:
        """Who asks; see :meth:`gateway.login.Login.authenticate`."""
        return await self._login.authenticate(request.user_id, request.user_key, address)

    async def search(self, user: User, request: SearchMemoriesRequest, request_id: str = "") -> SearchMemoriesResponse:
        """Search the scopes of a request side by side, under one deadline.

        Args:
            user: Who asks, authenticated.
            request: What is asked.
            request_id: For the logs of the graph.

        Returns:
            The memories. Scopes that ran out of time are left out and named in ``degraded``, if others did not.

        Raises:
            InvalidFilter: The graph does not understand the filters; nothing was searched.
            TargetForbidden: The agent is not registered for the user, and has to be.
            UpstreamRefused, UpstreamFailed, UpstreamTimeout, StageError: The upstream could not answer (G8).
            DatabaseDown: What is known of the user can't be asked.
        """
        self._upstream.check(request.filters)
        await self._check_agent(user, request.agent_id)
        started, deadline = time.perf_counter(), Deadline.after(self._config.timeout_ms / 1000)
        sessions = await self._sessions(user, request)
        # Each scope once, in the order of the request.
        scopes = tuple(dict.fromkeys(request.scope))
        planned = [
            (scope, condition)
            for scope in scopes
            for condition in conditions(scope, request.conversation_id, sessions, self._config.resource_batch)
        ]
        query = _query(request, request_id)
        answers = await self._side_by_side(
            user,
            deadline,
            [replace(query, filters=with_scope(request.filters, condition)) for _, condition in planned],
        )
        found: dict[ScopeName, list[UpstreamAnswer]] = {scope: [] for scope in scopes}
        degraded: list[Degradation] = []
        for (scope, _), answer in zip(planned, answers, strict=True):
            if isinstance(answer, UpstreamTimeout):
                degraded.append(
                    Degradation(
                        "upstream",
                        f"{answer.code}: {scope}: {answer.message}",
                        round((time.perf_counter() - started) * 1000),
                    )
                )
            else:
                found[scope].append(answer)
                degraded += answer.degraded
        results = merged(of_scope(scope, found[scope]) for scope in scopes)
        return SearchMemoriesResponse(await self._noted(user, results), _once(degraded))

    async def close(self) -> None:
        """Let go of the upstream's connections."""
        await self._upstream.close()

    async def _side_by_side(
        self, user: User, deadline: Deadline, queries: Sequence[UpstreamQuery]
    ) -> list[UpstreamAnswer | UpstreamTimeout]:
        """The answers, or that there was none in time; an error ends all searches, and so does it when none answers."""
        room = asyncio.Semaphore(self._config.side_by_side)

        async def one(query: UpstreamQuery) -> UpstreamAnswer | UpstreamTimeout:
            try:
                async with asyncio.timeout(deadline.left()), room:
                    return await self._upstream.search(user, deadline, query)
            except TimeoutError:
                return UpstreamTimeout("The memory service took too long.", remedy="Retry in a moment.")
            except UpstreamTimeout as error:
                return error

        answers = await side_by_side(map(one, queries))
        late = [answer for answer in answers if isinstance(answer, UpstreamTimeout)]
        if late and len(late) == len(answers):
            raise late[0]
        return answers

    async def _check_agent(self, user: User, agent_id: str | None) -> None:
        if agent_id is None or self._config.agent_ownership == "off":
            return
        if not await self._store.owns(Agent(agent_id), user.user_id):
            raise TargetForbidden(
                "This agent's memory is not yours to search.",
                field="agent_id",
                remedy="Have it registered: strata gateway agents add USER AGENT",
            )

    async def _sessions(self, user: User, request: SearchMemoriesRequest) -> list[str]:
        if "resources" not in request.scope:
            return []
        return [resource.session_id for resource in await self._store.owned(Resource, user.user_id)]

    async def _noted(self, user: User, results: Sequence[MemoryResult]) -> list[MemoryResult]:
        """Without what the user has hidden, with what it has written instead, and with its own resources (G6, G7)."""
        sessions = (result.session_id for result in results if result.session_id is not None)
        notes = await self._store.notes(user.user_id, (result.id for result in results), sessions)
        shown = []
        for result in results:
            if result.id in notes.tombstones:
                continue
            own = notes.resources.get(result.session_id or "")
            shown.append(
                replace(
                    result,
                    text=notes.overrides.get(result.id, result.text),
                    resource_id=own.resource_id if own else None,
                    resource_uri=own.uri if own else None,
                )
            )
        return shown


def _query(request: SearchMemoriesRequest, request_id: str) -> UpstreamQuery:
    """What every scope is searched with (G3); the owner is the agent where one is named (G2)."""
    owner = Owner("agent_id", request.agent_id) if request.agent_id else Owner("user_id", request.user_id)
    return UpstreamQuery(
        owner=owner,
        query=request.query,
        method=request.method,
        top_k=request.top_k,
        radius=request.radius,
        include_profile=request.include_profile,
        enable_llm_rerank=request.enable_llm_rerank,
        app_id=request.app_id,
        project_id=request.project_id,
        request_id=request_id,
    )


def _once(parts: Sequence[Degradation]) -> tuple[Degradation, ...]:
    """Each reason once, however many searches it concerned."""
    return tuple({(part.stage, part.reason): part for part in reversed(parts)}.values())[::-1]

"""What the gateway asks a memory service, and what comes back (G2, G3): the shape of EverOS's search API."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

import msgspec

from contracts.deadline import Deadline
from contracts.trace import Degradation
from gateway.requests import Method
from gateway.scopes import Filters

MemoryArray = Literal["episodes", "profiles", "agent_cases", "agent_skills", "unprocessed_messages"]
ARRAYS: tuple[MemoryArray, ...] = get_args(MemoryArray)
Item = Mapping[str, Any]


class User(msgspec.Struct, frozen=True):
    """An authenticated user.

    Args:
        user_id: As clients write it.
        account_id: The tenant whose part of the graph is searched.
        space: Owner space of the user's memory there, for instance ``memory.alice``.
    """

    user_id: str
    account_id: str
    space: str


class Owner(msgspec.Struct, frozen=True):
    """Whose memory is searched: one user's or one agent's, never both (G2)."""

    kind: Literal["user_id", "agent_id"]
    id: str


class UpstreamQuery(msgspec.Struct, frozen=True):
    """One search of one scope (G3); the fields are those of ``gateway.requests``.

    Args:
        filters: The caller's and the scope's, merged; ``None`` for neither.
        request_id: For logs; not sent.
    """

    owner: Owner
    query: str
    method: Method
    top_k: int
    radius: float | None
    include_profile: bool
    enable_llm_rerank: bool
    app_id: str
    project_id: str
    filters: Filters | None = None
    request_id: str = ""

    def body(self) -> dict[str, Any]:
        """As JSON for the wire: the owner under its own name, ``radius`` and ``filters`` only where given."""
        optional = {"radius": self.radius, "filters": self.filters}
        return {
            self.owner.kind: self.owner.id,
            "query": self.query,
            "method": self.method,
            "top_k": self.top_k,
            "include_profile": self.include_profile,
            "enable_llm_rerank": self.enable_llm_rerank,
            "app_id": self.app_id,
            "project_id": self.project_id,
        } | {name: value for name, value in optional.items() if value is not None}


class UpstreamAnswer(msgspec.Struct, frozen=True):
    """What a search found, best first in each array, and what it could not do."""

    episodes: tuple[Item, ...] = ()
    profiles: tuple[Item, ...] = ()
    agent_cases: tuple[Item, ...] = ()
    agent_skills: tuple[Item, ...] = ()
    unprocessed_messages: tuple[Item, ...] = ()
    degraded: tuple[Degradation, ...] = ()


class Upstream(Protocol):
    """A memory service."""

    def check(self, filters: Filters | None) -> None:
        """Refuse what this service would refuse, before anything is searched; one that checks by itself need not.

        Raises:
            InvalidFilter: The caller's filters are malformed.
        """
        ...

    async def search(self, user: User, deadline: Deadline, query: UpstreamQuery) -> UpstreamAnswer:
        """Search one scope.

        Raises:
            RequestError: The caller is at fault; nothing was searched.
            UpstreamFailed, UpstreamTimeout, StageError: The service could not answer.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...

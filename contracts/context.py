"""Who is asking: the identity every search and read is bound to (C20)."""

from typing import Literal

import msgspec

Role = Literal["user", "agent", "admin"]
SHARED_SPACE = "shared"


class RequestContext(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Identity of one request, made from credentials by the ingress and by nobody else.

    Args:
        account_id: The tenant. Never taken from a request body.
        role: ``user`` sees its user space, its agent space and the shared space; ``agent`` its agent space and the
            shared space, and the user space when it has one; ``admin`` every space of the account.
        user_space: Owner space of the user, for instance ``user:alice``; empty for none.
        agent_space: Owner space of the agent, for instance ``agent:planner``; empty for none.
        spaces: Further spaces that the key grants.
        request_id: Echoed in answers and logs.
    """

    account_id: str
    role: Role = "user"
    user_space: str = ""
    agent_space: str = ""
    spaces: tuple[str, ...] = ()
    request_id: str = ""

    def owner_spaces(self) -> tuple[str, ...] | None:
        """The spaces this caller may see, sorted; ``None`` means every space of the account (admin)."""
        if self.role == "admin":
            return None
        own = {self.user_space, self.agent_space, SHARED_SPACE, *self.spaces}
        return tuple(sorted(own - {""}))

    def may_see(self, owner_space: str) -> bool:
        """Whether ``owner_space`` lies in this caller's scope."""
        allowed = self.owner_spaces()
        return allowed is None or owner_space in allowed

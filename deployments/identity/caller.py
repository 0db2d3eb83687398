"""What credentials are made into, and the one way to refuse them."""

import msgspec

from contracts.context import RequestContext
from contracts.errors import InvalidUri, Unauthenticated
from contracts.uri import SCHEME, parse

ROLES = ("user", "agent", "admin")


class Caller(msgspec.Struct, frozen=True):
    """Who asks.

    Args:
        context: The identity that search and read are bound to.
        key: What limits per key count by: the id of an API key; for a JWT, its account and subject.
    """

    context: RequestContext
    key: str


class Refused(Unauthenticated):
    """Credentials that are not valid. Every one reads the same, so that nobody can feel their way to a valid one.

    Args:
        reason: Which check failed, in a word; for the metric alone.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("The credentials are not valid.", remedy="Make an API key with: strata keys create")
        self.reason = reason

    def __reduce__(self) -> tuple[type["Refused"], tuple[str]]:
        """Rebuild from the reason alone."""
        return Refused, (self.reason,)


def is_space(name: str) -> bool:
    """Whether ``name`` is a space, for instance ``user:alice``."""
    try:
        return "/" not in name and parse(SCHEME + name) == SCHEME + name
    except InvalidUri:
        return False

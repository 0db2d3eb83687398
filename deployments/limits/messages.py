"""What an ingress and the owner of the limits say to each other."""

import msgspec


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """An ingress gives back its share of one limit, and asks for another.

    Args:
        name: Whose limit; see ``LimitsSettings.of``.
        want: Requests that wait for it; 0 only gives back.
        unused: Tokens left of the last share.
        running: Requests that were admitted and are not done.
    """

    name: str
    want: int
    unused: int
    running: int


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """A share of one limit, for one lease.

    Args:
        name: Whose limit.
        tokens: Requests that the ingress may admit.
        slots: Requests that it may have running at once, those that run already among them.
        plenty: Whether it may keep what is idle; else it shall give back at once, for others are short of it.
        retry_after: Seconds until more can be had, when it is less than was wanted; else 0.
    """

    name: str
    tokens: int
    slots: int
    plenty: bool
    retry_after: float


class LeaseRequest(msgspec.Struct, frozen=True, array_like=True):
    """One call of an ingress.

    Args:
        ingress: Who calls; a name that no other ingress ever had.
        number: Counts its calls, so that one that comes late is known as such.
        asks: Each limit at most once; none, to be counted among the living.
    """

    ingress: str
    number: int
    asks: tuple[Ask, ...]


class LeaseReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer.

    Args:
        grants: One for each ask, in their order; none when the call came late.
        ingresses: How many share the limits now, the caller among them.
    """

    grants: tuple[Grant, ...]
    ingresses: int

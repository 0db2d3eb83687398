"""How many calls a replica takes by the wire."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Places:
    """How many calls a replica takes.

    Args:
        running: Worked on at once.
        waiting: Beyond them, in the order they came; more are refused.
    """

    running: int
    waiting: int

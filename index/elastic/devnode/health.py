"""What a node says of its cluster, and waiting for it."""

import time
from collections.abc import Callable
from typing import Literal

import httpx
import msgspec

_POLL_S = 0.2
_ASK_S = 5.0


class Health(msgspec.Struct, frozen=True):
    """What a node answers to ``/_cluster/health``."""

    status: Literal["green", "yellow", "red"]
    number_of_nodes: int

    def is_up(self, size: int) -> bool:
        """Whether all is well in a cluster of so many nodes.

        A single node may be yellow: all it has is there, and the replicas asked of it have no place to be.
        """
        return self.number_of_nodes == size and (self.status == "green" or (size == 1 and self.status == "yellow"))


def ask(url: str) -> Health | None:
    """What the node there says; ``None`` while it does not answer."""
    try:
        # Whatever proxy the environment names is not for this machine.
        answer = httpx.get(f"{url}/_cluster/health", timeout=_ASK_S, trust_env=False)
        return msgspec.json.decode(answer.content, type=Health)
    except (httpx.HTTPError, msgspec.MsgspecError):
        return None


def wait_for(condition: Callable[[], bool], patience_s: float) -> bool:
    """Ask for a condition until it holds or the time is over; returns whether it holds."""
    end = time.monotonic() + patience_s
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(_POLL_S)
    return holds

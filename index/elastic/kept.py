"""Nodes as they were read from Elasticsearch, kept in memory: a node in one revision of its document never changes.

So a search returns ids and scores alone, and what lies behind an id is read once: that is most of what a search costs
the cluster, and most of what travels.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from contracts.ports import NodeMeta, RecallHit
from index.candidates import SHOWN
from index.text import Countable

# What a record leaves out is empty.
_EMPTY: Mapping[type, Any] = {str: "", int: 0, bool: False}
_SHOWN_EMPTY = tuple(_EMPTY[RecallHit.__annotations__[name]] for name in SHOWN)
# What is read of a record.
FIELDS = tuple(dict.fromkeys((*NodeMeta.__struct_fields__, *SHOWN, "words", "bigrams", "revision", "key")))


class Kept(NamedTuple):
    """A node in one revision.

    Args:
        meta: Its metadata.
        revision: Of its document.
        shown: The ``SHOWN`` fields of a hit.
        texts: Its words and bigrams.
    """

    meta: NodeMeta
    revision: int
    shown: tuple[Any, ...]
    texts: tuple[Countable, Countable]


class Nodes:
    """The nodes read last.

    Args:
        most: How many are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._index = ""
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def of(self, index: str) -> None:
        """Say which index is read; of another one than before nothing is kept.

        Args:
            index: Its UUID: an index made anew under the same name gives the same ids to other nodes.
        """
        if index != self._index:
            self._kept.clear()
            self._index = index

    def get(self, keys: Iterable[str]) -> dict[str, Kept]:
        """Those of these ids that are kept."""
        found: dict[str, Kept] = {}
        for key in keys:
            if (node := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                found[key] = node
        return found

    def keep(self, sources: Collection[Mapping[str, Any]]) -> dict[str, Kept]:
        """Keep what records say, and let go of what was asked for longest ago.

        Args:
            sources: Their ``FIELDS``.

        Returns:
            The nodes by id.
        """
        new = {source["key"]: _kept(source) for source in sources}
        self._kept |= new
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return new


def _kept(source: Mapping[str, Any]) -> Kept:
    return Kept(
        msgspec.convert(source, NodeMeta),
        source["revision"],
        tuple(map(source.get, SHOWN, _SHOWN_EMPTY)),
        (Countable.of(source.get("words", "")), Countable.of(source.get("bigrams", ""))),
    )

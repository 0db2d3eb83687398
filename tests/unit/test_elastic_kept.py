"""Nodes kept from Elasticsearch: what is kept is what was read, of the index that is read, and bounded."""

from typing import Any

from contracts.ports import NodeMeta
from index.elastic.kept import Nodes


def source(key: str, **fields: Any) -> dict[str, Any]:
    known = {"account_id": "acme", "source_id": "s", "uri": f"strata://shared/{key}", "owner_space": "shared"}
    return {**known, "status": "active", "context_type": "resource", "revision": 7, "key": key, **fields}


def test_a_record_says_the_same_when_it_is_asked_for_again() -> None:
    nodes = Nodes(10)
    read = nodes.keep([source("a", words="run command run", tags=["x"], attrs={"lang": ["zh"]}, abstract="how")])
    assert nodes.get(["a", "b"]) == read
    kept = read["a"]
    assert kept.meta == NodeMeta(
        *("acme", "s", "strata://shared/a", "shared", "active", "resource"),
        tags=("x",),
        attrs={"lang": ("zh",)},
        abstract="how",
    )
    assert (kept.revision, kept.texts[0].length, kept.texts[1].length) == (7, 3, 0)
    assert kept.shown[0] == "strata://shared/a"


def test_those_asked_for_longest_ago_go_first() -> None:
    nodes = Nodes(2)
    nodes.keep([source("a"), source("b")])
    nodes.get(["a"])
    assert nodes.keep([source("c")]).keys() == {"c"}
    assert nodes.get("abc").keys() == {"a", "c"}


def test_with_no_room_everything_read_is_answered_and_nothing_kept() -> None:
    nodes = Nodes(0)
    assert nodes.keep([source("a")]).keys() == {"a"}
    assert nodes.get(["a"]) == {}


def test_of_an_index_made_anew_nothing_of_the_old_one_is_known() -> None:
    """Its revisions begin anew too, so the same id may be another node."""
    nodes = Nodes(10)
    nodes.of("first")
    nodes.keep([source("a")])
    nodes.of("first")
    assert nodes.get(["a"])
    nodes.of("second")
    assert nodes.get(["a"]) == {}

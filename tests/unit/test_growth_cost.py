"""What searches cost on a cluster: the model's arithmetic, by hand and by what must not change it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ConfigError
from evaluation.growth.cost import Nodes, Work, cost

WORK = Work({"seed_search": 12.0, "expander": 8.0}, records=2_000_000, gb_per_million=3.0, copies=2)
NODES = Nodes(count=3, cores=8, memory_gb=8, core_hour=0.09, utilisation=0.5, spare=1)
works = st.builds(
    Work,
    cpu_ms=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.floats(0.1, 100), min_size=1),
    records=st.integers(1, 10**9),
    gb_per_million=st.floats(0.01, 100),
    copies=st.just(3),
)
clusters = st.builds(
    Nodes,
    count=st.integers(3, 100),
    cores=st.floats(0.5, 128),
    memory_gb=st.floats(1, 1000),
    core_hour=st.floats(0.001, 10),
    utilisation=st.floats(0.05, 1),
    spare=st.integers(0, 2),
)


def test_an_example_by_hand() -> None:
    """Issue 9: cost per million searches for a cluster of N nodes.

    Of three nodes two work: 8 of 16 cores are busy, each search takes 0.02 of a core's seconds: 400 a second. A million
    take 2,500 s, for which 24 cores are paid: 24 · 2,500 / 3,600 · 0.09 = 1.50. Two copies of 6 GB lie on two nodes.
    """
    found = cost(WORK, NODES)
    assert found.searches_per_second == pytest.approx(400)
    assert found.per_million == pytest.approx(1.5)
    assert found.parts == pytest.approx({"seed_search": 0.9, "expander": 0.6})
    assert found.node_gb == pytest.approx(6)
    assert found.fits


@given(works, clusters)
def test_the_parts_add_up_to_the_price_and_the_price_is_that_of_the_closed_formula(work: Work, nodes: Nodes) -> None:
    found = cost(work, nodes)
    assert sum(found.parts.values()) == pytest.approx(found.per_million)
    cpu_s = sum(work.cpu_ms.values()) / 1000
    spared = nodes.count / (nodes.count - nodes.spare)
    assert found.per_million == pytest.approx(1e6 * cpu_s * nodes.core_hour / (3600 * nodes.utilisation) * spared)


@given(works, clusters, st.integers(2, 10))
def test_without_spare_nodes_more_nodes_take_more_searches_at_the_same_price(
    work: Work, nodes: Nodes, times: int
) -> None:
    one = cost(work, msgspec.structs.replace(nodes, spare=0))
    more = cost(work, msgspec.structs.replace(nodes, spare=0, count=nodes.count * times))
    assert more.searches_per_second == pytest.approx(times * one.searches_per_second)
    assert more.per_million == pytest.approx(one.per_million)
    assert more.node_gb == pytest.approx(one.node_gb / times)


@given(works, clusters, st.integers(2, 5))
def test_copies_take_memory_and_no_cpu(work: Work, nodes: Nodes, times: int) -> None:
    one, more = cost(work, nodes), cost(msgspec.structs.replace(work, copies=work.copies * times), nodes)
    assert more.per_million == one.per_million
    assert more.node_gb == pytest.approx(times * one.node_gb)


def test_an_index_that_is_not_split_lies_whole_on_every_node_however_many_there_are() -> None:
    whole = msgspec.structs.replace(WORK, split=False, copies=1)
    assert {cost(whole, msgspec.structs.replace(NODES, count=count)).node_gb for count in (2, 3, 30)} == {6.0}


def test_an_index_that_is_larger_than_the_memory_does_not_fit() -> None:
    assert not cost(WORK, msgspec.structs.replace(NODES, memory_gb=5.9)).fits


@pytest.mark.parametrize(
    ("field", "work", "nodes"),
    [
        ("cpu_ms", {"cpu_ms": {"seed_search": 0.0}}, {}),
        ("utilisation", {}, {"utilisation": 0.0}),
        ("utilisation", {}, {"utilisation": 1.1}),
        ("spare", {"copies": 4}, {"spare": 3}),
        ("copies", {"copies": 1}, {}),
        ("cores", {}, {"cores": 0.0}),
    ],
)
def test_what_has_no_price_is_refused_by_name(field: str, work: dict[str, object], nodes: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as error:
        cost(msgspec.structs.replace(WORK, **work), msgspec.structs.replace(NODES, **nodes))
    assert error.value.field == field

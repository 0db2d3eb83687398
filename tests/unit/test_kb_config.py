from typing import Any

import pytest
from pydantic import ValidationError

from contracts.filters import matches
from corpora.knowledge_base.config import HardFilter, KnowledgeBaseConfig, Weights

DRESS = {"attrs": {"occasions": ["party", "wedding"], "avoid_body_shapes": ["apple"]}}


def test_the_defaults_are_those_of_the_seed() -> None:
    """K2, K3, K8."""
    config = KnowledgeBaseConfig()
    assert config.weights.model_dump() == {"vector": 0.45, "keyword": 0.2, "rule": 0.25, "freshness": 0.1}
    assert config.top_k == 50
    assert (config.embedder.name, config.embedder.device) == ("deterministic-v1", "cpu")
    assert [each.name for each in config.hard_filters] == ["occasion", "body_shape"]


@pytest.mark.parametrize(
    ("name", "value", "passes"),
    [
        ("occasion", "party", True),
        ("occasion", "office", False),
        ("body_shape", "apple", False),
        ("body_shape", "pear", True),
    ],
)
def test_the_two_filters_of_the_seed_mean_what_it_says(name: str, value: str, passes: bool) -> None:
    """K1: occasion in attrs.occasions, body shape not in attrs.avoid_body_shapes."""
    declared = KnowledgeBaseConfig().filter_named(name)
    assert declared is not None
    assert matches(declared.condition((value,)), DRESS) is passes


@pytest.mark.parametrize(
    ("operator", "values", "passes"),
    [
        ("has", ("office", "party"), True),
        ("has", ("office",), False),
        ("has_all", ("party", "wedding"), True),
        ("has_all", ("party", "office"), False),
        ("lacks", ("office", "gym"), True),
        ("lacks", ("office", "party"), False),
    ],
)
def test_a_deployment_declares_filters_of_its_own(operator: Any, values: tuple[str, ...], passes: bool) -> None:
    declared = HardFilter(name="x", field="attrs.occasions", operator=operator)
    assert matches(declared.condition(values), DRESS) is passes


@pytest.mark.parametrize(("operator", "passes"), [("has", False), ("has_all", False), ("lacks", True)])
def test_an_entity_without_the_attribute_has_nothing_and_lacks_everything(operator: Any, passes: bool) -> None:
    declared = HardFilter(name="x", field="attrs.occasions", operator=operator)
    assert matches(declared.condition(("party",)), {"attrs": {}}) is passes


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"weights": {"vector": 0.5}}, "add up to 1.05"),
        ({"weights": {"vector": -0.45, "keyword": 1.1}}, "greater than or equal"),
        ({"embedder": {"name": "no-such-model"}}, "there is no model 'no-such-model'"),
        ({"embedder": {"name": "all-MiniLM-L6-v2", "dimensions": 1024}}, "384 dimensions, not 1024"),
        ({"hard_filters": [{"name": "x", "field": "attrs.colour", "operator": "has"}]}, "attrs.colour"),
        ({"hard_filters": [{"name": "x", "field": "attrs.occasions", "operator": "is"}]}, "'has'"),
        ({"hard_filters": [{"name": "x", "field": "status", "operator": "has"}]}, "pattern"),
        ({"hard_filters": [{"name": "x", "field": "attrs.occasions", "operator": "has"}] * 2}, "the same name"),
        (
            {"attrs": {"price": "number"}, "hard_filters": [{"name": "x", "field": "attrs.price", "operator": "has"}]},
            "attrs.price",
        ),
        ({"top_k": 0}, "greater than or equal"),
        ({"topk": 5}, "Extra inputs"),
    ],
)
def test_what_is_wrong_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    """K8: an unknown model, wrong dimensions or weights that do not add up fail at the start."""
    with pytest.raises(ValidationError, match=named):
        KnowledgeBaseConfig.model_validate(changes)


def test_weights_may_be_decimals_that_binary_numbers_miss_by_a_little() -> None:
    assert Weights(vector=0.1, keyword=0.2, rule=0.3, freshness=0.4)

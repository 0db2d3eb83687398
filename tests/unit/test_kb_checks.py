import math
from typing import Any

import pytest

from contracts.errors import InvalidInput
from corpora.knowledge_base import checks
from corpora.knowledge_base.config import KnowledgeBaseConfig
from corpora.knowledge_base.types import Asset, ChunkText, Entity

CONFIG = KnowledgeBaseConfig(
    attrs={
        "occasions": "keywords",
        "avoid_body_shapes": "keywords",
        "price": "number",
        "new": "boolean",
        "care": "text",
    }
)
KEEPING = KnowledgeBaseConfig(undeclared_attrs="keep")


def entity(**fields: Any) -> Entity:
    return Entity(**{"entity_id": "dress", "type": "garment"} | fields)


def test_keywords_become_a_list_in_one_form_of_unicode_each_once() -> None:
    """K1: stored ones and those asked for must meet."""
    given = entity(attrs={"occasions": "party", "avoid_body_shapes": ["Ａ", "A", "pear"], "price": 2, "care": None})
    assert checks.entity(given, CONFIG).attrs == {
        "occasions": ["party"],
        "avoid_body_shapes": ["A", "pear"],
        "price": 2,
    }


def test_an_attribute_that_is_not_declared_is_refused_as_it_may_be_a_misspelt_taboo() -> None:
    """K1."""
    with pytest.raises(InvalidInput) as caught:
        checks.entity(entity(attrs={"avoid_body_shape": ["apple"]}), CONFIG)
    assert caught.value.field == "attrs.avoid_body_shape"
    assert checks.entity(entity(attrs={"colour": "red"}), KEEPING).attrs == {"colour": "red"}


@pytest.mark.parametrize(
    "fields",
    [
        {"entity_id": ""},
        {"entity_id": "a/b"},
        {"entity_id": ".."},
        {"entity_id": " a"},
        {"entity_id": "x" * 129},
        {"entity_id": "\ud800"},
        {"type": " "},
        {"type": "x" * 65},
        {"name": "\0"},
        {"status": "sold"},
        {"updated_at": -1},
        {"attrs": {"occasions": [""]}},
        {"attrs": {"occasions": ["party "]}},
        {"attrs": {"occasions": [1]}},
        {"attrs": {"occasions": {"party": 1}}},
        {"attrs": {"occasions": ["x" * 257]}},
        {"attrs": {"price": "12"}},
        {"attrs": {"price": True}},
        {"attrs": {"price": math.nan}},
        {"attrs": {"new": 1}},
        {"attrs": {"care": "\0"}},
        {"attrs": {"occasions": [f"{i:0200}" for i in range(200)]}},
    ],
)
def test_an_entity_that_cannot_be_stored_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as caught:
        checks.entity(entity(**fields), CONFIG)
    assert caught.value.field.split(".")[0] == next(iter(fields))


@pytest.mark.parametrize("value", [math.inf, "\0", {"deep": ["\ud800"]}, object()])
def test_a_kept_attribute_must_be_json_that_every_database_takes(value: object) -> None:
    with pytest.raises(InvalidInput):
        checks.entity(entity(attrs={"colour": value}), KEEPING)


@pytest.mark.parametrize("fields", [{"chunk_id": "a/b"}, {"text": " "}, {"text": "x" * 32_769}, {"chunk_type": ""}])
def test_a_chunk_that_cannot_be_stored_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        checks.chunk(ChunkText(**{"chunk_id": "c", "entity_id": "e", "text": "x"} | fields))
    assert caught.value.field == next(iter(fields))


@pytest.mark.parametrize("fields", [{"storage_key": ""}, {"asset_type": "x" * 33}, {"spec_check": {"a": math.nan}}])
def test_an_asset_that_cannot_be_stored_is_refused(fields: dict[str, Any]) -> None:
    good = {"asset_id": "a", "entity_id": "e", "asset_type": "image", "storage_key": "k"}
    assert checks.asset(Asset(**good))
    with pytest.raises(InvalidInput) as caught:
        checks.asset(Asset(**good | fields))
    assert caught.value.field == next(iter(fields))

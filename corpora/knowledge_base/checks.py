"""What is written is checked here, before any of it is: so that no misspelt attribute can slip past a hard filter."""

import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from contracts.errors import InvalidInput
from contracts.text import UNSTORABLE
from contracts.uri import join
from corpora.knowledge_base.config import AttrKind, KnowledgeBaseConfig
from corpora.knowledge_base.types import SPACE, Asset, ChunkText, Entity

MAX_ID, MAX_KEYWORD, MAX_TEXT, MAX_ATTRS = 128, 256, 32_768, 32_768
ROOT = f"strata://{SPACE}"


def entity(given: Entity, config: KnowledgeBaseConfig) -> Entity:
    """The entity as it is stored: a keyword that stands alone becomes a list, repeated ones go.

    Raises:
        InvalidInput: A field can't be stored, or an attribute is not declared or of another kind.
    """
    identifier("entity_id", given.entity_id)
    text("type", given.type, 64)
    text("name", given.name, 1024, blank=True)
    if given.status not in {"draft", "published", "archived"}:
        raise InvalidInput("status is none of draft, published, archived.", field="status")
    if not 0 <= given.updated_at <= 2**53:
        raise InvalidInput("updated_at is no time in milliseconds.", field="updated_at")
    attrs = {name: _attribute(name, value, config) for name, value in given.attrs.items() if value is not None}
    if len(_json("attrs", attrs)) > MAX_ATTRS:
        raise InvalidInput(f"attrs is longer than {MAX_ATTRS} bytes.", field="attrs")
    return msgspec.structs.replace(given, attrs=attrs)


def chunk(given: ChunkText) -> ChunkText:
    """The chunk, as it is.

    Raises:
        InvalidInput: A field can't be stored.
    """
    identifier("chunk_id", given.chunk_id)
    identifier("entity_id", given.entity_id)
    text("chunk_type", given.chunk_type, 32)
    text("text", given.text, MAX_TEXT)
    return given


def asset(given: Asset) -> Asset:
    """The asset, as it is.

    Raises:
        InvalidInput: A field can't be stored.
    """
    identifier("asset_id", given.asset_id)
    identifier("entity_id", given.entity_id)
    for name, limit in {"asset_type": 32, "storage_key": 1024, "review_status": 32}.items():
        text(name, getattr(given, name), limit)
    text("licence", given.licence, 128, blank=True)
    if len(_json("spec_check", given.spec_check)) > MAX_ATTRS:
        raise InvalidInput(f"spec_check is longer than {MAX_ATTRS} bytes.", field="spec_check")
    return given


def identifier(field: str, value: str) -> None:
    """Check an id: it stands in a URI as it is.

    Raises:
        InvalidInput: It does not.
    """
    if not 0 < len(value) <= MAX_ID or join(ROOT, value) != f"{ROOT}/{value}":
        raise InvalidInput(
            f"{field} is no id.", field=field, remedy=f"Use 1..{MAX_ID} letters, digits and marks that fit into a URI."
        )


def text(field: str, value: str, limit: int, *, blank: bool = False) -> None:
    """Check a text.

    Raises:
        InvalidInput: It is blank though it must not be, too long, or holds what can't be stored.
    """
    if (not blank and not value.strip()) or len(value) > limit or UNSTORABLE.search(value):
        raise InvalidInput(f"{field} is blank, longer than {limit} characters, or no valid text.", field=field)


def keyword(value: str) -> str:
    """A keyword in the one form in which keywords are compared (NFKC), stored ones and those asked for alike."""
    return unicodedata.normalize("NFKC", value)


def is_keyword(value: object) -> bool:
    """Whether a value can be a keyword."""
    # A blank before or after is never meant, and makes another keyword of it.
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_KEYWORD
        and value == value.strip()
        and not UNSTORABLE.search(value)
    )


def _attribute(name: str, value: object, config: KnowledgeBaseConfig) -> object:
    kind = config.attrs.get(name)
    if kind is None:
        if config.undeclared_attrs == "keep":
            return value
        raise InvalidInput(
            f"The attribute {name[:64]!r} is not declared.",
            field=f"attrs.{name[:64]}",
            remedy=f"Use one of {', '.join(config.attrs)}, or declare it in knowledge_base.attrs.",
        )
    if kind == "keywords" and isinstance(value, str):
        value = [value]
    if not _fits(kind, value):
        raise InvalidInput(
            f"The attribute {name} is not of kind {kind}.",
            field=f"attrs.{name}",
            remedy=f"keywords are lists of strings of 1..{MAX_KEYWORD} characters." if kind == "keywords" else "",
        )
    return list(dict.fromkeys(map(keyword, value))) if isinstance(value, list | tuple) else value


def _fits(kind: AttrKind, value: object) -> bool:
    match kind:
        case "keywords":
            return isinstance(value, list | tuple) and all(map(is_keyword, value))
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "boolean":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str) and len(value) <= MAX_TEXT and not UNSTORABLE.search(value)


def _json(field: str, value: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if r"\u0000" not in text:
            return text.encode()
    except (TypeError, ValueError, RecursionError):
        pass
    raise InvalidInput(f"{field} is no JSON, or holds what can't be stored.", field=field)

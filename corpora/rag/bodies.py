"""What the bodies of all corpora share: field types, and one way to read a body with its mandatory dimensions (R6)."""

import math
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from contracts.errors import InvalidBody, MissingDimension
from contracts.requests import request_error
from corpora.context.nodes import to_millis

Body = TypeVar("Body", bound=BaseModel)

MAX_TEXT = 1 << 20
_EARLIEST, _LATEST = 10**11, 2**53
# Blanks other than the plain one, control characters, and blanks around.
_NO_NAME = re.compile(r"[^\S ]|[\x00-\x1f\x7f-\x9f]|^ | $")


def _text(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("text", "The text holds a NUL character")
    return value


def _identifier(value: str) -> str:
    if not value.strip() or _NO_NAME.search(value):
        raise PydanticCustomError("identifier", "An id is not blank, has no blanks around it and no control characters")
    return value


def _moment(value: Any) -> Any:
    """Milliseconds, where a date is given; what is neither is left to the type."""
    if isinstance(value, str):
        try:
            return to_millis(value)
        except (ValueError, OverflowError):
            raise PydanticCustomError("moment", "Write milliseconds since the epoch, or ISO 8601") from None
    if isinstance(value, int) and not isinstance(value, bool) and not _EARLIEST <= value <= _LATEST:
        raise PydanticCustomError("moment", "Write milliseconds since the epoch, not seconds")
    return value


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_text)]
Label = Annotated[str, Field(max_length=512), AfterValidator(_text)]
Identifier = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_identifier)]
# Milliseconds since the epoch, also from a date as ``to_millis`` reads it.
Moment = Annotated[int, BeforeValidator(_moment, json_schema_input_type=int | str)]


def read(kind: type[Body], raw: Mapping[str, Any], *mandatory: str, one_of: Sequence[str] = ()) -> Body:
    """Check a body.

    Args:
        kind: Its model.
        raw: The decoded JSON.
        mandatory: Dimensions that must all be there; blank is missing.
        one_of: Dimensions of which one at least must be there.

    Raises:
        MissingDimension: Names all mandatory dimensions that are missing (R6).
        InvalidBody: A field is unknown, missing or of the wrong type; names it.
    """
    if not isinstance(raw, Mapping):
        raise InvalidBody("The body is no object.", remedy="Send a JSON object.")
    if missing := [name for name in mandatory if _is_missing(raw.get(name))]:
        raise _missing(missing, " and ")
    if one_of and all(_is_missing(raw.get(name)) for name in one_of):
        raise _missing(one_of, " or ")
    try:
        return kind.model_validate(dict(raw))
    except ValidationError as error:
        raise request_error(error) from None


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _missing(names: Sequence[str], joint: str) -> MissingDimension:
    return MissingDimension(
        f"The body lacks {joint.join(names)}.",
        field=", ".join(names),
        remedy="This corpus is never searched or written without; nothing was done.",
    )


def digest(*parts: str) -> str:
    """24 hexadecimal digits that stand for these parts, each kept apart from the next."""
    hashed = blake2b(digest_size=12)
    for part in parts:
        data = part.encode()
        hashed.update(len(data).to_bytes(8) + data)
    return hashed.hexdigest()


def keywords(**values: str | int | None) -> dict[str, tuple[str, ...]]:
    """Attributes of these values; without those that are ``None`` or empty."""
    return {name: (str(value),) for name, value in values.items() if value not in {None, ""}}


def weighed(score: float, *shares: tuple[float, float]) -> float:
    """A score lowered a little by what speaks against it.

    ``score · (1 - Σ weight · (1 - quality))``, never below 0.

    Args:
        score: 0..1.
        shares: ``(weight, quality)`` each, both 0..1.
    """
    return score * max(0.0, 1.0 - math.fsum(weight * (1.0 - quality) for weight, quality in shares))

"""JSON Lines: typed records from a file of any size, each fault told by line, field and remedy."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from contracts.errors import InvalidInput

T = TypeVar("T", bound=msgspec.Struct)

_WHERE = re.compile(r" - at `\$\.?(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_TYPE = re.compile(r"Expected `(.*?)`, got `(.*?)`")
_TYPES = {"str": "text", "int": "a number", "float": "a number", "array": "a list", "object": "an object"}
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a file that is not blank; ``number`` counts from 1."""

    number: int
    data: bytes


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file, as they are asked for.

    Raises:
        InvalidInput: The file can't be read.
    """
    try:
        with path.open("rb") as file:
            for number, data in enumerate(file, 1):
                if data.strip():
                    yield Line(number, data.removeprefix(_BOM) if number == 1 else data)
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}.", field="path") from None


def decode(data: bytes, kind: type[T]) -> T:
    """One JSON object as a ``kind``.

    Raises:
        InvalidInput: The message names the field at fault and what to do about it.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(_explained(str(error), kind), field=_field(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"No JSON: {error}.", remedy="Write one JSON object a line, in UTF-8.") from None
    except RecursionError:
        raise InvalidInput("No JSON: nested too deep.", remedy="Write one flat JSON object a line.") from None


def _field(message: str) -> str:
    where = _WHERE.search(message)
    return where[1] if where else ""


def _explained(message: str, kind: type[msgspec.Struct]) -> str:
    """What msgspec says, in the words of someone who writes the file."""
    where = _field(message)
    if unknown := _UNKNOWN.search(message):
        if where:
            return f"Unknown field {unknown[1]!r} in {where!r}."
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        near = "".join(f" Did you mean {name!r}?" for name in get_close_matches(unknown[1], known, 1))
        return f"Unknown field {unknown[1]!r}.{near} Fields are {', '.join(known)}."
    if missing := _MISSING.search(message):
        return f"Field {missing[1]!r} is missing" + (f" in {where!r}." if where else ".")
    subject = f"Field {where!r}" if where else "The line"
    if wrong := _TYPE.search(message):
        return f"{subject} must be {_named(wrong[1])}, not {_named(wrong[2])}."
    choices = [str(value) for value in _choices(kind, where)]
    return f"{subject}: {_WHERE.sub('', message)}." + (f" Use one of {', '.join(choices)}." if choices else "")


def _named(types: str) -> str:
    return " or ".join(dict.fromkeys(_TYPES.get(name, name) for name in types.split(" | ")))


def _choices(kind: type[msgspec.Struct], name: str) -> Iterator[object]:
    """The values of a field that is a ``Literal``, or may be one."""
    types = [field.type for field in msgspec.structs.fields(kind) if field.encode_name == name]
    for each in [part for whole in types for part in (whole, *get_args(whole))]:
        if get_origin(each) is Literal:
            yield from get_args(each)

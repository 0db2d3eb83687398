"""What the filter compilers of all backends check and round alike."""

from math import ceil, floor, isfinite

from contracts.errors import InvalidFilter
from contracts.filters import FieldKind, Range, Value, kind_of

INT64 = 2**63


def require(field: str, holds: bool, operator: str) -> None:
    """Refuse an operator or value that does not fit a field.

    Raises:
        InvalidFilter: ``holds`` is false, or there is no such field.
    """
    kind = kind_of(field)
    if not holds:
        raise InvalidFilter(f"{operator} does not fit the {kind} field {field!r} with this value.", field="filter")


def fits(value: object, kind: FieldKind) -> bool:
    """Whether a value can be compared with a field of that kind."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return isinstance(value, str)


def comparable(field: str, values: tuple[Value, ...]) -> list[int] | list[str]:
    """The values that a stored one can equal: whole numbers in 64 bits, or strings that are not empty.

    The empty string stands for a missing value, which equals nothing; among the many values of a field it is one.

    Raises:
        InvalidFilter: A value of another type than the field, or a text with lone surrogates, which none stored has.
    """
    kind = kind_of(field)
    require(field, all(fits(value, kind) for value in values), "Eq or In")
    if kind == "number":
        return [int(v) for v in values if v == int(v) and -INT64 <= int(v) < INT64]
    return [encodable(str(v)) for v in values if v or kind == "keywords"]


def encodable(value: str) -> str:
    """The string itself.

    Raises:
        InvalidFilter: Lone surrogates, which no stored text can hold.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidFilter("A filter value is not valid Unicode text.", field="filter") from None
    return value


def whole_bounds(condition: Range) -> tuple[int | None, int | None] | None:
    """The least and the greatest whole number in 64 bits that a range holds for.

    Returns:
        ``None`` for an end without a bound; ``None`` altogether when no number fits.

    Raises:
        InvalidFilter: The field is no number, or a bound is no finite one.
    """
    bounds = (condition.gte, condition.gt, condition.lte, condition.lt)
    numbers = all(bound is None or fits(bound, "number") for bound in bounds)
    require(condition.field, kind_of(condition.field) == "number" and numbers, "Range")
    gte, gt, lte, lt = bounds
    least = [x for x in (None if gte is None else ceil(gte), None if gt is None else floor(gt) + 1) if x is not None]
    most = [x for x in (None if lte is None else floor(lte), None if lt is None else ceil(lt) - 1) if x is not None]
    low, high = max(least, default=-INT64), min(most, default=INT64 - 1)
    if low > high or low >= INT64 or high < -INT64:
        return None
    return (low if low > -INT64 else None), (high if high < INT64 - 1 else None)

"""PURE: single values of a task's input, from JSON to the types of the standard library."""

import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

Problem = tuple[tuple[str | int, ...], str]


class Mismatch(Exception):  # noqa: N818 - a finding, which the caller turns into an error
    """A value does not fit: `problems` are paths and rules. The path is the value's own place without an argument."""

    def __init__(self, rule: str = "", *, problems: Sequence[Problem] = ()) -> None:
        super().__init__()
        self.problems: Sequence[Problem] = problems or [((), rule)]


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    raise Mismatch("expected a whole number")


def _number(value: Any) -> float:
    if type(value) is float or type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise Mismatch("expected a number of a float's size") from None
    raise Mismatch("expected a number")


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    raise Mismatch("expected text")


def _boolean(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise Mismatch("expected true or false")


def _null(value: Any) -> None:
    if value is not None:
        raise Mismatch("expected null")


def _decimal(value: Any) -> decimal.Decimal:
    if type(value) in {str, int, float}:
        try:
            number = decimal.Decimal(str(value))
        except decimal.InvalidOperation:
            raise Mismatch("expected a decimal number") from None
        if number.is_finite():
            return number
    raise Mismatch("expected a decimal number")


def _from_text(parse: Callable[[str], Any], rule: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if type(value) is str:
            try:
                return parse(value)
            except (ValueError, TypeError):
                raise Mismatch(rule) from None
        raise Mismatch(rule)

    return convert


_DURATION: Final = re.compile(
    r"(?P<sign>-?)P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_DURATION_RULE: Final = "expected seconds, or a duration such as PT1H30M"


def _duration(value: Any) -> dt.timedelta:
    if type(value) in {int, float}:
        try:
            return dt.timedelta(seconds=value)
        except (OverflowError, ValueError):
            raise Mismatch(_DURATION_RULE) from None
    match = _DURATION.fullmatch(value) if type(value) is str else None
    if match is None or value.endswith(("P", "T")):
        raise Mismatch(_DURATION_RULE)
    parts = {name: float(part) for name, part in match.groupdict().items() if part and name != "sign"}
    try:
        span = dt.timedelta(**parts)
    except OverflowError:
        raise Mismatch(_DURATION_RULE) from None
    return -span if match["sign"] else span


SCALARS: Final[Mapping[Any, Callable[[Any], Any]]] = MappingProxyType(
    {
        int: _integer,
        float: _number,
        str: _text,
        bool: _boolean,
        None: _null,
        type(None): _null,
        decimal.Decimal: _decimal,
        bytes: _from_text(str.encode, "expected text"),
        uuid.UUID: _from_text(uuid.UUID, "expected a UUID"),
        dt.datetime: _from_text(dt.datetime.fromisoformat, "expected a date and time as in RFC 3339"),
        dt.date: _from_text(dt.date.fromisoformat, "expected a date such as 2026-11-22"),
        dt.time: _from_text(dt.time.fromisoformat, "expected a time such as 14:30:00"),
        dt.timedelta: _duration,
        pathlib.Path: _from_text(pathlib.Path, "expected a path"),
        pathlib.PurePath: _from_text(pathlib.PurePath, "expected a path"),
        pathlib.PurePosixPath: _from_text(pathlib.PurePosixPath, "expected a path"),
        ipaddress.IPv4Address: _from_text(ipaddress.IPv4Address, "expected an IPv4 address"),
        ipaddress.IPv6Address: _from_text(ipaddress.IPv6Address, "expected an IPv6 address"),
    }
)


def enum_converter(kind: type) -> Callable[[Any], Any] | None:
    """Return the converter for an Enum, by its members' values as JSON has them; None for another class."""
    if not issubclass(kind, enum.Enum):
        return None
    members = {
        (type(member.value), member.value): member for member in kind if isinstance(member.value, str | int | float)
    }
    words = ", ".join(str(member.value) for member in kind)

    def convert(value: Any) -> Any:
        try:
            found = members.get((type(value), value))
        except TypeError:
            found = None
        if found is None:
            raise Mismatch(f"expected one of {words}")
        return found

    return convert

"""PURE: what a handler returns as plain JSON values, in the form that pydantic's `to_jsonable_python` gives them.

The JSON encoder asks only about values that it does not know, so an output of plain values costs nothing here. Models
of pydantic are written by pydantic, which is then in the process already.
"""

import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import pathlib
import types
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

#: Deeper outputs are refused, as the JSON encoder itself refuses them.
_MOST_LEVELS: Final = 200


def plain(value: Any) -> Any:
    """Return a value that JSON does not know as one that it knows; its parts may need the same. Raises `TypeError`."""
    kind = type(value)
    convert = _BY_TYPE.get(kind)
    if convert is not None:
        return convert(value)
    if hasattr(kind, "__pydantic_serializer__"):
        from pydantic_core import to_jsonable_python  # noqa: PLC0415 - loaded: the value is of pydantic

        return to_jsonable_python(value)
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for base, convert in _BY_BASE:
        if isinstance(value, base):
            return convert(value)
    raise TypeError(
        f"{kind.__name__} is not a JSON type: return dicts, lists, text, numbers, a dataclass or a pydantic model"
    )


def plain_keys(value: Any, level: int = 0) -> Any:
    """Return the whole value with keys that JSON takes; raises `TypeError` and `ValueError`.

    Only needed for an output that has other keys than text: the encoder does not ask about keys.
    """
    if level > _MOST_LEVELS:
        raise ValueError("the output is nested too deeply, or contains itself")
    if isinstance(value, dict):
        return {_key(key): plain_keys(item, level + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_keys(item, level + 1) for item in value]
    if isinstance(value, str | int | float) or value is None:
        return value
    return plain_keys(plain(value), level + 1)


def _key(key: Any) -> Any:
    while not (isinstance(key, str | int | float) or key is None):
        key = plain(key)
        if isinstance(key, list | dict):
            raise TypeError(f"a key of the output is a {type(key).__name__}, which JSON cannot have")
    return key


def _moment(value: dt.datetime | dt.time) -> str:
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def _duration(value: dt.timedelta) -> str:
    sign, span = ("-", -value) if value < dt.timedelta() else ("", value)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    days = f"{span.days}D" if span.days else ""
    fraction = f".{span.microseconds:06d}".rstrip("0") if span.microseconds else ""
    parts = [(hours, f"{hours}H"), (minutes, f"{minutes}M"), (seconds or fraction, f"{seconds}{fraction}S")]
    time = "".join(text for number, text in parts if number)
    return f"{sign}P{days}{'T' + time if time else ''}" if days or time else f"{sign}PT0S"


def _text(value: bytes | bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise TypeError(
            f"{type(value).__name__} is not UTF-8: encode it, for instance with base64.b64encode(...).decode()"
        ) from None


_BY_TYPE: Final[Mapping[type, Callable[[Any], Any]]] = types.MappingProxyType(
    {
        dt.datetime: _moment,
        dt.date: dt.date.isoformat,
        dt.time: _moment,
        dt.timedelta: _duration,
        decimal.Decimal: str,
        uuid.UUID: str,
        set: list,
        frozenset: list,
        deque: list,
        bytes: _text,
        bytearray: _text,
        ipaddress.IPv4Address: str,
        ipaddress.IPv6Address: str,
        ipaddress.IPv4Network: str,
        ipaddress.IPv6Network: str,
        ipaddress.IPv4Interface: str,
        ipaddress.IPv6Interface: str,
    }
)
_BY_BASE: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (enum.Enum, lambda value: value.value),
    (pathlib.PurePath, str),
    (types.GeneratorType, list),
    (Mapping, dict),
    *_BY_TYPE.items(),
)

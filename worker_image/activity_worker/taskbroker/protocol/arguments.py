"""PURE: a task's arguments as the JSON text that goes to a handler's process, and back.

That process has the user's libraries, and msgpack may not be among them: standard library only. JSON lacks a few
values of msgpack. They travel as an object with one key: `$bytes` (Base64), `$float` (`nan`, `inf`, `-inf`), and `$map`
(a list of pairs) for a map with other keys than texts, or with texts that begin with a dollar.
"""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

_BYTES: Final = "$bytes"
_FLOAT: Final = "$float"
_MAP: Final = "$map"
_WRAPPED: Final = {"args", "kwargs"}
#: Types of values that JSON writes unchanged. A tuple is made once; `str | bool | int` would be made at each check.
_ATOMS: Final = (str, bool, int)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_json(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the text: the keyword arguments, or with positional ones an object of `args` and `kwargs`.

    Raises `ValueError` for a value that msgpack does not have either.
    """
    if args or set(kwargs) == _WRAPPED:
        return _encode({"args": [_plain(value) for value in args], "kwargs": _named(kwargs)})
    return _encode(_named(kwargs))


def from_json(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments in a text of `to_json`. Raises `ValueError` for another text."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("the arguments are not a JSON object")  # noqa: TRY004 - about a text
    if set(found) == _WRAPPED:
        return [_value(one) for one in found["args"]], {name: _value(one) for name, one in found["kwargs"].items()}
    return [], {name: _value(one) for name, one in found.items()}


def _named(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in kwargs.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, _ATOMS):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    # Not their subclasses: msgpack's extension types are tuples.
    if type(value) in {list, tuple}:
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return _named(value)
        return {_MAP: [[_plain(key), _plain(one)] for key, one in value.items()]}
    raise ValueError(f"a value of type {type(value).__name__} is no argument")


def _value(found: Any) -> Any:
    if isinstance(found, list):
        return [_value(one) for one in found]
    if not isinstance(found, dict):
        return found
    if _BYTES in found:
        return base64.b64decode(found[_BYTES])
    if _FLOAT in found:
        return float(found[_FLOAT])
    if _MAP in found:
        return {_key(key): _value(one) for key, one in found[_MAP]}
    return {name: _value(one) for name, one in found.items()}


def _key(found: Any) -> Any:
    value = _value(found)
    # msgpack takes a list as a key, Python takes a tuple.
    return tuple(value) if isinstance(value, list) else value

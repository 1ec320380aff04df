"""Properties deep inside JSON data: read, written and merged as input and output maps say.

Paths are lodash's: `a.b`, `a.list[0].c`, `a["key.with.dots"]`; a key that is literally there goes before a path.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

Keys = tuple[str | int, ...]

_PART: Final = re.compile(r"""\[(\d+)\]|\[(["'])(.*?)\2\]|([^.\[\]]+)""")
_WHOLE: Final = re.compile(r"""(?:\[\d+\]|\[(["']).*?\1\]|\.?[^.\[\]]+)+""")
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
#: Longest list that a path may make, so that `a[999999999]` is an error and not an outage.
MAX_INDEX: Final = 10_000


class Missing:
    """What `get` returns when there is nothing at a path: None is a value."""


MISSING: Final = Missing()


def parse(path: str) -> Keys:
    """Return the keys of a path. Raises ValueError when it is none."""
    if not _WHOLE.fullmatch(path):
        raise ValueError(f"{path!r} is not a property path such as 'a.b' or 'list[0].c'")
    keys: Keys = tuple(
        int(found[1]) if found[1] is not None else str(found[3] if found[2] else found[4])
        for found in _PART.finditer(path)
    )
    if any(isinstance(key, int) and key > MAX_INDEX for key in keys):
        raise ValueError(f"{path!r} has an index above {MAX_INDEX}")
    return keys


def get(data: Any, path: str) -> Any:
    """Return the value at a path, MISSING when there is none."""
    if isinstance(data, Mapping) and path in data:
        return data[path]
    for key in parse(path):
        data = _child(data, key)
        if data is MISSING:
            return MISSING
    return data


def put(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the data with a value at a path; maps and lists on the way are made, or replaced where neither stands."""
    if path in data:
        return {**data, path: value}
    changed: dict[str, Any] = _put(data, parse(path), value)
    return changed


def merge(data: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return both: maps are merged to any depth, everything else of `more` replaces what was there."""
    merged = dict(data)
    for key, value in more.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def placed(data: dict[str, Any], source: Any, pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the data with, for each pair, what is at the first path in the source at the second; maps are merged.

    What lies beside such a place stays, in lists too.
    """
    for there, here in pairs.items():
        value, old = get(source, there), get(data, here)
        if value is not MISSING:
            both = isinstance(old, dict) and isinstance(value, Mapping)
            data = put(data, here, merge(old, value) if both else value)
    return data


def mapped(source: Any, pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return new data: for each pair, what is at the first path in the source, at the second; missing ones left out."""
    result: dict[str, Any] = {}
    for there, here in pairs.items():
        value = get(source, there)
        if value is not MISSING:
            result = put(result, here, value)
    return result


def _child(data: Any, key: str | int) -> Any:
    if isinstance(data, list):
        at = _index(key)
        return data[at] if at is not None and at < len(data) else MISSING
    return data.get(str(key), MISSING) if isinstance(data, Mapping) else MISSING


def _index(key: str | int) -> int | None:
    """Return a key as the index of a list, None when it is none: `a.7` is one, `a.20261121` and `a.07` are names."""
    if isinstance(key, int):
        return key
    return int(key) if _INDEX.fullmatch(key) and int(key) <= MAX_INDEX else None


def _put(data: Any, keys: Keys, value: Any) -> Any:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    at = _index(key)
    if at is not None and not isinstance(data, dict):
        # As lodash has it, what is missing before an index is a list.
        return _put_item(data if isinstance(data, list) else [], at, rest, value)
    old = data if isinstance(data, dict) else {}
    return {**old, str(key): _put(old.get(str(key)), rest, value)}


def _put_item(items: list[Any], at: int, rest: Keys, value: Any) -> list[Any]:
    padded = [*items, *[None] * (at + 1 - len(items))]
    padded[at] = _put(padded[at], rest, value)
    return padded

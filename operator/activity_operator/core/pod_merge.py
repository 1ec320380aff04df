"""Merging a user's pod spec with ours: theirs adds, ours decides where both speak."""

from collections.abc import Mapping
from typing import Any

#: Lists whose entries are told apart by a field, as the API server merges them; in every other list ours come first.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "name",
    "volumeMounts": "mountPath",
}


def merged(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return ours with theirs added: mappings merge deeply, named list entries by name, and on a clash ours wins."""
    result: dict[str, Any] = dict(theirs)
    for name, value in ours.items():
        other = theirs.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            result[name] = merged(other, value)
        elif isinstance(value, list) and isinstance(other, list) and name in _KEYS:
            result[name] = _merged_list(other, value, _KEYS[name])
        else:
            result[name] = value
    return result


def _merged_list(theirs: list[Any], ours: list[Any], key: str) -> list[Any]:
    named = {name: item for item in theirs if (name := _name(item, key)) is not None}
    our_names = {_name(item, key) for item in ours}
    together = [merged(named[item[key]], item) if item.get(key) in named else item for item in ours]
    return together + [item for item in theirs if _name(item, key) is None or item[key] not in our_names]


def _name(item: Any, key: str) -> str | None:
    """Return by what an entry is told from others; None when by nothing: the API server judges what it is."""
    name = item.get(key) if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else None

"""Finds foreign edits of applied objects: compares the rendered manifest with the live object.

Only an object with the fingerprint of the same rendering is compared. An object that another operator version rendered
differs for good reason and stays as it is, so an upgrade of the operator replaces no worker.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from activity_operator.cluster.resources import Raw

APPLIED = "activitypools.dev/applied"

#: Fields that identify the entries of a list, as in the API server's merge.
_LIST_KEYS = ("name", "mountPath", "containerPort", "key", "uid", "topologyKey", "ip")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return a hash of the manifest without its replicas, which change with each scaling."""
    spec = {name: value for name, value in manifest.get("spec", {}).items() if name != "replicas"}
    text = json.dumps({**manifest, "spec": spec}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stamped(manifest: Mapping[str, Any]) -> Raw:
    """Return the manifest with its fingerprint in the annotations, as it is sent to the API server."""
    meta = dict(manifest["metadata"])
    meta["annotations"] = {**(meta.get("annotations") or {}), APPLIED: fingerprint(manifest)}
    return {**manifest, "metadata": meta}


def is_outdated(manifest: Mapping[str, Any], live: Raw) -> bool:
    """Return whether the live object was applied from a different rendering."""
    return (live["metadata"].get("annotations") or {}).get(APPLIED) != fingerprint(manifest)


def drifted_fields(manifest: Mapping[str, Any], live: Raw) -> tuple[str, ...]:
    """Return the paths of the manifest's fields that differ in the live object; () if another rendering was applied."""
    return () if is_outdated(manifest, live) else edited_fields(manifest, live)


def edited_fields(manifest: Mapping[str, Any], live: Raw) -> tuple[str, ...]:
    """Return the paths of the manifest's fields that differ in a live object that was applied from it."""
    spec = {name: value for name, value in manifest.get("spec", {}).items() if name != "replicas"}
    meta = {name: manifest["metadata"].get(name) for name in ("labels", "annotations")}
    return tuple(_differences({"metadata": meta, "spec": spec}, live, ""))


def _differences(ours: Any, live: Any, path: str) -> Iterator[str]:
    if isinstance(ours, Mapping) and isinstance(live, Mapping):
        for name, value in ours.items():
            yield from _differences(value, live.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(ours, list) and isinstance(live, list):
        yield from _list_differences(ours, live, path)
    elif not _same(ours, live):
        yield path


def _list_differences(ours: list[Any], live: list[Any], path: str) -> Iterator[str]:
    key = _key_of(ours)
    if key is None:
        if len(ours) != len(live):
            yield path
            return
        for index, (one, other) in enumerate(zip(ours, live, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
        return
    there = {item.get(key): item for item in live if isinstance(item, Mapping)}
    for item in ours:
        yield from _differences(item, there.get(item[key]), f"{path}[{item[key]}]")


def _key_of(items: list[Any]) -> str | None:
    for key in _LIST_KEYS:
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            # A port may occur twice, for TCP and for UDP.
            return key if len({str(item[key]) for item in items}) == len(items) else None
    return None


def _same(ours: Any, live: Any) -> bool:
    if ours == live:
        return True
    if live is None:
        # The API server may drop empty values, so a missing value equals an empty one.
        return ours in (None, "", 0, False) or ours in ([], {})
    one, other = _quantity(ours), _quantity(live)
    return one is not None and one == other


def _quantity(value: Any) -> Decimal | None:
    """Return a resource quantity as a number, or None: the API server writes "1000m" as "1"."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    text = str(value)
    for suffix, factor in _BINARY.items():
        if text.endswith(suffix):
            return _number(text[: -len(suffix)], Decimal(factor))
    suffix = text[-1:] if text[-1:] in _DECIMAL else ""
    digits = text[: len(text) - len(suffix)]
    return _number(digits, Decimal(10) ** _DECIMAL[suffix])


def _number(digits: str, factor: Decimal) -> Decimal | None:
    try:
        number = Decimal(digits) * factor
    except InvalidOperation:
        return None
    return number if number.is_finite() else None

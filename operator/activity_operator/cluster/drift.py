"""Whether somebody changed what we applied: the rendered manifest against the live object, as the API server keeps it.

Only an object that carries the fingerprint of this very rendering is compared. One that another operator version
rendered differs for good reason and is left alone, so that an upgrade rolls nobody.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from activity_operator.cluster.resources import Raw

APPLIED = "activitypools.dev/applied"

#: Fields by which entries of a list are told apart, as the API server merges them.
_LIST_KEYS = ("name", "mountPath", "containerPort", "key", "uid", "topologyKey", "ip")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return a hash of the manifest without its replicas, which change with every scaling."""
    spec = {name: value for name, value in manifest.get("spec", {}).items() if name != "replicas"}
    text = json.dumps({**manifest, "spec": spec}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def stamped(manifest: Mapping[str, Any]) -> Raw:
    """Return the manifest with its fingerprint in the annotations: what is sent to the API server."""
    meta = dict(manifest["metadata"])
    meta["annotations"] = {**(meta.get("annotations") or {}), APPLIED: fingerprint(manifest)}
    return {**manifest, "metadata": meta}


def is_outdated(manifest: Mapping[str, Any], live: Raw) -> bool:
    """Return whether another rendering than this one was applied last."""
    return (live["metadata"].get("annotations") or {}).get(APPLIED) != fingerprint(manifest)


def drifted_fields(manifest: Mapping[str, Any], live: Raw) -> tuple[str, ...]:
    """Return the paths of our fields that the live object holds otherwise; none when it is not this rendering's."""
    return () if is_outdated(manifest, live) else edited_fields(manifest, live)


def edited_fields(manifest: Mapping[str, Any], live: Raw) -> tuple[str, ...]:
    """Return the paths of our fields that the live object, which is this rendering's, holds otherwise."""
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
            # A port may be there twice, for TCP and for UDP.
            return key if len({str(item[key]) for item in items}) == len(items) else None
    return None


def _same(ours: Any, live: Any) -> bool:
    if ours == live:
        return True
    if live is None:
        # What is empty need not be kept by the API server: absent means the same.
        return ours in (None, "", 0, False) or ours in ([], {})
    one, other = _quantity(ours), _quantity(live)
    return one is not None and one == other


def _quantity(value: Any) -> Decimal | None:
    """Return a resource quantity as a number: the API server writes "1000m" as "1"."""
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

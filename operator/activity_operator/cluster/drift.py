"""Finds foreign edits of a Deployment, and whether its pod template is another rendering of the same spec.

Each Deployment carries a hash of the rendering from which it was applied (a label), and that rendering itself (an
annotation). An operator of another version, or with other settings, compares the Deployment with what was applied,
restores edits to that, and leaves the template as it is while the Deployment has pods (ADR 26).
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from activity_operator.cluster.resources import Raw
from activity_operator.core.manifests import GENERATION

#: Label of a Deployment: the hash of the rendering from which it was applied.
RENDERING = "activitypools.dev/rendering"
#: Annotation of a Deployment: the spec that was applied, without replicas, as JSON (zlib, Base64).
APPLIED_SPEC = "activitypools.dev/applied-spec"
#: Most characters of that annotation; a larger spec is not recorded. The API server allows 262,144 for all annotations.
LARGEST_RECORD = 65_536
#: Most bytes of the JSON in it: a few characters that a user writes there must not fill the operator's memory.
LARGEST_SPEC_BYTES = 2**21

#: Fields that identify the entries of a list, as in the API server's merge.
_LIST_KEYS = ("name", "mountPath", "containerPort", "key", "uid", "topologyKey", "ip")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return a hash of the manifest without its replicas, which change with each scaling."""
    return _digest({**manifest, "spec": _spec(manifest)})


def rendering(manifest: Mapping[str, Any]) -> str:
    """Return the hash of the manifest's spec without its replicas: two equal ones make the same pods."""
    return _digest(_spec(manifest))[:16]


def stamped(manifest: Mapping[str, Any]) -> Raw:
    """Return the manifest with its rendering in labels and annotations, as it is sent to the API server."""
    return _with_record(manifest, rendering(manifest), _packed(_spec(manifest)))


def stamped_as_applied(manifest: Mapping[str, Any], live: Raw) -> Raw:
    """Return the manifest with the spec from which the live object was applied; with an empty spec if that is unknown.

    It is unknown for an object of an operator that did not record it yet.
    """
    if not is_outdated(manifest, live):
        return stamped(manifest)
    meta, spec = live["metadata"], _recorded(live)
    if spec is None:
        return {**manifest, "spec": {}}
    return _with_record({**manifest, "spec": spec}, meta["labels"][RENDERING], meta["annotations"][APPLIED_SPEC])


def is_outdated(manifest: Mapping[str, Any], live: Raw) -> bool:
    """Return whether the live object was applied from a different rendering; an edit of its label does not count."""
    name = rendering(manifest)
    return name != (live["metadata"].get("labels") or {}).get(RENDERING) and name != _digest(_unpacked(live))[:16]


def drifted_fields(manifest: Mapping[str, Any], live: Raw) -> tuple[str, ...]:
    """Return the paths of the applied fields that differ in the live object; () if it is unknown what was applied."""
    outdated = is_outdated(manifest, live)
    spec = _recorded(live) if outdated else _spec(manifest)
    if spec is None:
        return ()
    meta = {name: dict(manifest["metadata"].get(name) or {}) for name in ("labels", "annotations")}
    if not outdated:
        meta["labels"][RENDERING] = rendering(manifest)
    # Another generation is no edit: each change of the pool's spec has one.
    meta["annotations"].pop(GENERATION, None)
    return tuple(_differences({"metadata": meta, "spec": spec}, live, ""))


def _digest(value: Any) -> str:
    return hashlib.sha256(_json(value)).hexdigest()[:32]


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _spec(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in manifest.get("spec", {}).items() if name != "replicas"}


def _with_record(manifest: Mapping[str, Any], name: str, record: str) -> Raw:
    meta = dict(manifest["metadata"])
    meta["labels"] = {**(meta.get("labels") or {}), RENDERING: name}
    if record:
        meta["annotations"] = {**(meta.get("annotations") or {}), APPLIED_SPEC: record}
    return {**manifest, "metadata": meta}


def _packed(spec: Mapping[str, Any]) -> str:
    """Return the spec for the annotation, "" for a spec that is too large."""
    text = base64.b64encode(zlib.compress(_json(spec))).decode()
    return text if len(text) <= LARGEST_RECORD else ""


def _recorded(live: Raw) -> dict[str, Any] | None:
    """Return the spec that was applied, None without a record, or with one that the label's hash does not confirm."""
    spec = _unpacked(live)
    known = spec is not None and _digest(spec)[:16] == (live["metadata"].get("labels") or {}).get(RENDERING)
    return spec if known else None


def _unpacked(live: Raw) -> dict[str, Any] | None:
    record = (live["metadata"].get("annotations") or {}).get(APPLIED_SPEC, "")
    try:
        packed = base64.b64decode(record, validate=True)
        spec = json.loads(zlib.decompressobj().decompress(packed, LARGEST_SPEC_BYTES))
    except (ValueError, zlib.error, RecursionError):
        return None
    return spec if isinstance(spec, dict) else None


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

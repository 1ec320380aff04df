"""Checks of a pod template's shape, for the parts that the operator reads or merges.

The API server checks the rest when it gets the Deployment. The merge with the operator's own fields needs lists and
names of the right type: it would silently drop a list that is a text, and cannot compare a name that is no text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

#: (path below `spec.podTemplate`, value, fix).
Problem = tuple[str, Any, str]

#: Most levels of a template. A pod spec has about fifteen at most; a much deeper one exhausts Python's recursion.
MAX_DEPTH = 40
#: Most characters of a key: an annotation's prefix (253), a slash and its name (63). YAML fails at 1,024.
MAX_KEY_LENGTH = 317

#: The fields of a pod that hold containers.
CONTAINER_LISTS = ("initContainers", "containers")
#: The merge key of each list, "" for a list without one.
_KEYS = {
    "initContainers": "name",
    "containers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "",
}


def objects(parent: Any, field: str) -> list[Mapping[str, Any]]:
    """Return the objects in the list `parent[field]`, without entries of another type."""
    items = parent.get(field) if isinstance(parent, Mapping) else None
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []


def part(parent: Any, field: str) -> Mapping[str, Any]:
    """Return the object `parent[field]`, an empty one if there is none."""
    found = parent.get(field) if isinstance(parent, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every container with its path."""
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(objects(spec, kind)):
            yield f"spec.{kind}[{index}]", container


def shape_problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the parts of the template that have the wrong type, as (path, value, fix)."""
    for field in ("metadata", "spec"):
        if not isinstance(template.get(field) or {}, Mapping):
            yield field, template[field], "must be an object"
            return
    trouble = _unfit(template)
    if trouble:
        yield "spec", None, trouble
        return
    spec = part(template, "spec")
    for kind in (*CONTAINER_LISTS, "volumes"):
        yield from _list_problems(f"spec.{kind}", spec.get(kind), _KEYS[kind])
    yield from _object_problems("spec.securityContext", spec.get("securityContext"), ("seccompProfile",))
    for path, container in containers(spec):
        for kind in ("env", "ports", "volumeMounts"):
            yield from _list_problems(f"{path}.{kind}", container.get(kind), _KEYS[kind])
        inner = ("capabilities", "seccompProfile")
        yield from _object_problems(f"{path}.securityContext", container.get("securityContext"), inner)


def _unfit(template: Mapping[str, Any]) -> str:
    """Return why the template is too deep or has too long a key, "" if it has neither. It uses no recursion."""
    level: list[Any] = [template]
    for _ in range(MAX_DEPTH):
        keys = (key for parent in level if isinstance(parent, Mapping) for key in parent)
        if (long := next((key for key in keys if len(key) > MAX_KEY_LENGTH), None)) is not None:
            return f"has a field named {long[:40]}... of {len(long)} characters; remove it"
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return ""
    return f"is nested more than {MAX_DEPTH} levels deep, as no pod spec is; remove what is not one"


def _children(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else []


def _list_problems(path: str, found: Any, key: str) -> Iterator[Problem]:
    if found is None:
        return
    if not isinstance(found, list):
        yield path, found, "must be a list of objects"
        return
    seen: set[str] = set()
    for index, item in enumerate(found):
        if not isinstance(item, Mapping):
            yield f"{path}[{index}]", item, "must be an object"
        elif key:
            name = item.get(key)
            if not isinstance(name, str) or not name:
                yield f"{path}[{index}].{key}", name, "is required, and must be a text"
            elif name in seen:
                yield f"{path}[{index}].{key}", name, "is there twice; remove one of them"
            else:
                seen.add(name)


def _object_problems(path: str, found: Any, inner: tuple[str, ...]) -> Iterator[Problem]:
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield path, found, "must be an object"
        return
    for name in inner:
        if not isinstance(found.get(name) or {}, Mapping):
            yield f"{path}.{name}", found[name], "must be an object"

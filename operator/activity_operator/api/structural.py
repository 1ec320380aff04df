"""The structural schema of a pydantic model, as a CRD needs it: without references, unions and titles."""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_REFERENCE = "#/$defs/"
#: Marks, during the conversion only, a field that may be unset: a default would set it.
_UNSET = "unset"


def structural_schema(model: type[BaseModel], *, defaults: bool) -> Schema:
    """Return the model's schema in the form that the API server accepts.

    `defaults`: whether the API server fills in the models' defaults. A group of fields with any default gets the
    default `{}`, because the API server otherwise skips the defaults inside; a group that may be unset does not. The
    default None means unset. Raises ValueError for a union other than "or None": a structural schema has none.
    """
    raw = model.model_json_schema(by_alias=True)
    schema = _convert(raw, raw.get("$defs", {}))
    return _with_group_defaults(schema) if defaults else _without_defaults(schema)


def _convert(node: Schema, definitions: Schema) -> Schema:
    """Resolve references and "or None", drop keys that are not structural, and convert the children."""
    node = _flatten(node, definitions)
    result = {key: value for key, value in node.items() if key not in ("$defs", "title", "properties", "items")}
    if result.get("default", ...) is None:
        del result["default"]
        result[_UNSET] = True
    if result.get("additionalProperties") is True:
        del result["additionalProperties"]  # beside properties it is refused; free-form parts say so themselves
    if "properties" in node:
        result["properties"] = {name: _convert(child, definitions) for name, child in node["properties"].items()}
    if "items" in node:
        result["items"] = _convert(node["items"], definitions)
    return result


def _flatten(node: Schema, definitions: Schema) -> Schema:
    """Merge the referenced definition into the node. The node's own description wins over that of the class."""
    if "$ref" in node:
        referred = definitions[node["$ref"].removeprefix(_REFERENCE)]
        return _flatten({**referred, **_without(node, "$ref")}, definitions)
    if "anyOf" in node:
        choices = [choice for choice in node["anyOf"] if choice != {"type": "null"}]
        if len(choices) != 1:
            raise ValueError(f"a CRD's schema has no union of {len(choices)} types: {node}")
        return _flatten({**choices[0], **_without(node, "anyOf")}, definitions)
    return node


def _without(node: Schema, key: str) -> Schema:
    return {name: value for name, value in node.items() if name != key}


def _with_group_defaults(node: Schema) -> Schema:
    node = _without(node, _UNSET)
    if "items" in node:
        node = {**node, "items": _with_group_defaults(node["items"])}
    if "properties" not in node:
        return node
    unset = {name for name, child in node["properties"].items() if _UNSET in child}
    properties = {name: _with_group_defaults(child) for name, child in node["properties"].items()}
    for name, child in properties.items():
        if name not in unset and any("default" in inner for inner in child.get("properties", {}).values()):
            properties[name] = {**child, "default": {}}
    return {**node, "properties": properties}


def _without_defaults(node: Schema) -> Schema:
    result = _without(_without(node, "default"), _UNSET)
    if "properties" in node:
        result["properties"] = {name: _without_defaults(child) for name, child in node["properties"].items()}
    if "items" in node:
        result["items"] = _without_defaults(node["items"])
    return result

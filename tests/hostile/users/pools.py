"""PURE: a generator of ActivityPools. The CRD's own schema gives the fields and their values.

A pool starts as an honest one of some source; then a few fields are changed: to what the schema allows, to its limits
and beyond them, to hostile texts, to values of another type. A field that a later version adds is included
automatically.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from tests.hostile.users.templates import TEMPLATES
from tests.hostile.users.texts import HOSTILE, INJECTIONS

CRD_FILE = Path(__file__).parents[3] / "crds" / "activitypools.activitypools.dev.yaml"
ARN = "arn:aws:states:us-east-1:123456789012:activity:"
IMAGE = "registry.invalid/handler:1"
SECRET = {"name": "server", "key": "url"}
#: With more workers, the same template would only make more pods.
MOST_WORKERS = 2

Spec = dict[str, Any]
Path_ = tuple[str, ...]

SOURCES: tuple[Spec, ...] = (
    {"activityArn": ARN + "one"},
    {"source": {"stepFunctions": {"activityArn": ARN + "two"}}},
    {"source": {"redis": {"address": "127.0.0.1:1", "flow": "images", "queue": "resize"}}},
    {"source": {"redis": {"urlSecretRef": SECRET, "flow": "images", "queue": "resize"}}},
    {"source": {"taskStore": {"url": "postgresql://tasks@127.0.0.1:1/tasks"}}},
    {"source": {"taskStore": {"urlSecretRef": SECRET, "tasks": ["a", "b"]}}},
)


@dataclass(frozen=True)
class SchemaField:
    """A field that holds a value, and its schema."""

    path: Path_
    schema: dict[str, Any]


def spec_schema() -> dict[str, Any]:
    """Return the schema of `spec`, from the CRD of this tree."""
    crd = yaml.safe_load(CRD_FILE.read_text(encoding="utf-8"))
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def leaves(schema: dict[str, Any], path: Path_ = ()) -> Iterator[SchemaField]:
    """Yield every field of a schema that is no object; the pod template has a generator of its own."""
    for name, child in schema.get("properties", {}).items():
        if (*path, name) == ("podTemplate",):
            continue
        if child.get("properties"):
            yield from leaves(child, (*path, name))
        else:
            yield SchemaField((*path, name), child)


LEAVES = tuple(leaves(spec_schema()))


def honest(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that the schema allows, mostly at its limits."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
            return st.sampled_from((low, low + 1, high)) | st.integers(low, high)
        case "number":
            return st.floats(schema.get("minimum", 0), schema.get("maximum", 1), allow_nan=False)
        case "array":
            return st.lists(honest(schema["items"]), max_size=3)
        case "string":
            shortest, longest = schema.get("minLength", 0), schema.get("maxLength", 63)
            plain = st.text("abcxyz019-", min_size=shortest, max_size=min(longest, 20))
            return plain | st.just("a" * longest)
    return st.none()


def hostile(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that the schema may or may not allow."""
    match schema.get("type"):
        case "boolean":
            return st.sampled_from(("true", 1, None, []))
        case "integer" | "number":
            low, high = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
            odd = (low - 1, high + 1, -1, 0.5, 1e300, 2**31, 2**63, "1", None, True)
            return st.sampled_from(odd)
        case "array":
            return st.lists(hostile(schema["items"]), min_size=1, max_size=3) | st.sampled_from(("x", {}, None))
        case "string":
            around = st.builds(lambda text: f"a{text}b", HOSTILE)
            return HOSTILE | around | st.sampled_from((None, 5, {}, ["a"]))
    return HOSTILE


#: Values of the right form with hostile content, by the last part of the field's path.
_WORDS: dict[str, tuple[Any, ...]] = {
    "activityArn": (
        *(ARN + text for text in INJECTIONS),
        ARN + "a" * 80,
        ARN + "a" * 81,
        ARN + "\U0001f600",
        ARN.replace("us-east-1", "x.evil.invalid#"),
        ARN.replace("123456789012", "999999999999") + "another-teams",
    ),
    "address": ("redis.invalid:6379", "127.0.0.1:99999", "[::1]:1", "[:::::]:1", "a..b:1", "0:0"),
    "url": ("postgresql://u@127.0.0.1:99999/d", "postgresql://127.0.0.1:1/d?sslmode=bad", "postgresql://u@[::1]:1/d"),
    "endpointUrl": ("http://127.0.0.1:1", "http://a_b..c:99999", "http://[::1]:1/$(id)", "http://\uff41..b/"),
    "cloudWatchEndpointUrl": ("http://127.0.0.1:1", "http://a_b", "https://127.0.0.1:1/?x=\u202e"),
    "serverUrl": ("http://127.0.0.1:1", "http://a..b", "http://127.0.0.1:99999", "http://\uff41..b"),
    "roleArn": ("arn:aws:iam::123456789012:role/admin", "arn:aws:iam::123456789012:role/\x1b[31m"),
    "region": ("cn-north-1", "us-east-1.evil.invalid", "us-east-1\n"),
    "serviceAccountName": ("default", "activity-operator", "a..b", "-a", "A"),
    "handlerImage": (IMAGE, "a@sha256:" + "0" * 64, "-", "a b", "[::1]:5000/a:1", "\x1b[31ma"),
    "name": ("server", "..", "a/b", "../../system-users/secrets/x"),
}


def _value(leaf: SchemaField) -> st.SearchStrategy[Any]:
    words = _WORDS.get(leaf.path[-1], ())
    found = honest(leaf.schema) | hostile(leaf.schema)
    return st.sampled_from(words) | found if words else found


def put(spec: Spec, path: Path_, value: Any) -> None:
    """Set a field; missing parent objects are created."""
    for name in path[:-1]:
        spec = spec.setdefault(name, {})
    spec[path[-1]] = value


def fits(leaf: SchemaField, spec: Spec) -> bool:
    """Whether the field belongs to the pool's source.

    With a field of another source, the answer would only name the two sources.
    """
    if leaf.path[0] == "source":
        return "source" in spec and leaf.path[1] in spec["source"]
    if leaf.path == ("activityArn",):
        return "activityArn" in spec
    return leaf.path[0] != "aws" or "activityArn" in spec


@st.composite
def specs(draw: st.DrawFn, most: int = 3) -> Spec:
    """Return a spec with at most `most` fields changed."""
    spec = copy.deepcopy(draw(st.sampled_from(SOURCES))) | {"handlerImage": IMAGE, "maxWorkers": 2}
    fitting = [leaf for leaf in LEAVES if fits(leaf, spec)]
    for leaf in draw(st.lists(st.sampled_from(fitting), max_size=most, unique_by=lambda leaf: leaf.path)):
        put(spec, leaf.path, draw(_value(leaf)))
    if draw(st.booleans()):
        spec["podTemplate"] = draw(TEMPLATES)
    return bounded(spec)


def bounded(spec: Spec) -> Spec:
    """Return the spec, paused if it would make more pods than the test needs."""
    sizes = [spec.get(name) for name in ("minWorkers", "replicas")]
    if any(isinstance(size, int) and size > MOST_WORKERS for size in sizes):
        spec["paused"] = True
    return spec

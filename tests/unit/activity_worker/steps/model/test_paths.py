"""Property paths with lodash's rules, and merging."""

from typing import Any

import pytest

from activity_worker.config.spans import parse_seconds
from activity_worker.steps.model import paths
from activity_worker.steps.model.paths import MISSING, get, mapped, merge, parse, put

DATA = {"a": {"b": [{"c": 1}, None]}, "x.y": 2, "n": None, "s": "text"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b[0].c", 1),
        ("a.b.0.c", 1),
        ('a["b"][1]', None),
        ("a.b.00", MISSING),
        ("x.y", 2),
        ("n", None),
        ("n.deeper", MISSING),
        ("a.b[2]", MISSING),
        ("s.upper", MISSING),
        ("s[0]", MISSING),
        ("gone", MISSING),
    ],
)
def test_values_are_found_by_path(path: str, value: Any) -> None:
    assert get(DATA, path) == value


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("a", {"a": 1}),
        ("a.b", {"a": {"b": 1}}),
        ("a[1].b", {"a": [None, {"b": 1}]}),
        ('a["b.c"]', {"a": {"b.c": 1}}),
        ("keep.new", {"keep": {"old": 0, "new": 1}}),
        ("a.1", {"a": [None, 1]}),
        ("a.01", {"a": {"01": 1}}),
        ("keep.0", {"keep": {"old": 0, "0": 1}}),
    ],
)
def test_put_creates_missing_containers_on_the_path(path: str, result: dict[str, Any]) -> None:
    data = {"keep": {"old": 0}}

    assert put(data, path, 1) == {**data, **result}
    assert data == {"keep": {"old": 0}}


@pytest.mark.parametrize("path", ["", "a..b", ".", "a[", "a[x]", "a[99999]", "a b[0"])
def test_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"a path|property path|index above"):
        parse(path)


def test_maps_are_merged_deeply_and_other_values_are_replaced() -> None:
    old = {"a": {"b": {"c": 1}, "list": [1, 2]}, "x": 1}

    assert merge(old, {"a": {"b": {"d": 2}, "list": [3]}, "x": {"y": 1}}) == {
        "a": {"b": {"c": 1, "d": 2}, "list": [3]}, "x": {"y": 1},
    }  # fmt: skip
    assert old["a"] == {"b": {"c": 1}, "list": [1, 2]}


def test_map_of_paths_skips_missing_values() -> None:
    assert mapped(DATA, {"a.b[0]": "first", "gone": "never", "n": "null"}) == {"first": {"c": 1}, "null": None}


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("1h30m", 5400), ("2d", 172_800), (0.5, 0.5), ("1M", 2.592e6)]
)
def test_spans_of_time_are_parsed_into_seconds(text: Any, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["3hr", "", "5", "s", -1, True, None, float("inf"), float("nan")])
def test_invalid_span_of_time_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a span of time"):
        parse_seconds(text)


def test_huge_index_is_a_key_instead_of_a_list_index() -> None:
    assert put({"a": [1]}, "a.99999999", 2) == {"a": {"99999999": 2}}
    assert get({"a": [1]}, "a." + "9" * 5000) is MISSING


def test_placed_values_keep_their_siblings() -> None:
    data = {"list": [1, 2, 3], "map": {"a": {"x": 1}, "b": 2}, "dotted.key": 0}
    found = {"one": 7, "two": {"y": 5}, "three": {"z": 6}, "none": None}
    pairs = {"one": "list[1]", "two": "map.a", "three": "map.b", "none": "dotted.key", "gone": "list"}

    assert paths.placed(data, found, pairs) == {
        "list": [1, 7, 3], "map": {"a": {"x": 1, "y": 5}, "b": {"z": 6}}, "dotted.key": None,
    }  # fmt: skip
    assert data["list"] == [1, 2, 3]

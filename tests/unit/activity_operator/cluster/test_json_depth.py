"""One extremely nested object must not keep the operator from reading all others."""

import json

import pytest

from activity_operator.cluster.json_depth import KEPT_LEVELS, DepthLimitedDecoder, cut_json


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    """Return JSON with this many levels."""
    return opening * levels + "1" + closing * levels


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"}]\\"{":', "}]")])
def test_siblings_of_a_deep_object_are_read(opening: str, closing: str) -> None:
    text = f'{{"items": [{{"name": "deep", "x": {nested(9_990, opening, closing)}}}, {{"name": "next"}}], "b": [1]}}'

    found = json.loads(text, cls=DepthLimitedDecoder)

    assert [item["name"] for item in found["items"]] == ["deep", "next"]
    assert found["b"] == [1]


def test_levels_below_the_limit_become_null() -> None:
    found = json.loads(cut_json(nested(KEPT_LEVELS + 1, "[", "]")))
    for _ in range(KEPT_LEVELS - 1):
        found = found[0]

    assert found == [None]


@pytest.mark.parametrize("text", [nested(KEPT_LEVELS), '"[[[\\\\\\"[["', "{}", "1", '{"a": "\\n\\u005b"}'])
def test_json_within_the_limit_is_unchanged(text: str) -> None:
    assert cut_json(text) == text


def test_invalid_json_is_still_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        json.loads("{", cls=DepthLimitedDecoder)

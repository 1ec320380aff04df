"""One object that is nested without end must not cost the operator its sight of all the others."""

import json

import pytest

from activity_operator.cluster.deep_json import KEPT_LEVELS, Decoder, cut


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    """Return JSON of so many levels."""
    return opening * levels + "1" + closing * levels


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"}]\\"{":', "}]")])
def test_what_stands_beside_the_abyss_is_read(opening: str, closing: str) -> None:
    text = f'{{"items": [{{"name": "deep", "x": {nested(9_990, opening, closing)}}}, {{"name": "next"}}], "b": [1]}}'

    found = json.loads(text, cls=Decoder)

    assert [item["name"] for item in found["items"]] == ["deep", "next"]
    assert found["b"] == [1]


def test_what_is_cut_off_is_null() -> None:
    found = json.loads(cut(nested(KEPT_LEVELS + 1, "[", "]")))
    for _ in range(KEPT_LEVELS - 1):
        found = found[0]

    assert found == [None]


@pytest.mark.parametrize("text", [nested(KEPT_LEVELS), '"[[[\\\\\\"[["', "{}", "1", '{"a": "\\n\\u005b"}'])
def test_what_is_not_too_deep_stays_as_it_is(text: str) -> None:
    assert cut(text) == text


def test_what_is_no_json_is_still_an_error() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        json.loads("{", cls=Decoder)

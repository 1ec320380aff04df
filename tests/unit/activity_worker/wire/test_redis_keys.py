"""Values of jobs as stored in Redis hashes."""

import pytest

from activity_worker.wire import redis_keys as keys


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("\u00e9 \u2028 \U0001f600", '"\u00e9 \u2028 \U0001f600"'),
        ("\x00 \x1f \x7f \n", '"\\u0000 \\u001f \x7f \\n"'),
        # Half of a surrogate pair: valid in JSON but not in UTF-8. JavaScript writes the same escape.
        ("\ud83d", '"\\ud83d"'),
        ({"\udc00": ["\ud83d!", 1]}, '{"\\udc00":["\\ud83d!",1]}'),
    ],
)
def test_value_is_written_as_javascript_writes_it_and_read_back(value: object, text: str) -> None:
    assert keys.encode(value) == text
    assert keys.decode(text.encode()) == value
    assert keys.pairs({"a": value}) == ["a", text]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_value_that_is_not_json_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        keys.encode(value)

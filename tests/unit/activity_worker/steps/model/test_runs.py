"""Whole runs: one row for each path through a check, an error method and a reverse."""

from typing import Any

import pytest

from tests.unit.activity_worker.steps.model.replay import Replay, fails

NO = fails()
TWICE = {"retries": 1, "delays": [1]}
CHECKED = {"method": "a", "retry": TWICE, "check": "a?"}
HANDLED = {"method": "a", "error": {"method": "e", "retry": TWICE, "check": "e?"}}
BACK: dict[str, Any] = {"method": "z", "reverse": "z-"}
BACK_CHECKED = {"method": "a", "reverse": {"method": "a-", "retry": TWICE, "check": "a-?"}}

Row = tuple[list[Any], dict[str, list[Any]], str, bool]
ROWS: dict[str, Row] = {
    # Steps with a check.
    "a check with a value: done": ([CHECKED, "b"], {"a": [NO], "a?": [1]}, "a a? b", True),
    "a check without one: again": ([CHECKED, "b"], {"a": [NO, 1], "a?": [None]}, "a a? a b", True),
    "and out of tries": ([BACK, CHECKED], {"a": [NO], "a?": [None]}, "z a a? a z-", False),
    "a check that fails: the error method": (
        [{**CHECKED, "check": {"method": "a?", "retry": False}, "error": "e"}],
        {"a": [NO], "a?": [NO]},
        "a a? e",
        True,
    ),
    "a check that fails, without one: unhandled": ([BACK, CHECKED], {"a": [NO], "a?": [NO]}, "z a a? z-", False),
    "a check that fails, ignored": ([{**CHECKED, "ignoreError": True}, "b"], {"a": [NO], "a?": [NO]}, "a a? b", True),
    "no check before the first try": ([CHECKED], {}, "a", True),
    # Error methods with retries and a check.
    "an error method retried": ([HANDLED], {"a": [NO], "e": [NO, 1], "e?": [None]}, "a e e? e", True),
    "its check with a value: handled": ([BACK, HANDLED], {"a": [NO], "e": [NO], "e?": [1]}, "z a e e? z-", True),
    "its check fails: unhandled": ([BACK, HANDLED], {"a": [NO], "e": [NO], "e?": [NO]}, "z a e e? z-", False),
    "its tries end: unhandled": ([BACK, HANDLED], {"a": [NO], "e": [NO], "e?": [None]}, "z a e e? e z-", False),
    "an error method after the last retry only": (
        [{"method": "a", "retry": TWICE, "error": "e"}],
        {"a": [NO]},
        "a a e",
        True,
    ),
    "no error method for a step that succeeds at last": (
        [{"method": "a", "retry": TWICE, "error": "e"}],
        {"a": [NO, 1]},
        "a a",
        True,
    ),
    # Ignored errors.
    "ignored: later steps after all retries": (
        [{"method": "a", "retry": TWICE, "ignoreError": True}, "b"],
        {"a": [NO]},
        "a a b",
        True,
    ),
    "ignored, with an error method that fails": (
        [{**HANDLED, "ignoreError": True}, "b"],
        {"a": [NO], "e": [NO], "e?": [NO]},
        "a e e? b",
        True,
    ),
    # Reverses.
    "the step that failed is not reversed": ([BACK, {"method": "a", "reverse": "a-"}], {"a": [NO]}, "z a z-", False),
    "nor are steps after it": ([BACK, "a", {"method": "b", "reverse": "b-"}], {"a": [NO]}, "z a z-", False),
    "nothing to reverse": (["a", "b"], {"b": [NO]}, "a b", False),
    "newest first": (
        [BACK, {"method": "y", "reverse": "y-"}, {"method": "x", "reverse": "x-"}, "a"],
        {"a": [NO]},
        "z y x a x- y- z-",
        False,
    ),
    "an error method before the reverses": ([BACK, {"method": "a", "error": "e"}], {"a": [NO]}, "z a e z-", True),
    "a reverse that fails, and the next": (
        [BACK, {"method": "y", "reverse": "y-"}, {"method": "a", "error": "e"}],
        {"a": [NO], "y-": [NO]},
        "z y a e y- z-",
        False,
    ),
    "a reverse retried": ([BACK_CHECKED, "b"], {"b": [NO], "a-": [NO, 1], "a-?": [None]}, "a b a- a-? a-", False),
    "its check with a value: reversed": ([BACK_CHECKED, "b"], {"b": [NO], "a-": [NO], "a-?": [1]}, "a b a- a-?", False),
    "its check fails: on with the others": (
        [BACK, BACK_CHECKED, {"method": "b", "error": "e"}],
        {"b": [NO], "a-": [NO], "a-?": [NO]},
        "z a b e a- a-? z-",
        False,
    ),
    "its tries end: on with the others": (
        [BACK, BACK_CHECKED, {"method": "b", "error": "e"}],
        {"b": [NO], "a-": [NO], "a-?": [None]},
        "z a b e a- a-? a- z-",
        False,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_run_calls_the_methods_of_its_row(name: str) -> None:
    steps, script, calls, success = ROWS[name]
    replay = Replay({"steps": steps}, script).run()

    assert (" ".join(replay.called), *replay.ended) == (calls, True, success)

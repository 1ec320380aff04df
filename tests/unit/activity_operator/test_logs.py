"""The operator's log lines: one JSON object or one line of text for each record."""

import json
import logging

import pytest

from activity_operator.logs import JsonLines, TextLines


def record(**more: object) -> logging.LogRecord:
    made = logging.LogRecord("activity_operator.x", logging.INFO, "x.py", 1, "pool %s", ("resize",), None)
    made.__dict__.update(more)
    return made


def test_json_line_has_the_keys_of_the_record() -> None:
    line = json.loads(JsonLines().format(record(keys={"pool": "resize", "to": 3})))

    assert (line["pool"], line["to"], line["message"], line["level"]) == ("resize", 3, "pool resize", "info")


def test_key_never_replaces_a_field_of_the_line() -> None:
    line = json.loads(JsonLines().format(record(keys={"level": "critical", "message": "other"})))

    assert (line["level"], line["message"]) == ("info", "pool resize")


def test_text_line_ends_with_the_keys() -> None:
    line = TextLines().format(record(keys={"to": 3, "reason": "a\nb"}))

    assert line.endswith(r'activity_operator.x: pool resize to=3 reason="a\nb"')


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_record_without_keys_is_formatted(formatter: logging.Formatter) -> None:
    assert "pool resize" in formatter.format(record())

"""Log lines: what a record and a printed text become."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from activity_worker.config.logging import JsonFormatter, TextFormatter, set_up_handler_logs, set_up_logs
from activity_worker.config.printed import PrintedLines
from activity_worker.contract import Env


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """Give back the root logger, and the package's level, as they were."""
    logger, package = logging.getLogger(), logging.getLogger("activity_worker")
    kept, level, own = logger.handlers[:], logger.level, package.level
    yield logger
    logger.handlers[:] = kept
    logger.setLevel(level)
    package.setLevel(own)
    logging.captureWarnings(False)


def record(message: str = "done", **attributes: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "name": "shop", "levelno": 20, "levelname": "INFO", **attributes})


def test_extras_facts_and_keys_are_in_the_json_line() -> None:
    line = JsonFormatter(lambda: {"lease": "a" * 32, "pool": "resize"}).format(
        record(bucket="photos", lease="mine", level="mine", facts={"seconds": 1.5})
    )

    entry = json.loads(line)
    assert {key: entry[key] for key in ("bucket", "lease", "level", "pool", "seconds")} == {
        "bucket": "photos",
        "lease": "a" * 32,
        "level": "info",
        "pool": "resize",
        "seconds": 1.5,
    }


def test_text_line_has_few_keys_and_the_traceback_below() -> None:
    line = TextFormatter(lambda: {"lease": "abcdefgh-rest", "pool": "resize"}).format(
        record(facts={"slot": "x", "error": "KeyError"}, traceback="Traceback ...\n  File ...\n")
    )

    assert line.endswith(" done  (lease=abcdefgh  slot=x)\nTraceback ...\n  File ...")


def test_extras_that_are_no_json_are_written_as_text() -> None:
    assert json.loads(JsonFormatter().format(record(where={1, 2})))["where"] == "{1, 2}"


def test_keys_of_a_worker_are_in_each_of_its_lines() -> None:
    stream = io.StringIO()
    set_up_logs("json", stream, level="debug", keys={"pool": "resize"})

    logging.getLogger("activity_worker.part").debug("one")
    logging.getLogger("other").info("another library's")

    assert [(line["message"], line["pool"]) for line in map(json.loads, stream.getvalue().splitlines())] == [
        ("one", "resize")
    ]


def test_unknown_level_in_the_environment_is_info(root: logging.Logger) -> None:
    set_up_handler_logs(dict, {Env.LOG_LEVEL: "loud"})

    assert root.level == logging.INFO


def test_printed_text_becomes_a_record_for_each_line(caplog: pytest.LogCaptureFixture) -> None:
    lines = PrintedLines(io.StringIO(), "stdout-of-a-test", logging.INFO)

    print("one", "two", file=lines)
    print("three", end="", file=lines)
    assert [entry.message for entry in caplog.records] == ["one two"]
    lines.finish()
    lines.finish()
    print(file=lines)
    lines.write("x" * 20_000)

    assert [entry.message for entry in caplog.records] == ["one two", "three", "x" * 20_000]


def test_printing_within_the_log_handler_does_not_recurse() -> None:
    """Logging prints its own errors to standard error, which may be such a stream."""
    stream = io.StringIO()
    lines = PrintedLines(stream, "stdout-of-another-test", logging.INFO)

    class Broken(logging.Handler):
        """A handler that reports its own trouble on the stream."""

        def emit(self, record: logging.LogRecord) -> None:
            print("--- Logging error ---", file=lines)

    logger = logging.getLogger("stdout-of-another-test")
    logger.propagate = False
    logger.addHandler(Broken())
    print("one", file=lines)

    assert stream.getvalue() == "--- Logging error ---\n"

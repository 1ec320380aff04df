"""Repeated runs are counted until one fails; busy loops run beside them and end with them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import ten
from tests.suites.jobs import Job, Result
from tests.suites.outcome import Failure, Outcome
from tests.suites.ten import END, FAILED, OK, README, Row, added, busy_loops, next_number

HEAD = f"""\
# Tests

| date | commit | run | result | seconds | failures |
|---|---|---:|---|---:|---|
{END}

After it.
"""


def row(number: int, result: str) -> Row:
    return Row("2026-01-01 10:00", "0123abc", number, result, 1200, "" if result == OK else "test_x")


def test_run_number_continues_and_restarts_after_a_failure() -> None:
    first = next_number(HEAD)
    after_one = added(HEAD, row(1, OK))
    after_failure = added(after_one, row(2, FAILED))

    assert (first, next_number(after_one), next_number(after_failure)) == (1, 2, 1)


def test_row_is_added_below_the_others_and_nothing_else_changes() -> None:
    once = added(added(HEAD, row(1, OK)), row(2, FAILED))

    assert once.splitlines()[4:7] == [
        "| 2026-01-01 10:00 | 0123abc | 1 | ok | 1200 |  |",
        "| 2026-01-01 10:00 | 0123abc | 2 | FAILED | 1200 | test_x |",
        END,
    ]
    assert once.endswith("\nAfter it.\n")


def test_readme_has_the_line_below_which_rows_are_added() -> None:
    text = README.read_text(encoding="utf-8")

    assert next_number(text) >= 1
    assert added(text, row(1, OK)) != text


def test_readme_without_that_line_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="has no line `<!-- the end of the rows"):
        next_number("# Tests\n")


def test_runs_end_at_the_first_failure_and_each_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(HEAD, encoding="utf-8")
    ok = Result(Job("e2e", ()), 0, 1.0, 1.0)
    failed = Result(Job("e2e", ()), 1, 1.0, 1.0, Outcome(1, 0, (Failure("tests.e2e::test_x[a|b]", ""),)))
    ends = iter([[ok], [ok, failed], [ok]])
    monkeypatch.setattr(ten, "README", readme)
    monkeypatch.setattr(ten, "run_suites", lambda *given, **more: (next(ends), False))

    codes = [ten.main(["--runs", "5"]), ten.main(["--runs", "1"])]

    rows = [line.split("|")[3:] for line in readme.read_text(encoding="utf-8").splitlines()[4:7]]
    assert codes == [1, 0]
    assert [(number.strip(), result.strip(), last.strip()) for number, result, _, last, _ in rows] == [
        ("1", "ok", ""),
        ("2", "FAILED", "test_x[a/b]"),
        ("1", "ok", ""),
    ]


def test_busy_loops_end_with_their_context() -> None:
    with busy_loops(2) as loops:
        assert all(Path(f"/proc/{pid}").exists() for pid in loops)

    assert not any(Path(f"/proc/{pid}").exists() for pid in loops)


def test_busy_loops_do_not_outlive_a_killed_command() -> None:
    code = f"""
import os, signal
from {ten.__name__} import busy_loops
with busy_loops(1) as loops:
    print(loops[0], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    # The loop holds the pipe's other end, so the end of the output proves the end of the loop.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == -9
    assert int(done.stdout)

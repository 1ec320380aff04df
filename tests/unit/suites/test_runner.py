"""The runner starts jobs, measures their processor time, and ends them when it is interrupted."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.eventually import eventually_sync
from tests.suites import table
from tests.suites.jobs import Job, Result
from tests.suites.outcome import Failure, Outcome
from tests.suites.runner import Runner


def python(name: str, code: str, **more: object) -> Job:
    return replace(Job(name, ("-c", code)), **more)  # type: ignore[arg-type]


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def runner(tmp_path: Path, lines: list[str]) -> Runner:
    return Runner(tmp_path, {**os.environ, "GIVEN": "yes"}, 2, lines.append)


def test_output_goes_to_the_file_that_the_first_line_names(runner: Runner, lines: list[str], tmp_path: Path) -> None:
    job = python("a", "import os; print(os.environ['GIVEN'], os.environ['OWN'])", environment={"OWN": "too"})

    (result,) = runner.run([job])

    assert result.code == 0
    assert (tmp_path / "a.log").read_text() == "yes too\n"
    assert str(tmp_path / "a.log") in lines[0]


def test_processor_time_is_that_of_the_job_and_its_children(runner: Runner) -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    job = python("a", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}])")

    (result,) = runner.run([job])

    assert 0.3 <= result.cpu_seconds < 3


def test_jobs_of_free_lanes_run_at_the_same_time(runner: Runner, tmp_path: Path) -> None:
    """Each job waits for the file that the other one writes."""
    meet = (
        "import pathlib, sys, time\npathlib.Path({!r}).touch()\nwhile not pathlib.Path({!r}).exists(): time.sleep(.01)"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")

    results = runner.run([python("a", meet.format(one, two)), python("b", meet.format(two, one))])

    assert [result.code for result in results] == [0, 0]


def test_cluster_that_does_not_boot_fails_only_its_suites(runner: Runner) -> None:
    jobs = [
        python("boot", "raise SystemExit(3)", cluster=True, required=True),
        python("needs it", "", cluster=True, is_suite=True),
        python("stop", "", cluster=True),
        python("other", ""),
    ]

    results = runner.run(jobs)

    assert {result.job.name: result.code for result in results} == {"boot": 3, "needs it": 1, "other": 0}


def test_job_ended_by_a_signal_has_failed(runner: Runner) -> None:
    (result,) = runner.run([python("a", "import os; os.kill(os.getpid(), 9)")])

    assert result.code == 137


def test_interrupted_run_lets_its_jobs_tear_down(runner: Runner, tmp_path: Path) -> None:
    """The interrupted job writes a file, and no other job starts."""
    job = f"""
import pathlib, time
try:
    pathlib.Path({str(tmp_path / "began")!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path({str(tmp_path / "ended")!r}).touch()
"""

    def interrupt() -> None:
        eventually_sync("the job began", (tmp_path / "began").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    results = runner.run([python("a", job, weight=3), python("later", "")])
    interrupting.join()

    assert runner.interrupted
    assert [result.job.name for result in results] == ["a"]
    assert (tmp_path / "ended").exists()


def test_table_has_the_share_of_time_that_a_suite_waits() -> None:
    fine = Result(Job("fine", ()), 0, 40.0, 10.0, Outcome(tests=7, skipped=2))
    broken = Result(Job("broken", ()), 137, 1.0, 2.0)

    rows = [row.split() for row in table.text([fine, broken]).splitlines()[2:]]

    assert rows == [
        ["|", "fine", "|", "ok", "|", "7", "|", "2", "|", "0", "|", "40", "|", "10", "|", "75%", "|"],
        ["|", "broken", "|", "FAILED", "(137)", "|", "|", "|", "|", "1", "|", "2", "|", "0%", "|"],
    ]


def test_every_failure_is_listed_below_the_table() -> None:
    failed = Result(Job("a", ()), 1, 1.0, 1.0, Outcome(tests=1, failures=(Failure("test_x", "assert 0"),)))
    killed = Result(Job("b", ()), 137, 1.0, 1.0)

    assert table.failures([failed, killed]) == (
        "a: test_x\nassert 0\n\nb: exit code 137 without a failed test; read its output file"
    )
    assert table.failures([Result(Job("c", ()), 0, 1.0, 1.0)]) == ""

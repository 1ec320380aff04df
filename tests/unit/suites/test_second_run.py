"""Failed tests run once more and alone; what passes then is reported as unsteady."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.suites.jobs import CLUSTER_DOWN, CLUSTER_UP, Job, Result
from tests.suites.outcome import Failure, Outcome
from tests.suites.runner import Runner
from tests.suites.second_run import MOST_FAILURES, exit_code, second_jobs, unsteady

SUITE = Job("redis", ("-m", "pytest", "tests/redis", "-n", "4"), is_suite=True)
ON_CLUSTER = replace(SUITE, name="e2e", cluster=True)


def result(job: Job, code: int, failed: int = 0) -> Result:
    failures = tuple(Failure(f"tests.test_a::test_{number}", f"text {number}") for number in range(failed))
    return Result(job, code, 1.0, 1.0, Outcome(tests=50, failures=failures))


def test_failed_tests_of_a_suite_run_once_more_in_one_process() -> None:
    (again,) = second_jobs([result(SUITE, 1, failed=2), result(ON_CLUSTER, 0)])

    assert again.name == "redis"
    assert again.arguments[-5:] == ("--last-failed", "--last-failed-no-failures", "none", "-n", "0")


def test_second_run_boots_the_cluster_for_its_suites_only() -> None:
    again = second_jobs([result(ON_CLUSTER, 1, failed=1), result(SUITE, 1, failed=1)])

    assert [job.name for job in again] == ["redis", CLUSTER_UP.name, "e2e", CLUSTER_DOWN.name]


def test_late_fixture_of_many_tests_is_one_failure() -> None:
    errors = tuple(Failure(f"tests.test_a::test_{number}", "the fixture was late") for number in range(60))

    (again,) = second_jobs([Result(SUITE, 1, 1.0, 1.0, Outcome(tests=60, failures=errors))])

    assert again.name == "redis"


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([result(SUITE, 0)], id="nothing failed"),
        pytest.param([result(SUITE, 1, failed=MOST_FAILURES + 1)], id="too many failed"),
        pytest.param([result(SUITE, 2, failed=1)], id="pytest itself failed"),
        pytest.param([result(SUITE, 137)], id="suite was killed"),
        pytest.param([result(CLUSTER_UP, 1), result(ON_CLUSTER, 1)], id="cluster did not boot"),
        pytest.param([result(SUITE, 1, failed=1), result(ON_CLUSTER, 137)], id="another suite was killed"),
    ],
)
def test_no_second_run_where_it_cannot_help(results: list[Result]) -> None:
    assert second_jobs(results) == []


def test_test_that_passes_alone_is_named_and_does_not_fail_the_run() -> None:
    first, second = [result(SUITE, 1, failed=1)], [result(SUITE, 0)]

    assert exit_code(first, second) == 0
    assert "UNSTEADY" in unsteady(first, second)
    assert "redis: tests.test_a::test_0" in unsteady(first, second)


def test_test_that_fails_twice_fails_the_run() -> None:
    first = [result(SUITE, 1, failed=1), result(ON_CLUSTER, 1, failed=1)]
    second = [result(SUITE, 1, failed=1), result(ON_CLUSTER, 0)]

    assert exit_code(first, second) == 1
    assert "redis" not in unsteady(first, second)


def test_failure_without_a_second_run_fails_the_run() -> None:
    assert exit_code([result(SUITE, 137)], []) == 137
    assert unsteady([result(SUITE, 1, failed=1)], []) == ""


def test_pytest_runs_only_the_failed_test_again(tmp_path: Path) -> None:
    """`test_unsteady` passes from its second run on; `test_steady` would fail in a second run."""
    tests = tmp_path / "test_it.py"
    tests.write_text(
        "import pathlib\n"
        "def once(name):\n"
        "    seen = pathlib.Path(__file__).with_name(name)\n"
        "    first = not seen.exists()\n"
        "    seen.touch()\n"
        "    return first\n"
        "def test_steady(): assert once('steady')\n"
        "def test_unsteady(): assert not once('unsteady')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    job = Job("suite", ("-m", "pytest", "-p", "xdist.plugin", str(tests), "-n", "1"), is_suite=True)
    first = _run(tmp_path, job)

    assert [failure.name.rpartition("::")[2] for failure in first.outcome.failures] == ["test_unsteady"]
    second = _run(tmp_path, *second_jobs([first]))

    assert (second.code, second.outcome.tests) == (0, 1)
    assert exit_code([first], [second]) == 0


def _run(folder: Path, job: Job) -> Result:
    # Three processes of pytest import no plugin but the one that a suite has and the second run has not.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    (found,) = Runner(folder, environment, 1, lambda line: None).run([job])
    return found

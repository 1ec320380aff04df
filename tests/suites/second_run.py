"""PURE: which failed tests run once more, alone on the machine, and what the two runs say together.

A test that fails beside other suites and passes alone is a fault of the product or of the test: a race, or a deadline
that a busy machine misses. The run names it and still ends well, so that an unrelated change can land meanwhile.
`make ten` has no second run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.suites.jobs import CLUSTER_DOWN, CLUSTER_UP, Job, Result

#: Different failures in one run, at most, that get a second run. More of them are a fault that it would hide. Tests
#: that fail with the same text, such as all tests of a fixture that was late, are one failure.
MOST_FAILURES = 10
#: pytest's exit code when tests ran and some failed; every other code is a failure of the suite itself.
TESTS_FAILED = 1


def second_jobs(results: Sequence[Result]) -> list[Job]:
    """Return jobs that run the failed tests once more, one job after the other; [] where a second run cannot help.

    A second run cannot help when nothing failed, when there are more than `MOST_FAILURES` failures, or when a job
    failed without a failed test.
    """
    failed = [result for result in results if result.code]
    if not all(_may_pass_alone(result) for result in failed):
        return []
    if not 0 < len({failure.text for result in failed for failure in result.outcome.failures}) <= MOST_FAILURES:
        return []
    suites = [_only_failed(result.job) for result in failed]
    on_cluster = [again for again, result in zip(suites, failed, strict=True) if result.job.cluster]
    others = [again for again, result in zip(suites, failed, strict=True) if not result.job.cluster]
    return [*others, *([CLUSTER_UP, *on_cluster, CLUSTER_DOWN] if on_cluster else [])]


def exit_code(first: Sequence[Result], second: Sequence[Result]) -> int:
    """Return the worst exit code of all jobs, where a suite's second run counts instead of its first one."""
    last: Mapping[str, int] = {result.job.name: result.code for result in second}
    codes = [last.get(result.job.name, result.code) for result in first] + [result.code for result in second]
    return max(codes, default=0)


def unsteady(first: Sequence[Result], second: Sequence[Result]) -> str:
    """Return the sentence and the names of the tests that failed first and passed alone; "" for none."""
    steady = {result.job.name for result in second if result.code == 0}
    names = [
        f"  {result.job.name}: {failure.name}"
        for result in first
        if result.code and result.job.name in steady
        for failure in result.outcome.failures
    ]
    if not names:
        return ""
    head = (
        "UNSTEADY: these tests failed beside other suites and passed alone. Find the fault, in the product or the test:"
    )
    return "\n".join((head, *names))


def _may_pass_alone(result: Result) -> bool:
    return result.job.is_suite and result.code == TESTS_FAILED and bool(result.outcome.failures)


def _only_failed(job: Job) -> Job:
    """Return the job with its failed tests only, in one process. The cluster's lane runs one job after the other."""
    alone = ("--last-failed", "--last-failed-no-failures", "none", "-n", "0")
    return replace(job, arguments=(*job.arguments, *alone), cluster=True)

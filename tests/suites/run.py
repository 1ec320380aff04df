"""One run of some suites: the jobs, the table and the failures; failed tests run once more, alone."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.suites import machine, second_run, table
from tests.suites.catalogue import Suite
from tests.suites.jobs import Job, Result, jobs_of
from tests.suites.runner import INTERRUPTED, Runner


def run_suites(suites: Sequence[Suite], environment: Mapping[str, str], lanes: int) -> tuple[list[Result], bool]:
    """Run suites once and print the table and the failures; return the results, and whether the run was interrupted.

    `environment` is added to each suite's own. `lanes` is how many suites run beside the cluster's lane.
    """
    return _run(jobs_of(suites), machine.new_folder(), environment, lanes)


def run_suites_twice(suites: Sequence[Suite], environment: Mapping[str, str], lanes: int) -> int:
    """Run suites, then their failed tests once more, alone; return the exit code of both runs, 130 after Ctrl-C."""
    folder = machine.new_folder()
    first, interrupted = _run(jobs_of(suites), folder, environment, lanes)
    again = [] if interrupted else second_run.second_jobs(first)
    second: list[Result] = []
    if again:
        say("\n==> the failed tests once more, alone on the machine")
        second, interrupted = _run(again, folder, environment, lanes)
    if interrupted:
        return INTERRUPTED
    if names := second_run.unsteady(first, second):
        say(f"\n{names}")
    return second_run.exit_code(first, second)


def _run(jobs: Sequence[Job], folder: Path, environment: Mapping[str, str], lanes: int) -> tuple[list[Result], bool]:
    began, cpu_before = time.monotonic(), machine.cpu_seconds()
    runner = Runner(folder, environment, lanes, say)
    results = runner.run(jobs)
    seconds, cpu_after = time.monotonic() - began, machine.cpu_seconds()
    taken = None if cpu_before is None or cpu_after is None else cpu_after - cpu_before
    say(f"\n{table.text(results)}\n\n{table.totals(results, seconds, taken, os.cpu_count() or 1)}")
    if failed := table.failures(results):
        say(f"\n{failed}")
    return results, runner.interrupted


def say(text: str) -> None:
    """Print without buffering, also into a pipe."""
    print(text, flush=True)

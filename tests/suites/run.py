"""One run of some suites: the jobs, the table and the failures."""

import os
import time
from collections.abc import Mapping, Sequence

from tests.suites import machine, table
from tests.suites.catalogue import Suite
from tests.suites.jobs import Result, jobs_of
from tests.suites.runner import Runner


def run_suites(suites: Sequence[Suite], environment: Mapping[str, str], lanes: int) -> tuple[list[Result], bool]:
    """Run suites and print the table and the failures; return the results, and whether the run was interrupted.

    `environment` is added to each suite's own. `lanes` is how many suites run beside the cluster's lane.
    """
    began, cpu_before = time.monotonic(), machine.cpu_seconds()
    runner = Runner(machine.new_folder(), environment, lanes, say)
    results = runner.run(jobs_of(suites))
    seconds, cpu_after = time.monotonic() - began, machine.cpu_seconds()
    taken = None if cpu_before is None or cpu_after is None else cpu_after - cpu_before
    say(f"\n{table.text(results)}\n\n{table.totals(results, seconds, taken, os.cpu_count() or 1)}")
    if failed := table.failures(results):
        say(f"\n{failed}")
    return results, runner.interrupted


def say(text: str) -> None:
    """Print without buffering, also into a pipe."""
    print(text, flush=True)

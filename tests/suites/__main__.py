"""`python -m tests.suites [SUITE ...]` runs the named suites, all of them without a name.

The exit code is the worst of all suites, 130 after Ctrl-C. Each suite inherits this process's environment.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence

from tests.suites import machine, table
from tests.suites.catalogue import SUITES, Suite, named
from tests.suites.jobs import Result, jobs_of
from tests.suites.runner import INTERRUPTED, Runner

DEFAULT_LANES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen suites and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description="Runs test suites side by side.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(suite.name for suite in SUITES))
    parser.add_argument(
        "--lanes",
        type=int,
        default=DEFAULT_LANES,
        help=f"suites at a time beside those that share the cluster (default {DEFAULT_LANES})",
    )
    asked = parser.parse_args(arguments)
    try:
        chosen = named(asked.suites)
    except ValueError as error:
        parser.error(str(error))
    if asked.lanes < 1:
        parser.error(f"--lanes {asked.lanes}: write at least 1")
    results, interrupted = run(chosen, os.environ, asked.lanes)
    return INTERRUPTED if interrupted else max((result.code for result in results), default=0)


def run(suites: Sequence[Suite], environment: Mapping[str, str], lanes: int) -> tuple[list[Result], bool]:
    """Run suites and print the table and the failures; returns the results, and whether the run was interrupted."""
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
    """Print at once, also into a pipe."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())

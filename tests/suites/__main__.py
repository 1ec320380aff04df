"""`python -m tests.suites [SUITE ...]` runs the named suites, all of them without a name.

A few failed tests run once more, alone; `--once` leaves that out. The exit code is the worst of all suites, 130 after
Ctrl-C. Each suite inherits this process's environment.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from tests.suites.catalogue import SUITES, named
from tests.suites.run import run_suites, run_suites_twice
from tests.suites.runner import INTERRUPTED

#: Suites mostly wait. Even two of them beside the cluster's lane leave two cores idle at times.
DEFAULT_LANES = max(2, os.cpu_count() or 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen suites and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description="Runs test suites side by side.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(suite.name for suite in SUITES))
    parser.add_argument(
        "--lanes",
        type=int,
        default=DEFAULT_LANES,
        help=f"suites at a time beside those that share the cluster, and one more when none of these is left "
        f"(default: the cores, here {DEFAULT_LANES})",
    )
    parser.add_argument("--once", action="store_true", help="do not run failed tests once more")
    asked = parser.parse_args(arguments)
    try:
        chosen = named(asked.suites)
    except ValueError as error:
        parser.error(str(error))
    if asked.lanes < 1:
        parser.error(f"--lanes {asked.lanes}: write at least 1")
    if not asked.once:
        return run_suites_twice(chosen, os.environ, asked.lanes)
    results, interrupted = run_suites(chosen, os.environ, asked.lanes)
    return INTERRUPTED if interrupted else max((result.code for result in results), default=0)


if __name__ == "__main__":
    sys.exit(main())

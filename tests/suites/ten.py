"""`python -m tests.suites.ten [--runs 10]` runs the cluster's suites again and again beside two busy loops.

Each run adds a row to the table at the end of tests/README.md. A failure ends the command, and the count of runs
without a failure starts at 1 again; else the count goes on from the last row, also over several calls.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.servers.parent import die_with_parent
from tests.suites.catalogue import SUITES
from tests.suites.jobs import Result
from tests.suites.machine import ROOT
from tests.suites.run import run_suites, say

README = ROOT / "tests" / "README.md"
#: The line of README above which the rows stand.
END = "<!-- the end of the rows that `make ten` writes -->"
BUSY_LOOPS = 2
OK, FAILED = "ok", "FAILED"


@dataclass(frozen=True, slots=True)
class Row:
    """One run: when it began, its commit, its number in the count, its result, and its seconds."""

    date: str
    commit: str
    number: int
    result: str
    seconds: int
    failures: str

    def __str__(self) -> str:
        """The run's row as in README."""
        cells = (self.date, self.commit, self.number, self.result, self.seconds, self.failures)
        return f"| {' | '.join(map(str, cells))} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites, and write each run's row; return 0 when no run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.ten", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how many runs, if none fails (default 10)")
    runs = parser.parse_args(arguments).runs
    suites = [suite for suite in SUITES if suite.cluster]
    for _ in range(runs):
        began, commit = time.monotonic(), _commit()
        date = f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
        number = next_number(README.read_text(encoding="utf-8"))
        say(f"\n==> run {number} of {', '.join(suite.name for suite in suites)}, beside {BUSY_LOOPS} busy loops")
        with busy_loops(BUSY_LOOPS):
            results, interrupted = run_suites(suites, os.environ, lanes=1)
        if interrupted:
            return 130
        row = _row(results, date, commit, number, round(time.monotonic() - began))
        README.write_text(added(README.read_text(encoding="utf-8"), row), encoding="utf-8")
        say(f"\n{row}")
        if row.result != OK:
            return 1
    return 0


def next_number(readme: str) -> int:
    """Return the number of the next run: 1 after a failure and at the start, else one more than the last row's."""
    last = [cell.strip() for cell in _above_end(readme).splitlines()[-1].strip("| ").split("|")]
    return int(last[2]) + 1 if last[3:4] == [OK] else 1


def added(readme: str, row: Row) -> str:
    """Return README with one more row."""
    return readme.replace(END, f"{row}\n{END}")


@contextmanager
def busy_loops(count: int) -> Iterator[list[int]]:
    """Keep `count` processes spinning, and yield their ids; they end with the context, and with this process."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=die_with_parent)  # noqa: PLW1509
        for _ in range(count)
    ]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _above_end(readme: str) -> str:
    if END not in readme:
        raise ValueError(f"{README} has no line `{END}`; write it below the table of runs")
    return readme.partition(END)[0].rstrip()


def _row(results: Sequence[Result], date: str, commit: str, number: int, seconds: int) -> Row:
    bad = [result for result in results if result.code]
    failed = [failure.name.rpartition("::")[2] for result in bad for failure in result.outcome.failures]
    failed += [result.job.name for result in bad if not result.outcome.failures]
    # A parameter may contain a pipe, which would end the table's cell.
    named = ", ".join(failed).replace("|", "/")
    return Row(date, commit, number, FAILED if bad else OK, seconds, named)


def _commit() -> str:
    """The commit's short name, with a + when files other than README differ from it."""
    name = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":(exclude)tests/README.md")
    return f"{name}+" if changed else name


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

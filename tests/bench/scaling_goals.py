"""`python -m tests.bench.scaling_goals`: a pool beside other autoscalers in virtual time, and which goals it meets.

Nine traces, pods that start in 3 s and in 30 s, three seeds, a source with a count (Redis) and one without (Step
Functions). A call after a change repeats only the simulations that the change can have altered, and a call that was
ended goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tests.bench import scaling_rules as rules
from tests.bench.scaling_rules import Runs
from tests.bench.scaling_runs import ROOT, jobs, run_all
from tests.bench.table import Row

PAGE = ROOT / "docs" / "benchmarks.md"
SEEDS = (1, 2, 3)
_ALL = (*rules.TRACES, rules.GROWTH, rules.BACKLOG)


def run() -> list[Row]:
    """Run everything and return a row for each goal (`python -m tests.bench scaling-goals`)."""
    return rules.as_rows(rules.judge(run_all(list(jobs(_ALL, rules.STARTS, SEEDS)), os.cpu_count() or 1)))


def page_part(runs: Runs, seeds: Sequence[int]) -> str:
    """Return the tables as Markdown: the goals, and each policy on each trace."""
    goals = [("goal", "met", "missed: value (limit)")]
    goals += [(row.what, row.ours, row.how.removeprefix("missed: ")) for row in rules.as_rows(rules.judge(runs))]
    parts = [rules.markdown(goals)]
    for start in rules.STARTS:
        matrix = rules.as_matrix(runs, start)
        if len(matrix) > 1:
            parts.append(
                f"Pods that start in {start:g} s: p99 wait in seconds / worker-seconds over the least possible."
            )
            parts.append(rules.markdown(matrix))
    day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    parts.append(f"{day}, means over the seeds {', '.join(map(str, seeds))}.")
    return "\n\n".join(parts) + "\n"


def insert(text: str, part: str) -> str:
    """Return the page with the tables between its marks. Raises ValueError if the page has no such marks."""
    pattern = r"(<!-- scaling goals -->\n).*?(<!-- end -->)"
    new, count = re.subn(pattern, lambda found: f"{found[1]}{part}{found[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE}: has {count} places for the scaling goals instead of one")
    return new


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> int:
    """Run the simulations that were asked for and print the tables; return the exit code."""
    asked = _parser().parse_args(arguments)
    seeds = asked.seed or SEEDS
    wanted = jobs(asked.trace or _ALL, asked.pod_start or rules.STARTS, seeds)
    part = page_part(run_all(list(wanted), asked.processes), seeds)
    write(part)
    if asked.write:
        PAGE.write_text(insert(PAGE.read_text(encoding="utf-8"), part), encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scaling_goals", description=__doc__)
    add = parser.add_argument
    add("--trace", action="append", choices=_ALL, help="only this trace, may be repeated")
    add("--pod-start", action="append", type=float, choices=rules.STARTS, help="only this start of a pod, in seconds")
    add("--seed", action="append", type=_seed, help="only this seed, may be repeated (default 1, 2 and 3)")
    add("--processes", type=int, default=os.cpu_count() or 1, help="simulations at one time (default: the cores)")
    add("--write", action="store_true", help="put the tables into docs/benchmarks.md, between their marks")
    return parser


def _seed(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

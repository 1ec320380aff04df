"""`python -m tests.bench.scaling_goals`: a pool beside other autoscalers in virtual time, and which goals it meets.

Nine traces, pods that start in 3 s and in 30 s, three seeds, a source with a count (Redis) and one without (Step
Functions). A call after a change repeats only the simulations that the change can have altered, and a call that was
ended goes on where it stopped. `--kept` judges what has run so far: each pool beside the peers' runs of the same seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import scaling_rules as rules
from tests.bench.scaling_rules import Runs
from tests.bench.scaling_runs import KEPT, ROOT, Job, jobs, run_all
from tests.bench.table import Row

PAGE = ROOT / "docs" / "benchmarks.md"
SEEDS = (1, 2, 3)
COMMAND = ".venv/bin/python -m tests.bench.scaling_goals"
_ALL = (*rules.TRACES, rules.GROWTH, rules.BACKLOG)


def run() -> list[Row]:
    """Run everything and return a row for each goal (`python -m tests.bench scaling-goals`)."""
    return rules.as_rows(rules.judge(run_all(list(jobs(_ALL, rules.STARTS, SEEDS)), os.cpu_count() or 1)))


def kept(wanted: Sequence[Job], path: Path = KEPT) -> list[Job]:
    """Return the simulations whose results are kept for the code as it is."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    keys = {json.loads(line)["key"] for line in lines}
    return [job for job in wanted if job.key in keys]


def page_part(runs: Runs, command: str = COMMAND) -> str:
    """Return the tables as Markdown: the goals, each policy on each trace, and which seeds these have."""
    goals = [("goal", "met", "missed: value (limit)")]
    goals += [(row.what, row.ours, row.how.removeprefix("missed: ")) for row in rules.as_rows(rules.judge(runs))]
    parts = [rules.markdown(goals)]
    for start in rules.STARTS:
        matrix = rules.as_matrix(runs, start)
        if len(matrix) > 1:
            parts.append(
                f"Pods that start in {start:g} s: p99 wait in seconds / worker-seconds over the least possible, "
                "means over the seeds below."
            )
            parts.append(rules.markdown(matrix))
    day = datetime.now(UTC).strftime("%d %B %Y").lstrip("0")
    parts.append(f"`{command}`, {day}. {rules.as_seeds(runs)}")
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
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = _parser().parse_args(given)
    wanted = list(jobs(asked.trace or _ALL, asked.pod_start or rules.STARTS, asked.seed or SEEDS))
    runs = run_all(kept(wanted) if asked.kept else wanted, asked.processes)
    part = page_part(runs, " ".join([COMMAND, *given]))
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
    add("--kept", action="store_true", help="run nothing: judge the results that are kept for this code")
    add("--write", action="store_true", help="put the tables into docs/benchmarks.md, between their marks")
    return parser


def _seed(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())

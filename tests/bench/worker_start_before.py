"""`python -m tests.bench.worker_start_before CHECKOUT`: starts of a worker in turns with those of an earlier commit.

CHECKOUT is a work tree of the commit, made by `git worktree add --detach CHECKOUT COMMIT`. It runs on the present
environment's libraries. A ratio of two starts that followed each other holds on a machine whose speed varies.
"""

from __future__ import annotations

import argparse
import compileall
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bench.table import Row, Table, number
from tests.bench.worker_processes import REPOSITORY, cores
from tests.bench.worker_start import IN_POD, WORKER, start
from tests.cluster.progress import say
from tests.servers.ports import free_port

ROUNDS = 15
GOAL = 0.5
KINDS = ("alone", IN_POD)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.worker_start_before")
    parser.add_argument("checkout", type=Path, help="a work tree of the earlier commit")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"starts of each; default {ROUNDS}")
    options = parser.parse_args()
    table = Table("")
    table.add("worker-start", _rows(options.checkout.resolve(), options.rounds))
    say(table.text())


def _rows(checkout: Path, rounds: int) -> list[Row]:
    trees = {"now": REPOSITORY, "before": checkout}
    for tree in trees.values():
        compileall.compile_dir(tree / "worker_image" / "activity_worker", quiet=2)
    used: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in KINDS for name in trees}
    # The first starts read their files from the disk.
    for turn in range(rounds + 1):
        for (kind, name), found in used.items():
            command = (*WORKER, "--health-port", str(free_port())) if kind == IN_POD else WORKER
            path = f"{trees[name] / 'worker_image'}:{REPOSITORY}"
            _, seconds = start(command, cores(), {"PYTHONPATH": path})
            if turn:
                found.append(seconds)
    return [_row(kind, used[kind, "now"], used[kind, "before"]) for kind in KINDS]


def _row(kind: str, now: Sequence[float], before: Sequence[float]) -> Row:
    share = median(a / b for a, b in zip(now, before, strict=True))
    return Row(
        f"processor time until the first poll, {kind}",
        number(median(now), "s"),
        f"before: {number(median(before), 's')}",
        f"{share:.2f} of it (limit {GOAL:g})",
        share <= GOAL,
        f"median of {len(now)} pairs in turns, {cores()}",
    )


if __name__ == "__main__":
    main()

"""`python -m tests.endurance steps`: 10,000 multi-step tasks with errors; their runners are killed at random.

The run is repeated for each store. It prints a table; the exit code is 1 when any check failed. Both databases wait for
the disk. The calls' own lines in files are judged first, then the store's history.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.endurance.stores import Row, new_store, run_on_stores
from tests.integration.steps.kills import Run, run

STORES = ("sqlite", "postgresql")
HEAD = ("store", "instances", "calls", "effects", "kills", "takeovers", "seconds", "wrong")
#: So long that a runner on a busy machine does not lose a lease while it lives.
LEASE_SECONDS = 10.0
#: The average time between two kills is half of this: long enough for a runner to work.
LONGEST_LIFE_SECONDS = 4.0


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    return run_on_stores(HEAD, options.store or STORES, lambda store: _row(store, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.endurance steps", description="runners killed at random")
    parser.add_argument("--instances", type=int, default=10_000, help="default 10000")
    parser.add_argument("--kills", type=int, default=150, help="runners that are killed; default 150")
    parser.add_argument("--runners", type=int, default=3, help="processes at a time; default 3")
    parser.add_argument("--seed", type=int, default=1, help="of the random errors and the kills; default 1")
    parser.add_argument("--store", action="append", choices=STORES, help="default both")
    return parser


def _row(store: str, options: argparse.Namespace) -> tuple[Row, Sequence[str]]:
    with new_store(store) as (url, folder):
        asked = Run(
            url,
            folder,
            options.instances,
            options.runners,
            options.kills,
            options.seed,
            LEASE_SECONDS,
            LONGEST_LIFE_SECONDS,
        )
        found = run(asked)
    counts = (found.calls, found.effects, found.kills, found.takeovers, round(found.seconds), len(found.wrong))
    return (options.instances, *counts), found.wrong

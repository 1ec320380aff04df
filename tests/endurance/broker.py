"""`python -m tests.endurance broker`: 10,000 tasks of a taskbroker; brokers, workers and handlers die at random.

The run is repeated for each store: one broker on SQLite, two on PostgreSQL. It prints a table; the exit code is 1 when
any check failed. Both databases wait for the disk. The handlers write to a file, by which the end is judged.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from tests.endurance.stores import Row, new_store, run_on_stores
from tests.integration.broker.kills import Run, run

BROKERS = {"sqlite": 1, "postgresql": 2}
KILLED = ("broker", "frozen", "worker", "child")
HEAD = ("store", "tasks", "runs", *KILLED, "letters", "seconds", "wrong")


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    return run_on_stores(HEAD, options.store or list(BROKERS), lambda store: _row(store, options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.endurance broker", description="brokers killed at random")
    parser.add_argument("--tasks", type=int, default=10_000, help="default 10000")
    parser.add_argument("--kills", type=int, default=100, help="kills and freezes of processes; default 100")
    parser.add_argument("--workers", type=int, default=2, help="processes of 4 slots; default 2")
    parser.add_argument("--seed", type=int, default=1, help="of the random kills; default 1")
    parser.add_argument("--store", action="append", choices=list(BROKERS), help="default both")
    return parser


def _row(store: str, options: argparse.Namespace) -> tuple[Row, Sequence[str]]:
    with new_store(store) as (url, folder):
        asked = Run(
            url,
            folder,
            options.tasks,
            brokers=BROKERS[store],
            workers=options.workers,
            kills=options.kills,
            seed=options.seed,
            longest_pause_seconds=6.0,
        )
        found = asyncio.run(run(asked))
    killed = (found.kills[way] for way in KILLED)
    return (
        options.tasks,
        found.runs,
        *killed,
        found.letters.total(),
        round(found.seconds),
        len(found.wrong),
    ), found.wrong

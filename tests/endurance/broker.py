"""`python -m tests.endurance broker`: 10,000 tasks of a taskbroker; brokers, workers and handlers die at random.

The run is repeated for each store: one broker on SQLite, two on PostgreSQL. It prints a table; the exit code is 1 when
any check failed. Both databases wait for the disk. The handlers write to a file, by which the end is judged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.integration.broker.kills import Found, Run, run
from tests.servers.postgres import new_database, postgres

BROKERS = {"sqlite": 1, "postgresql": 2}
KILLED = ("broker", "frozen", "worker", "child")
HEAD = ("store", "tasks", "runs", *KILLED, "letters", "seconds", "wrong")


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    rows, wrong = list[tuple[object, ...]](), list[str]()
    for store in options.store or BROKERS:
        found = _on(store, options)
        wrong += [f"{store}, {one}" for one in found.wrong]
        killed = (found.kills[way] for way in KILLED)
        ends = (found.letters.total(), round(found.seconds), len(found.wrong))
        rows.append((store, options.tasks, found.runs, *killed, *ends))
        print(_lines([rows[-1]]), flush=True)
    print(f"\n{_lines([HEAD, *rows])}\n\nload {os.getloadavg()[0]:.1f}")
    for one in wrong[:50]:
        print(one, file=sys.stderr)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.endurance broker", description="brokers killed at random")
    parser.add_argument("--tasks", type=int, default=10_000, help="default 10000")
    parser.add_argument("--kills", type=int, default=100, help="kills and freezes of processes; default 100")
    parser.add_argument("--workers", type=int, default=2, help="processes of 4 slots; default 2")
    parser.add_argument("--seed", type=int, default=1, help="of the random kills; default 1")
    parser.add_argument("--store", action="append", choices=list(BROKERS), help="default both")
    return parser


def _on(store: str, options: argparse.Namespace) -> Found:
    with tempfile.TemporaryDirectory(prefix="endurance-") as top:
        if store == "sqlite":
            return _run(f"sqlite:///{top}/broker.db", store, Path(top), options)
        with postgres() as server:
            return _run(asyncio.run(new_database(server)), store, Path(top), options)


def _run(url: str, store: str, folder: Path, options: argparse.Namespace) -> Found:
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
    return asyncio.run(run(asked))


def _lines(rows: list[tuple[object, ...]]) -> str:
    return "\n".join("".join(f"{cell!s:>11}" for cell in row) for row in rows)

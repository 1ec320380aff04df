"""`python -m tests.endurance steps`: 10,000 multi-step tasks with errors; their runners are killed at random.

The run is repeated for each store. It prints a table; the exit code is 1 when any check failed. Both databases wait for
the disk. The calls' own lines in files are judged first, then the store's history.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.integration.steps.kills import Found, Run, run
from tests.servers.postgres import new_database, postgres

HEAD = ("store", "instances", "calls", "effects", "kills", "takeovers", "seconds", "wrong")
#: So long that a runner on a busy machine does not lose a lease while it lives.
LEASE_SECONDS = 10.0
#: The average time between two kills is half of this: long enough for a runner to work.
LONGEST_LIFE_SECONDS = 4.0


def main(arguments: list[str]) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    rows, wrong = list[tuple[object, ...]](), list[str]()
    for store in options.store or ("sqlite", "postgresql"):
        found = _on(store, options)
        wrong += [f"{store}, {one}" for one in found.wrong]
        counts = (found.calls, found.effects, found.kills, found.takeovers, round(found.seconds), len(found.wrong))
        rows.append((store, options.instances, *counts))
        print(_lines([rows[-1]]), flush=True)
    print(f"\n{_lines([HEAD, *rows])}\n\nload {os.getloadavg()[0]:.1f}")
    for one in wrong[:50]:
        print(one, file=sys.stderr)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.endurance steps", description="runners killed at random")
    parser.add_argument("--instances", type=int, default=10_000, help="default 10000")
    parser.add_argument("--kills", type=int, default=150, help="runners that are killed; default 150")
    parser.add_argument("--runners", type=int, default=3, help="processes at a time; default 3")
    parser.add_argument("--seed", type=int, default=1, help="of the random errors and the kills; default 1")
    parser.add_argument("--store", action="append", choices=["sqlite", "postgresql"], help="default both")
    return parser


def _on(store: str, options: argparse.Namespace) -> Found:
    with tempfile.TemporaryDirectory(prefix="endurance-") as top:
        folder = Path(top) / "files"
        folder.mkdir()
        if store == "sqlite":
            return _run(f"sqlite:///{top}/tasks.db", folder, options)
        with postgres() as server:
            return _run(asyncio.run(new_database(server)), folder, options)


def _run(url: str, folder: Path, options: argparse.Namespace) -> Found:
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
    return run(asked)


def _lines(rows: list[tuple[object, ...]]) -> str:
    return "\n".join("".join(f"{cell!s:>12}" for cell in row) for row in rows)

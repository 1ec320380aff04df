"""One run after the other, each on a store of its own: the databases, the table, and the exit code."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.postgres import new_database, postgres

Row = tuple[object, ...]
#: The failed checks that are printed.
SHOWN = 50


@contextmanager
def new_store(store: str) -> Iterator[tuple[str, Path]]:
    """Yield the URL of an empty database, `sqlite` or `postgresql`, and an empty folder; both go with the context."""
    with tempfile.TemporaryDirectory(prefix="endurance-") as top:
        folder = Path(top) / "files"
        folder.mkdir()
        if store == "sqlite":
            yield f"sqlite:///{top}/tasks.db", folder
            return
        with postgres() as server:
            yield asyncio.run(new_database(server)), folder


def run_on_stores(head: Row, stores: Sequence[str], run: Callable[[str], tuple[Row, Sequence[str]]]) -> int:
    """Call `run` for each store, and print its row, the whole table and the failed checks; return the exit code.

    `run` returns the cells after the store's name, and the failed checks.
    """
    rows, wrong = list[Row](), list[str]()
    for store in stores:
        cells, failed = run(store)
        wrong += [f"{store}, {one}" for one in failed]
        rows.append((store, *cells))
        print(_lines([rows[-1]]), flush=True)
    print(f"\n{_lines([head, *rows])}\n\nload {os.getloadavg()[0]:.1f}")
    for one in wrong[:SHOWN]:
        print(one, file=sys.stderr)
    return 1 if wrong else 0


def _lines(rows: list[Row]) -> str:
    return "\n".join("".join(f"{cell!s:>12}" for cell in row) for row in rows)

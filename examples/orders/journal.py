"""The outside world of the orders: a journal of their effects, in a file or, for workers on many machines, in a table.

ORDERS_JOURNAL is a path or a PostgreSQL URL. Without it the journal is in the task store's database if that is
PostgreSQL, and beside this file otherwise. With ORDERS_PACE each effect takes that number of seconds.
"""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import asyncpg

STORE = os.environ.get("ACTIVITY_STORE_URL", "")
PLACE = os.environ.get("ORDERS_JOURNAL") or (
    STORE if STORE.startswith("postgres") else str(Path(__file__).parent / "journal.jsonl")
)
PACE_SECONDS = float(os.environ.get("ORDERS_PACE", "0"))
TABLE = "CREATE TABLE IF NOT EXISTS orders_journal (at timestamptz DEFAULT now(), key text, line jsonb)"


def write(line: dict[str, Any]) -> None:
    """Append a line, and return when it is stored. Called from a method's own thread."""
    time.sleep(PACE_SECONDS / 2)
    if PLACE.startswith("postgres"):
        asyncio.run(_insert(line))
    else:
        with Path(PLACE).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
    time.sleep(PACE_SECONDS / 2)


def find(key: str) -> dict[str, Any] | None:
    """Return the line of a key, None when there is none."""
    return next((line for line in lines() if line["key"] == key), None)


def lines() -> list[dict[str, Any]]:
    """Return the journal, oldest line first."""
    if PLACE.startswith("postgres"):
        return asyncio.run(_select())
    text = Path(PLACE).read_text(encoding="utf-8") if Path(PLACE).exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


async def _insert(line: dict[str, Any]) -> None:
    connection = await asyncpg.connect(PLACE)
    try:
        await _make(connection)
        await connection.execute(
            "INSERT INTO orders_journal (key, line) VALUES ($1, $2)", line["key"], json.dumps(line)
        )
    finally:
        await connection.close()


async def _select() -> list[dict[str, Any]]:
    connection = await asyncpg.connect(PLACE)
    try:
        await _make(connection)
        return [
            json.loads(row["line"]) for row in await connection.fetch("SELECT line FROM orders_journal ORDER BY at")
        ]
    finally:
        await connection.close()


async def _make(connection: asyncpg.Connection) -> None:
    """Create the table, under a lock: two creations at once collide in PostgreSQL's catalogue."""
    if await connection.fetchval("SELECT to_regclass('orders_journal')") is None:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(7)")
            await connection.execute(TABLE)


if __name__ == "__main__":
    for one in lines():
        print(json.dumps(one))  # noqa: T201 - what was asked for

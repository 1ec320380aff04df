"""What an operator's process keeps: the growth of its Python objects by the line that allocated them.

`python -m tests.soak --trace-memory` has each operator write it to a file. It costs a multiple of time and memory, so a
traced run finds what grows, and is not judged for growth.
"""

import asyncio
import os
import tracemalloc
from pathlib import Path

VARIABLE = "SOAK_TRACE_MEMORY"
#: Seconds from the start of a process to the snapshot that later ones are compared with, and between two reports.
FIRST_SECONDS = 150.0
EVERY_SECONDS = 120.0
#: Frames of each allocation, and the allocations that a report lists.
FRAMES = 8
LINES = 40


async def report_growth(folder: Path) -> None:
    """Write `memory-PID.txt` in the folder every two minutes, until cancelled."""
    tracemalloc.start(FRAMES)
    await asyncio.sleep(FIRST_SECONDS)
    first = _snapshot()
    seconds = 0.0
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        seconds += EVERY_SECONDS
        text = await asyncio.to_thread(_compared, first, _snapshot(), seconds)
        (folder / f"memory-{os.getpid()}.txt").write_text(text)


def _snapshot() -> tracemalloc.Snapshot:
    return tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])


def _compared(first: tracemalloc.Snapshot, last: tracemalloc.Snapshot, seconds: float) -> str:
    grown = last.compare_to(first, "traceback")
    total = sum(one.size_diff for one in grown) / 1024
    parts = [f"{total:+.0f} KB of Python objects in {seconds:.0f} s"]
    for one in grown[:LINES]:
        head = (
            f"{one.size_diff / 1024:+.1f} KB in {one.count_diff:+d} objects ({one.size / 1024:.1f} KB in {one.count})"
        )
        parts.append("\n".join([head, *one.traceback.format(most_recent_first=True)]))
    return "\n\n".join(parts) + "\n"

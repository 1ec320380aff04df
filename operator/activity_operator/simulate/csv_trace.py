"""PURE: a trace from the lines of a CSV file with two columns: arrival and duration of each task, in seconds."""

import csv
import math
from collections.abc import Iterable

from activity_operator.simulate.errors import SimulationError
from activity_operator.simulate.traces import Trace, TraceTask

#: Seconds that a trace lasts after its last arrival.
TAIL_SECONDS = 60.0
#: Most tasks of a file. A simulation of this many takes minutes.
MAX_TASKS = 1_000_000
_HEADER = ["arrival_seconds", "duration_seconds"]
_LINE = "write `arrival_seconds,duration_seconds`, for example `12.5,3`"


def read_trace(name: str, lines: Iterable[str]) -> Trace:
    """Return the trace of a CSV file; arrivals count from the earliest one. A header line is optional.

    Raises SimulationError with the file's name, the number of the line, its value and the fix.
    """
    tasks: list[TraceTask] = []
    for number, row in enumerate(csv.reader(lines), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells == _HEADER):
            continue
        tasks.append(_task(f"{name}, line {number}", cells))
        if len(tasks) > MAX_TASKS:
            raise SimulationError(f"{name}: has more than {MAX_TASKS} tasks; keep a part of them")
    if not tasks:
        raise SimulationError(f"{name}: has no task; {_LINE}")
    tasks.sort(key=lambda task: task.at)
    first = tasks[0].at
    moved = tuple(TraceTask(task.at - first, task.seconds) for task in tasks)
    return Trace(name, moved[-1].at + TAIL_SECONDS, moved)


def _task(where: str, cells: list[str]) -> TraceTask:
    if len(cells) != 2:
        raise SimulationError(f"{where}: has {len(cells)} columns instead of 2; {_LINE}")
    at, seconds = (_number(where, name, cell) for name, cell in zip(_HEADER, cells, strict=True))
    if seconds <= 0:
        raise SimulationError(f"{where}: duration_seconds {cells[1]!r} must be above 0")
    return TraceTask(at, seconds)


def _number(where: str, name: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SimulationError(f"{where}: {name} {cell!r} is not a number of seconds; {_LINE}")
    return value

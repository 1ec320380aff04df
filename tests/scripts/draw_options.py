"""Draws what each option of `spec.scaling` does to a trace of tasks, into docs/scaling.md.

python -m tests.scripts.draw_options            print the pictures
python -m tests.scripts.draw_options --write    put them into docs/scaling.md, between its marks

The pictures come from the simulator, which runs the operator's own decisions in virtual time.
"""

import argparse
import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from activity_operator.api.spec import parse_spec
from activity_operator.simulate.operator_pool import OperatorPool
from activity_operator.simulate.run import START
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
#: Characters of a line, and the characters for 0 to the largest number.
COLUMNS = 72
LEVELS = " ▁▂▃▄▅▆▇█"
_REDIS = {"redis": {"address": "redis:6379", "flow": "images", "queue": "resize"}}

#: (seconds from the start, duration in seconds) of each task.
Arrivals = Sequence[tuple[float, float]]


def bursts(number: int, every: int, seconds: float, until: int) -> Arrivals:
    """Return `number` tasks of `seconds` at once, again every `every` seconds until `until`."""
    return [(float(at), seconds) for at in range(60, until, every) for _ in range(number)]


def poisson(rate: float, seconds: float, until: float, seed: int = 1) -> Arrivals:
    """Return tasks at random, `rate` a second on average, each of about `seconds`."""
    source, at, found = random.Random(seed), 0.0, []
    while (at := at + source.expovariate(rate)) < until:
        found.append((at, source.uniform(0.5, 1.5) * seconds))
    return found


@dataclass(frozen=True, slots=True)
class Picture:
    """One option on a trace: the option as in a manifest, the tasks, and the length in seconds."""

    name: str
    scaling: dict[str, Any]
    arrivals: Callable[[], Arrivals]
    seconds: int
    more: dict[str, Any] = field(default_factory=dict)


def _few_then_many() -> Arrivals:
    return [(float(at), 5.0) for at in (60, 180, 300, 420, 540, 660)] + [(900.0 + at / 10, 20.0) for at in range(40)]


#: Ten minutes in the middle of a picture. A trace begins at a fixed date, so the times are dates, too.
_PEAK = {
    "name": "peak",
    "startTime": datetime.fromtimestamp(START + 600, UTC).isoformat(),
    "endTime": datetime.fromtimestamp(START + 1200, UTC).isoformat(),
    "minWorkers": 5,
}

PICTURES = (
    Picture("idleWorkers", {"idleWorkers": 3}, lambda: bursts(5, 300, 20.0, 1700), 1800),
    Picture("throughput", {"throughput": {}}, lambda: bursts(20, 150, 30.0, 1200), 1800),
    Picture("schedules", {"schedules": [_PEAK]}, lambda: poisson(0.05, 20.0, 1800), 1800),
    Picture("freeze", {"freeze": "ScaleDown"}, lambda: bursts(5, 600, 20.0, 1700), 1800),
    Picture("activationThreshold", {"activationThreshold": 5}, _few_then_many, 1800),
)


def draw(picture: Picture) -> str:
    """Return the picture: three lines of the same time, for the tasks and for the size without and with the option."""
    arrivals = picture.arrivals()
    without, tasks = _sizes(picture, {}, arrivals)
    with_option, _ = _sizes(picture, picture.scaling, arrivals)
    most = max(*without, *with_option, 1)
    lines = [
        ("unfinished tasks", tasks, max(*tasks, 1)),
        ("workers, default", without, most),
        (f"with {picture.name}", with_option, most),
    ]
    rows = [f"{label:<25} {_line(values, top)} {max(values)}" for label, values, top in lines]
    minutes = picture.seconds // 60
    rows.append(f"{'':<25} 0{f'{minutes} min':>{COLUMNS - 1}}")
    return "\n".join(row.rstrip() for row in rows)


def _sizes(picture: Picture, scaling: dict[str, Any], arrivals: Arrivals) -> tuple[list[int], list[int]]:
    """Return the largest wanted size and the most unfinished tasks in each column."""
    raw = {"source": _REDIS, "handlerImage": "i:1", "maxWorkers": 50, **picture.more, "scaling": scaling}
    timeline = Timeline(START)
    pool = OperatorPool(timeline, random.Random(1), parse_spec(raw), start_seconds=3.0)
    pool.begin()
    tasks = [Task(START + at, seconds) for at, seconds in sorted(arrivals)]
    for task in tasks:
        timeline.at(task.arrived, lambda task=task: pool.arrive(task))  # type: ignore[misc]
    step = picture.seconds / COLUMNS
    sizes, unfinished = [], []
    for column in range(COLUMNS):
        most = open_tasks = 0
        for part in range(1, 5):
            timeline.run_until(START + step * (column + part / 4))
            most = max(most, pool.wanted)
            arrived = sum(1 for task in tasks if task.arrived <= timeline.now)
            open_tasks = max(open_tasks, arrived - pool.done)
        sizes.append(most)
        unfinished.append(open_tasks)
    return sizes, unfinished


def _line(values: Sequence[int], top: int) -> str:
    """Return one character for each value; the lowest character stands for at least one."""
    last = len(LEVELS) - 1
    return "".join(LEVELS[0 if value <= 0 else max(1, round(value / top * last))] for value in values)


def insert(text: str, name: str, picture: str) -> str:
    """Return the page with the picture between its marks. Raises ValueError if the page has no such marks."""
    pattern = rf"(<!-- picture: {name} -->\n```text\n).*?(```\n<!-- end -->)"
    new, count = re.subn(pattern, lambda found: f"{found[1]}{picture}\n{found[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{PAGE}: has {count} places for the picture of {name} instead of one")
    return new


def main(arguments: Sequence[str] | None = None) -> int:
    """Print or write the pictures; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.scripts.draw_options", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the pictures into docs/scaling.md")
    chosen = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8") if chosen.write else ""
    for picture in PICTURES:
        drawn = draw(picture)
        if chosen.write:
            text = insert(text, picture.name, drawn)
        else:
            sys.stdout.write(f"{drawn}\n\n")
    if chosen.write:
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

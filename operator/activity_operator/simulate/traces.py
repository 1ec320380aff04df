"""PURE: traces of tasks: when each task arrives and how long its handler runs. A seed gives the same trace again."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from activity_operator.simulate.errors import SimulationError

HOUR_SECONDS = 3600.0
#: Longest task of the trace `heavy`, in seconds.
LONGEST_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One task: when it arrives, in seconds from the start of the trace, and for how many seconds it runs."""

    at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Trace:
    """A named list of tasks in the order of their arrival; `seconds` is the length of the trace."""

    name: str
    seconds: float
    tasks: tuple[TraceTask, ...]

    @property
    def work_seconds(self) -> float:
        """The sum of the tasks' durations in seconds."""
        return math.fsum(task.seconds for task in self.tasks)


Tasks = Iterator[TraceTask]
#: Writes the tasks of a trace of this many seconds.
Generator = Callable[[random.Random, float], Tasks]


def steady(random_source: random.Random, seconds: float, rate: float = 4.0, mean: float = 5.0) -> Tasks:
    """Yield Poisson arrivals of `rate` tasks a second that run for about `mean` seconds (lognormal, sigma 0.5)."""
    at = random_source.expovariate(rate)
    while at < seconds:
        yield TraceTask(at, random_source.lognormvariate(math.log(mean) - 0.125, 0.5))
        at += random_source.expovariate(rate)


def onoff(random_source: random.Random, seconds: float) -> Tasks:
    """Yield bursts of about 15 s of 5 s tasks, between quiet times of about 50 s; the rates differ widely."""
    at = 0.0
    while at < seconds:
        at += random_source.expovariate(1 / 50.0)
        end = min(at + random_source.expovariate(1 / 15.0), seconds)
        rate = random_source.lognormvariate(math.log(6.0), 1.0)
        while (at := at + random_source.expovariate(rate)) < end:
            yield TraceTask(at, random_source.lognormvariate(math.log(5.0) - 0.125, 0.5))


def diurnal(random_source: random.Random, seconds: float) -> Tasks:
    """Yield a day in the length of the trace: from 0.5 to 9 tasks a second, with noise from minute to minute."""
    noise = [random_source.lognormvariate(0.0, 0.25) for _ in range(int(seconds // 60) + 1)]
    for task in steady(random_source, seconds, rate=20.0):
        rate = (4.75 - 4.25 * math.cos(2 * math.pi * task.at / seconds)) * noise[int(task.at // 60)]
        if random_source.random() < rate / 20.0:
            yield task


def heavy(random_source: random.Random, seconds: float) -> Tasks:
    """Yield 0.6 tasks a second whose durations have a heavy tail: lognormal, median 4 s, sigma 2, at most 1,800 s."""
    for task in steady(random_source, seconds, rate=0.6):
        yield TraceTask(task.at, min(random_source.lognormvariate(math.log(4.0), 2.0), LONGEST_SECONDS))


def ramp(random_source: random.Random, seconds: float) -> Tasks:
    """Yield 5 s tasks whose rate grows from 0 to 10 a second over the trace."""
    for task in steady(random_source, seconds, rate=10.0):
        if random_source.random() < task.at / seconds:
            yield task


def spikes(random_source: random.Random, seconds: float) -> Tasks:
    """Yield one 5 s task a second, and every 10 minutes 100 more within 5 s."""
    tasks = list(steady(random_source, seconds, rate=1.0))
    for start in range(300, int(seconds), 600):
        tasks += [TraceTask(start + random_source.uniform(0, 5), 5.0) for _ in range(100)]
    yield from sorted(tasks, key=lambda task: task.at)


def trickle(random_source: random.Random, seconds: float) -> Tasks:
    """Yield one task of 20 s about every three minutes."""
    at = random_source.expovariate(1 / 180.0)
    while at < seconds:
        yield TraceTask(at, 20.0)
        at += random_source.expovariate(1 / 180.0)


def short(random_source: random.Random, seconds: float) -> Tasks:
    """Yield 20 tasks of 0.5 s a second."""
    for task in steady(random_source, seconds, rate=20.0):
        yield TraceTask(task.at, 0.5)


def batch(random_source: random.Random, seconds: float) -> Tasks:
    """Yield 5 tasks of 0.5 s a second, and 300 more at once every 2 minutes, from the first minute on."""
    tasks = [TraceTask(task.at, 0.5) for task in steady(random_source, seconds, rate=5.0)]
    for start in range(60, int(seconds), 120):
        tasks += [TraceTask(float(start), 0.5)] * 300
    yield from sorted(tasks, key=lambda task: task.at)


def timetable(number: int) -> Generator:
    """Return the generator of `number` tasks of about 21 s at once every 10 minutes, from the first minute on."""

    def generate(random_source: random.Random, seconds: float) -> Tasks:
        for start in range(60, int(seconds), 600):
            yield from (TraceTask(float(start), random_source.uniform(20, 22)) for _ in range(number))

    return generate


def growth(random_source: random.Random, seconds: float) -> Tasks:
    """Yield 5 tasks that run through, and after 2 minutes 195 tasks of 60 s within a second."""
    for at in range(5):
        yield TraceTask(at * 0.1, seconds)
    yield from sorted((TraceTask(120 + random_source.random(), 60.0) for _ in range(195)), key=lambda task: task.at)


def backlog(random_source: random.Random, seconds: float) -> Tasks:
    """Yield one task that runs through, and after a minute 8,000 of 5 s: more than 64 workers do in 10 minutes."""
    del random_source
    yield TraceTask(0.0, seconds)
    yield from (TraceTask(60.0, 5.0) for _ in range(8000))


#: The traces by name: the generator and the length in seconds.
TRACES: dict[str, tuple[Generator, float]] = {
    "steady": (steady, 0.75 * HOUR_SECONDS),
    "onoff": (onoff, HOUR_SECONDS),
    "diurnal": (diurnal, 3 * HOUR_SECONDS),
    "heavy": (heavy, HOUR_SECONDS),
    "cron40": (timetable(40), HOUR_SECONDS),
    "cron1000": (timetable(1000), HOUR_SECONDS),
    "trickle": (trickle, 2 * HOUR_SECONDS),
    "short": (short, 0.5 * HOUR_SECONDS),
    "batch": (batch, 0.5 * HOUR_SECONDS),
    "ramp": (ramp, 0.5 * HOUR_SECONDS),
    "spikes": (spikes, HOUR_SECONDS),
    "growth": (growth, 600.0),
    "backlog": (backlog, 600.0),
}


def generate_trace(name: str, seed: int, seconds: float | None = None) -> Trace:
    """Return the trace of this name and seed; `seconds` replaces its usual length.

    Raises SimulationError for an unknown name.
    """
    if name not in TRACES:
        raise SimulationError(
            f"trace {name!r} is unknown; use one of {', '.join(TRACES)}, or a file that ends in .csv or .json"
        )
    generator, usual = TRACES[name]
    length = usual if seconds is None else seconds
    # The name is part of the seed, so that two traces of a seed are not the same random numbers.
    random_source = random.Random(f"{name}/{seed}")  # noqa: S311 - a model, no secret
    return Trace(name, length, tuple(generator(random_source, length)))

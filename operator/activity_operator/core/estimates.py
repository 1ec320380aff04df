"""What the operator measures of a pool: how long a pod takes to start, how long a task runs, how many tasks run.

A new leader knows none of it and measures again. The pods' own times tell it how long they took to start.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from activity_operator.core.fleet import Fleet, Member
from activity_operator.core.observation import Observation
from activity_operator.core.situation import Situation

#: Seconds of the mean duration of tasks: what workers did so long ago has a third of its weight (1 / e).
TASK_MEMORY_SECONDS = 60.0
#: Seconds of the three means of the running tasks.
FAST_SECONDS, SHORT_SECONDS, LONG_SECONDS = 10.0, 30.0, 60.0
#: Seconds of the mean of occupied slots that stands for the present: a few reports of each worker.
PRESENT_SECONDS = 2.0
#: Seconds from the end of a task to the next one that waits, where a slot polls AWS: measured in the same region.
AWS_POLL_SECONDS = 0.08
#: Seconds of the mean rate of new tasks: a burst that has ended leaves it soon.
ARRIVAL_SECONDS = 5.0
#: How far a steady load may exceed its mean over 10 s, in square roots of that mean, and beside a mean of 0.
FALLEN_ROOTS = 3.0
#: Number of pods in the measured start. The pods of one step report in the order of their starts, the slowest last: a
#: mean that forgets soon would be the time of the slowest ones.
STARTS = 50
#: Longest measured start: a pod that waits longer waits for a node, and not for its image and its handler.
LONGEST_START_SECONDS = 120.0
#: Seconds by which a pod's time of creation is rounded down, on average.
ROUNDED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Estimates:
    """What is known at `at` (Unix seconds).

    `start_seconds` is the usual time from a pod's creation to its worker's first report: the median of `starts`, the
    times of the last pods; None if no pod has started yet. `started` are the UIDs of the pods that it includes.
    `busy_seconds` and `ended` are recent work: the slots' time with a task, and tasks that ended; `totals` has both by
    pod UID, as the last reports told them. `running` tasks ran at `at`; `fast`, `short` and `long` are their means over
    10, 30 and 60 s. `mean_age` is theirs, in seconds. `occupied`, `occupied_short` and `occupied_long` are the slots
    with a task, or between two tasks that waited, by the workers' counters: means over 2, 30 and 60 s. Of short tasks
    the reports show about half, because a worker reports when it becomes free. `arrivals` is the recent rate at which
    workers got tasks, a second.
    """

    at: float = 0.0
    start_seconds: float | None = None
    starts: tuple[float, ...] = ()
    started: frozenset[str] = frozenset()
    busy_seconds: float = 0.0
    ended: float = 0.0
    totals: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    running: int = 0
    fast: float = 0.0
    short: float = 0.0
    long: float = 0.0
    occupied: float = 0.0
    occupied_short: float = 0.0
    occupied_long: float = 0.0
    mean_age: float = 0.0
    arrivals: float = 0.0

    @property
    def task_seconds(self) -> float | None:
        """How long a task runs, None if no task has ended: the mean of recent tasks, or the running ones' mean age."""
        if self.ended < 0.5:
            return None
        return max(self.busy_seconds / self.ended, self.mean_age)

    @property
    def new_share_seconds(self) -> float | None:
        """In how many seconds two thirds (1 - 1 / e) of the running tasks are others, None if no task has ended.

        Where a few tasks run much longer than most, those that run now are mostly the long ones, and those that end and
        come are mostly short. The mean age of the first and the mean duration of the others bound the time. The
        harmonic mean of both fits lognormal durations (sigma 2, mean 27 s, mean age 218 s): 6 % of the tasks change in
        3 s and 46 % in 30 s, where 8 % and 35 % really do.
        """
        task_seconds = self.task_seconds
        if not task_seconds or not self.busy_seconds:
            return None
        return 2.0 / (1.0 / task_seconds + self.ended / self.busy_seconds)

    @property
    def steady(self) -> float:
        """The slots that a steady load keeps busy: half of the means over 30 and 60 s together.

        While the load falls, the mean over 30 s. A load that has ended is none: the mean over 10 s is then below all
        that its swings explain.
        """
        swung = self.fast + FALLEN_ROOTS * math.sqrt(self.fast) + FALLEN_ROOTS
        short, long = max(self.short, self.occupied_short), max(self.long, self.occupied_long)
        return min(short, (short + long) / 2.0, swung)


NO_ESTIMATES = Estimates()


def estimated(situation: Situation, before: Estimates) -> Estimates:
    """Return the estimates after this observation."""
    fleet, now = situation.fleet, situation.observation.now
    seconds = max(now - before.at, 0.0) if before.at else 0.0
    busy, ended, totals = _work(fleet, before)
    occupied = busy + (AWS_POLL_SECONDS * ended if situation.spec.on_aws else 0.0)
    kept = math.exp(-seconds / TASK_MEMORY_SECONDS)
    running = fleet.inflight
    working = [member.report for member in fleet.working if member.report is not None]
    return replace(
        _with_starts(situation, before),
        at=now,
        busy_seconds=kept * before.busy_seconds + busy,
        ended=kept * before.ended + ended,
        totals=totals,
        running=running,
        fast=_mean(before.fast, before.running, seconds / FAST_SECONDS),
        short=_mean(before.short, before.running, seconds / SHORT_SECONDS),
        long=_mean(before.long, before.running, seconds / LONG_SECONDS),
        occupied=_rate(before.occupied, occupied, seconds, PRESENT_SECONDS),
        occupied_short=_rate(before.occupied_short, occupied, seconds, SHORT_SECONDS),
        occupied_long=_rate(before.occupied_long, occupied, seconds, LONG_SECONDS),
        # The rate is too low while workers with tasks are gone.
        arrivals=_rate(before.arrivals, ended + running - before.running, seconds, ARRIVAL_SECONDS),
        mean_age=sum(report.running_seconds for report in working) / max(sum(report.busy for report in working), 1),
    )


def _rate(before: float, more: float, seconds: float, memory_seconds: float) -> float:
    """Return the recent rate a second after `more` in these seconds."""
    return before * math.exp(-seconds / memory_seconds) + max(more, 0.0) / memory_seconds


def _mean(mean: float, value: float, share: float) -> float:
    """Return an exponential mean after `value` has applied for this share of the mean's time."""
    return value + (mean - value) * math.exp(-share)


def _work(fleet: Fleet, before: Estimates) -> tuple[float, int, Mapping[str, tuple[float, int]]]:
    """Return the slots' seconds with a task and the tasks that ended since the last observation, and the new totals."""
    busy, ended = 0.0, 0
    totals: dict[str, tuple[float, int]] = {}
    for member in fleet.members:
        if member.report is None:
            continue
        seconds, tasks = member.report.busy_seconds, member.report.ended
        known = before.totals.get(member.pod.uid)
        totals[member.pod.uid] = (seconds, tasks)
        if known is None or tasks < known[1] or seconds < known[0]:
            # A worker that an earlier leader knew, or a container that was started again, gives a base line.
            continue
        busy, ended = busy + seconds - known[0], ended + tasks - known[1]
    return busy, ended, totals


def _with_starts(situation: Situation, before: Estimates) -> Estimates:
    """Return the estimates with the pods whose worker has reported for the first time."""
    observation = situation.observation
    reported = [member for member in situation.fleet.members if member.report is not None]
    new = [_start_of(member, observation) for member in reported if member.pod.uid not in before.started]
    starts = (*before.starts, *(took for took in new if took is not None))[-STARTS:]
    seconds = before.start_seconds if starts == before.starts else median(starts)
    known = frozenset(member.pod.uid for member in reported)
    return replace(before, start_seconds=seconds, starts=starts, started=known)


def _start_of(member: Member, observation: Observation) -> float | None:
    """Return how long the pod took from its creation to its first report, None if that is not known.

    A pod of an earlier leader's term tells by its condition Ready, if its container has not been started again.
    """
    pod = member.pod
    if pod.created > observation.leader_since:
        took = observation.now - pod.created - ROUNDED_SECONDS
    elif pod.ready_since and not pod.restarts:
        took = pod.ready_since - pod.created
    else:
        return None
    return min(max(took, ROUNDED_SECONDS), LONGEST_START_SECONDS)

"""`python -m tests.bench lease-records`: what it would cost to record several task leases in one Secret.

A simulated pool of Step Functions tells when the operator records each lease, when a worker claims it, and when the
task ends. The same times are then written in two ways: a Secret for each lease, as the operator does, and shared
Secrets, whose writes wait for each other a little so that one request carries several of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from activity_operator.leases.model import RECORD_BYTES
from activity_operator.simulate.operator_pool import OperatorPool
from activity_operator.simulate.run import START
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.traces import generate_trace
from tests.bench.scaling_runs import spec_of
from tests.bench.table import Row

#: Traces whose tasks the operator takes as leases, and the seconds of them that are run.
TRACES = {"growth": 240.0, "cron40": 660.0}
STARTS = (3.0, 30.0)
#: Most leases in a shared Secret, and the seconds for which a write waits for others after the one before it: 0.05 s
#: delays a task hardly, 0.25 s is as long as the operator combines its raises of replicas.
SHARED_LEASES = 10
WAITS = (0.05, 0.25)
#: Bytes of a task's token and payload: those of a small task.
PAYLOAD_BYTES = 1500


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """When a lease was recorded, when a worker claimed it, and when its task ended, in seconds."""

    recorded: float
    claimed: float
    ended: float


@dataclass(frozen=True, slots=True)
class Writes:
    """Requests to the API server, and the bytes that etcd stores for them: each write stores a whole Secret."""

    requests: int
    size_bytes: int


class _RecordingPool(OperatorPool):
    """A pool that keeps the tasks of its leases, and when each was recorded."""

    def __init__(self, timeline: Timeline, start: float) -> None:
        self.recorded: list[tuple[float, Task]] = []
        super().__init__(timeline, random.Random(1), spec_of("stepFunctions"), start_seconds=start)

    def _hold(self, task: Task) -> None:
        self.recorded.append((self.timeline.now, task))
        super()._hold(task)


def lease_times(trace: str, start: float, seconds: float) -> list[LeaseTimes]:
    """Simulate a pool whose pods start in `start` seconds, and return the times of each lease that ended."""
    timeline = Timeline(START)
    pool = _RecordingPool(timeline, start)
    pool.begin()
    for planned in generate_trace(trace, 1, seconds).tasks:
        task = Task(START + planned.at, planned.seconds)
        timeline.at(task.arrived, lambda task=task: pool.arrive(task))  # type: ignore[misc]
    timeline.run_until(START + seconds + 120.0)
    return [
        LeaseTimes(recorded, task.started, task.ended)
        for recorded, task in pool.recorded
        if task.started is not None and task.ended is not None
    ]


def single(leases: Sequence[LeaseTimes], payload_bytes: int = PAYLOAD_BYTES) -> Writes:
    """Return the writes with a Secret for each lease: its record, its owner, its removal, which stores no Secret."""
    return Writes(3 * len(leases), 2 * len(leases) * (payload_bytes + RECORD_BYTES))


def shared(leases: Sequence[LeaseTimes], wait: float, payload_bytes: int = PAYLOAD_BYTES) -> Writes:
    """Return the writes with shared Secrets: records join a new Secret, owners and removals change it together.

    The first write is sent at once, and later ones of the same Secret `wait` seconds after the one before. The last
    removal deletes the Secret.
    """
    requests = size_bytes = 0
    for secret in _secrets(leases, wait):
        left, requests = len(secret), requests + 1
        size_bytes += RECORD_BYTES + left * payload_bytes
        changes = sorted([(one.claimed, 0) for one in secret] + [(one.ended, 1) for one in secret])
        for written in _together(changes, wait, len(changes)):
            requests, left = requests + 1, left - sum(removed for _, removed in written)
            size_bytes += RECORD_BYTES + left * payload_bytes if left else 0
    return Writes(requests, size_bytes)


def _secrets(leases: Sequence[LeaseTimes], wait: float) -> Iterator[list[LeaseTimes]]:
    ordered = sorted(leases, key=attrgetter("recorded"))
    times = [(one.recorded, number) for number, one in enumerate(ordered)]
    for written in _together(times, wait, SHARED_LEASES):
        yield [ordered[number] for _, number in written]


def _together(changes: Sequence[tuple[float, int]], wait: float, most: int) -> Iterator[list[tuple[float, int]]]:
    """Yield the changes (seconds, anything) of each request: at most `most`. Requests are `wait` seconds apart."""
    sent, first = float("-inf"), 0
    while first < len(changes):
        sent = max(changes[first][0], sent + wait)
        end = first
        while end < len(changes) and end - first < most and changes[end][0] <= sent:
            end += 1
        yield list(changes[first:end])
        first = end


def rows(found: Iterable[tuple[str, Sequence[LeaseTimes]]]) -> list[Row]:
    """Return a row for each trace and wait: ours is a Secret for each lease, the peer is a shared one."""
    table = []
    for what, leases in found:
        ours = single(leases)
        for wait in WAITS:
            other, each = shared(leases, wait), max(len(leases), 1)
            table.append(
                Row(
                    f"{what}: writes, and kilobytes in etcd, for each of {len(leases)} leases",
                    f"{ours.requests / each:.2f}; {ours.size_bytes / each / 1000:.1f}",
                    f"{other.requests / each:.2f}; {other.size_bytes / each / 1000:.1f}",
                    f"{other.requests / ours.requests:.2f}; {other.size_bytes / ours.size_bytes:.1f}" if leases else "",
                    how=f"peer: Secrets of up to {SHARED_LEASES} leases, writes {wait:g} s apart; "
                    f"token and payload {PAYLOAD_BYTES} bytes; simulated",
                )
            )
    return table


def run() -> list[Row]:
    """Simulate the traces and return the rows."""
    found = [
        (f"{trace}, pods of {start:g} s", lease_times(trace, start, seconds))
        for trace, seconds in TRACES.items()
        for start in STARTS
    ]
    return rows(found)

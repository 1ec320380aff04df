"""PURE: from what a run without faults did to every fault that may befall it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.faults.calls import PERIODIC, of_worker, to_service
from tests.faults.plan import (
    AWS_REFUSALS,
    CRASHES,
    ON_AWS_CALLS,
    ON_EVENTS,
    ON_KUBE_CALLS,
    ON_READS,
    REFUSALS,
    Fault,
    Kind,
)

#: How often in a row the task service refuses: more often than a single call is tried again.
REFUSED_TIMES = 4
#: What an operator reads when it starts; kopf and the sweep list the same kinds, and a refusal is for both.
READS = (
    "LIST activitypools",
    "LIST deployments",
    "LIST pods",
    "LIST secrets",
    "GET leases",
    "GET secrets",
    "GET replicasets",
)
#: Where it starts in the midst of something: scenario -> the crash that has it read everything anew.
STARTS = {
    "burst": Fault(Kind.CRASH_AFTER, "POST lease-records"),
    "claimed": Fault(Kind.CRASH_BEFORE, "PATCH deployments"),
    "scale-in": Fault(Kind.CRASH_AFTER, "PATCH pods"),
}
#: Seconds between two sweeps where events are lost: they must come right within one.
SWEEP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Job:
    """One run to play: a scenario by name, what befalls it, how many replicas there are, and which part it is of."""

    part: str
    scenario: str
    faults: tuple[Fault, ...]
    replicas: int = 1
    sweep_seconds: float = 300.0


def occurrences(names: Iterable[str]) -> list[tuple[str, int]]:
    """Return each name with which time it is; of calls that repeat for ever only the first."""
    counts: Counter[str] = Counter()
    found = []
    for name in names:
        counts[name] += 1
        if counts[name] == 1 or name not in PERIODIC:
            found.append((name, counts[name]))
    return found


def crashes(scenario: str, calls: Iterable[str], *, replicas: int = 1) -> Iterator[Job]:
    """Yield a crash before and one after each write and call to the service, in turn."""
    part = "crash" if replicas == 1 else "crash, standby"
    for name, nth in occurrences(calls):
        if not (name.startswith("WATCH") or of_worker(name)):
            for kind in CRASHES:
                yield Job(part, scenario, (Fault(kind, name, nth),), replicas)


def failing_calls(scenario: str, calls: Iterable[str]) -> Iterator[Job]:
    """Yield everything else that may befall a call, an operator's or a worker's, at the first of each name."""
    for name in dict.fromkeys(calls):
        part = "worker's call" if of_worker(name) else "call fails"
        if to_service(name):
            for kind in ON_AWS_CALLS:
                yield Job(part, scenario, (Fault(kind, name, times=REFUSED_TIMES if kind in AWS_REFUSALS else 1),))
        elif not name.startswith("WATCH"):
            for kind in ON_KUBE_CALLS:
                yield Job(part, scenario, (Fault(kind, name),))


def events(scenario: str, names: Iterable[str]) -> Iterator[Job]:
    """Yield each event lost in turn; twice, late, torn, failed and with the rest of its stream at the first of each."""
    for name, nth in occurrences(names):
        yield Job("event", scenario, (Fault(Kind.EVENT_LOST, name, nth),), sweep_seconds=SWEEP_SECONDS)
        if nth == 1:
            for kind in ON_EVENTS[1:]:
                yield Job("event", scenario, (Fault(kind, name),), sweep_seconds=SWEEP_SECONDS)


def failing_reads(scenario: str) -> Iterator[Job]:
    """Yield what may befall each read of an operator that starts again in the midst of something: a third of all."""
    if scenario in STARTS:
        every = [(name, kind) for name in READS for kind in ON_READS]
        for name, kind in every[list(STARTS).index(scenario) :: len(STARTS)]:
            fault = Fault(kind, name, times=2 if kind in REFUSALS else 1)
            yield Job("read fails", scenario, (STARTS[scenario], fault))


def broken_watches(scenario: str, names: Iterable[str]) -> Iterator[Job]:
    """Yield a watch that ends in the middle of an event, and whose next try is refused or gets no answer."""
    refusals = (Kind.UNAUTHORIZED, Kind.FORBIDDEN, Kind.GONE, Kind.THROTTLED, Kind.FAILED, Kind.HANG)
    for name in dict.fromkeys(names):
        for kind in refusals:
            again = Fault(kind, f"WATCH {name.rpartition(' ')[2]}")
            yield Job("watch", scenario, (Fault(Kind.EVENT_TORN, name), again), sweep_seconds=SWEEP_SECONDS)

"""PURE: derives every fault that a scenario can meet from its run without faults."""

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

#: How often in a row the task service refuses: more often than a single call is retried.
REFUSED_TIMES = 4
#: What an operator reads when it starts. kopf and the resync list the same kinds; a refusal affects both.
READS = (
    "LIST activitypools",
    "LIST deployments",
    "LIST pods",
    "LIST secrets",
    "GET leases",
    "GET secrets",
    "GET replicasets",
)
#: Scenarios in which an operator restarts amid its work: scenario -> the crash after which it reads everything again.
STARTS = {
    "burst": Fault(Kind.CRASH_AFTER, "POST lease-records"),
    "claimed": Fault(Kind.CRASH_BEFORE, "PATCH deployments"),
    "scale-in": Fault(Kind.CRASH_AFTER, "PATCH pods"),
}
#: Seconds between two resyncs in runs with lost events: one resync must repair the state.
SWEEP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Job:
    """One run to play: the scenario's name, its faults, the number of replicas, and its part of the table."""

    part: str
    scenario: str
    faults: tuple[Fault, ...]
    replicas: int = 1
    sweep_seconds: float = 300.0


def occurrences(names: Iterable[str]) -> list[tuple[str, int]]:
    """Return each name with its occurrence number; of periodic calls only the first."""
    counts: Counter[str] = Counter()
    found = []
    for name in names:
        counts[name] += 1
        if counts[name] == 1 or name not in PERIODIC:
            found.append((name, counts[name]))
    return found


def crashes(scenario: str, calls: Iterable[str], *, replicas: int = 1) -> Iterator[Job]:
    """Yield a crash before and a crash after each write and each call to the service."""
    part = "crash" if replicas == 1 else "crash, standby"
    for name, nth in occurrences(calls):
        if not (name.startswith("WATCH") or of_worker(name)):
            for kind in CRASHES:
                yield Job(part, scenario, (Fault(kind, name, nth),), replicas)


def failing_calls(scenario: str, calls: Iterable[str]) -> Iterator[Job]:
    """Yield every other fault of a call, an operator's or a worker's, at the first call of each name."""
    for name in dict.fromkeys(calls):
        part = "worker's call" if of_worker(name) else "call fails"
        if to_service(name):
            for kind in ON_AWS_CALLS:
                yield Job(part, scenario, (Fault(kind, name, times=REFUSED_TIMES if kind in AWS_REFUSALS else 1),))
        elif not name.startswith("WATCH"):
            for kind in ON_KUBE_CALLS:
                yield Job(part, scenario, (Fault(kind, name),))


def events(scenario: str, names: Iterable[str]) -> Iterator[Job]:
    """Yield the loss of each event; at the first of each name also: twice, late, torn, failed, stream cut."""
    for name, nth in occurrences(names):
        yield Job("event", scenario, (Fault(Kind.EVENT_LOST, name, nth),), sweep_seconds=SWEEP_SECONDS)
        if nth == 1:
            for kind in ON_EVENTS[1:]:
                yield Job("event", scenario, (Fault(kind, name),), sweep_seconds=SWEEP_SECONDS)


def failing_reads(scenario: str) -> Iterator[Job]:
    """Yield the faults of each read of an operator that restarts amid its work, a third of all combinations."""
    if scenario in STARTS:
        every = [(name, kind) for name in READS for kind in ON_READS]
        for name, kind in every[list(STARTS).index(scenario) :: len(STARTS)]:
            fault = Fault(kind, name, times=2 if kind in REFUSALS else 1)
            yield Job("read fails", scenario, (STARTS[scenario], fault))


def broken_watches(scenario: str, names: Iterable[str]) -> Iterator[Job]:
    """Yield a watch that ends in the middle of an event; its next attempt is refused or not answered."""
    refusals = (Kind.UNAUTHORIZED, Kind.FORBIDDEN, Kind.GONE, Kind.THROTTLED, Kind.FAILED, Kind.HANG)
    for name in dict.fromkeys(names):
        for kind in refusals:
            again = Fault(kind, f"WATCH {name.rpartition(' ')[2]}")
            yield Job("watch", scenario, (Fault(Kind.EVENT_TORN, name), again), sweep_seconds=SWEEP_SECONDS)

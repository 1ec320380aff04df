"""PURE: two faults in one run.

All pairs would be thousands, so each write meets one second fault of each sort, in turn.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle

from tests.faults.calls import of_worker, to_service
from tests.faults.matrix import REFUSED_TIMES, SWEEP_SECONDS, Job, occurrences
from tests.faults.plan import AWS_REFUSALS, ON_AWS_CALLS, ON_KUBE_CALLS, Fault, Kind

PART = "two faults"


def pairs(scenario: str, calls: Sequence[str], events: Sequence[str]) -> Iterator[Job]:
    """Yield pairs around each write and each call to the service of a run without faults.

    The second fault is one of: a crash during the recovery from the first, of the same process or of the replica that
    took over; a failing call right after it; a lost event beside a crash or a failing call; a fault of a worker beside
    a crash.
    """
    made = [(name, nth) for name, nth in occurrences(calls) if not (name.startswith("WATCH") or of_worker(name))]
    kube, aws, lost = cycle(ON_KUBE_CALLS), cycle(ON_AWS_CALLS), cycle(occurrences(events))
    of_workers = cycle([name for name in dict.fromkeys(calls) if of_worker(name)] or [""])

    def fails(name: str, nth: int) -> Fault:
        kind = next(aws if to_service(name) else kube)
        return Fault(kind, name, nth, REFUSED_TIMES if to_service(name) and kind in AWS_REFUSALS else 1)

    for (name, nth), (after, times) in zip(made, [*made[1:], *made[:1]], strict=True):
        crash, again = Fault(Kind.CRASH_AFTER, name, nth), Fault(Kind.CRASH_BEFORE, name, nth + 1)
        yield Job(PART, scenario, (crash, again))
        yield Job(PART, scenario, (crash, again), replicas=2)
        if (after, times) != (name, nth):
            yield Job(PART, scenario, (crash, fails(after, times)))
        event = Fault(Kind.EVENT_LOST, *next(lost))
        yield Job(PART, scenario, (Fault(Kind.CRASH_BEFORE, name, nth), event), sweep_seconds=SWEEP_SECONDS)
        yield Job(PART, scenario, (fails(name, nth), Fault(Kind.EVENT_LOST, *next(lost))), sweep_seconds=SWEEP_SECONDS)
        if worker := next(of_workers):
            yield Job(PART, scenario, (crash, Fault(next(aws), worker)))

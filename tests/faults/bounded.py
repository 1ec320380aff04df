"""The runs that every test run makes: one of each kind where most can go wrong. `python -m tests.faults` makes all."""

from tests.faults import scenarios, stale
from tests.faults.matrix import SWEEP_SECONDS, Job
from tests.faults.plan import CRASHES, Fault, Kind

SCENARIOS = tuple(scenarios.SCENARIOS)

_CRASHES = {
    "create": ("PATCH deployments",),
    "burst": ("POST lease-records", "PUT lease-records", "DELETE lease-records"),
    "claimed": ("PATCH deployments",),
    "scale-in": ("PATCH pods", "PATCH deployments"),
    "rollout": ("PATCH deployments", "DELETE deployments"),
    "delete": ("AWS SendTaskFailure",),
    "failover": ("PUT lease-records",),
}
_LOST = {
    "create": ("ADDED pods",),
    "burst": ("MODIFIED activitypools",),
    "scale-in": ("MODIFIED pods", "DELETED pods"),
    "delete": ("DELETED activitypools",),
}
_FAILING = (
    ("burst", Fault(Kind.LOST_ANSWER, "POST lease-records")),
    ("burst", Fault(Kind.THROTTLED, "PUT lease-records")),
    ("burst", Fault(Kind.HALF_OPEN, "PATCH deployments")),
    ("scale-in", Fault(Kind.UNAUTHORIZED, "PATCH pods")),
)


def _jobs() -> tuple[Job, ...]:
    jobs = [
        Job("crash", name, (Fault(kind, call),))
        for name, calls in _CRASHES.items()
        for call in calls
        for kind in CRASHES
    ]
    jobs += [
        Job("event", name, (Fault(Kind.EVENT_LOST, event),), sweep_seconds=SWEEP_SECONDS)
        for name, events in _LOST.items()
        for event in events
    ]
    jobs += [Job("call fails", name, (fault,)) for name, fault in _FAILING]
    jobs.append(Job("crash, standby", "burst", (Fault(Kind.CRASH_AFTER, "PUT lease-records"),), replicas=2))
    return (*jobs, *stale.JOBS)


JOBS = _jobs()

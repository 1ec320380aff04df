"""The jobs that `pytest tests/faults` plays: one of each kind, at the riskiest calls.

`python -m tests.faults` plays all.
"""

from tests.faults import pairs, scenarios, stale
from tests.faults.matrix import REFUSED_TIMES, STARTS, SWEEP_SECONDS, Job
from tests.faults.plan import CRASHES, Fault, Kind

SCENARIOS = tuple(scenarios.SCENARIOS)

_CRASHES = {
    "create": ("PATCH deployments",),
    "burst": ("POST lease-records", "PATCH lease-records", "DELETE lease-records"),
    "claimed": ("PATCH deployments",),
    "scale-in": ("PATCH pods", "PATCH deployments"),
    "rollout": ("PATCH deployments", "DELETE deployments"),
    "delete": ("AWS SendTaskFailure",),
    "failover": ("PATCH lease-records",),
    "swf-burst": ("POST lease-records", "PATCH lease-records", "DELETE lease-records"),
    "swf-counts": ("PATCH deployments",),
    "swf-delete": ("AWS RespondActivityTaskFailed",),
}
_LOST = {
    "create": ("ADDED pods",),
    "burst": ("MODIFIED activitypools",),
    "scale-in": ("MODIFIED pods", "DELETED pods"),
    "delete": ("DELETED activitypools",),
}
#: Faults of an operator's calls and of a worker's calls.
_FAILING = (
    ("create", Fault(Kind.ROTATED, "PATCH deployments")),
    ("burst", Fault(Kind.TWICE, "PATCH lease-records")),
    ("scale-in", Fault(Kind.LATE_ANSWER, "PATCH pods")),
    ("burst", Fault(Kind.LOST_ANSWER, "POST lease-records")),
    ("burst", Fault(Kind.THROTTLED, "PATCH lease-records")),
    ("burst", Fault(Kind.HALF_OPEN, "PATCH deployments")),
    ("scale-in", Fault(Kind.UNAUTHORIZED, "PATCH pods")),
    ("swf-burst", Fault(Kind.ROTATED, "PATCH lease-records")),
    ("swf-burst", Fault(Kind.LOST_ANSWER, "AWS PollForActivityTask")),
    ("swf-counts", Fault(Kind.THROTTLED, "AWS CountPendingActivityTasks", times=REFUSED_TIMES)),
    ("swf-delete", Fault(Kind.LOST_ANSWER, "AWS RespondActivityTaskFailed")),
    ("swf-clock", Fault(Kind.CRASH_AFTER, "POST lease-records")),
)
_WORKERS = (
    ("work", Fault(Kind.CUT, "worker GetActivityTask")),
    ("work", Fault(Kind.THROTTLED, "worker SendTaskHeartbeat", times=REFUSED_TIMES)),
    ("work", Fault(Kind.LOST_ANSWER, "worker SendTaskSuccess")),
    ("work", Fault(Kind.CALL_LOST, "worker SendTaskFailure")),
    ("swf-work", Fault(Kind.CUT, "worker PollForActivityTask")),
    ("swf-work", Fault(Kind.THROTTLED, "worker RecordActivityTaskHeartbeat", times=REFUSED_TIMES)),
    ("swf-work", Fault(Kind.LOST_ANSWER, "worker RespondActivityTaskCompleted")),
)
#: Faults of the reads that an operator makes when it restarts.
_READS = (
    ("burst", Fault(Kind.HALF_OPEN, "LIST secrets")),
    ("claimed", Fault(Kind.FAILED, "LIST pods", times=2)),
)
_PAIRS = (
    ("burst", Fault(Kind.CRASH_AFTER, "POST lease-records"), Fault(Kind.CRASH_BEFORE, "POST lease-records", 2)),
    ("claimed", Fault(Kind.CRASH_BEFORE, "PATCH deployments"), Fault(Kind.EVENT_LOST, "ADDED pods")),
    ("scale-in", Fault(Kind.CRASH_AFTER, "PATCH pods"), Fault(Kind.LOST_ANSWER, "PATCH deployments")),
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
    jobs += [Job("worker's call", name, (fault,)) for name, fault in _WORKERS]
    jobs += [Job("read fails", name, (STARTS[name], fault)) for name, fault in _READS]
    silent = Fault(Kind.STREAM_SILENT, "MODIFIED pods")
    jobs.append(Job("event", "scale-in", (silent,), sweep_seconds=SWEEP_SECONDS))
    jobs += [Job(pairs.PART, name, tuple(faults), sweep_seconds=SWEEP_SECONDS) for name, *faults in _PAIRS]
    jobs.append(Job("crash, standby", "burst", (Fault(Kind.CRASH_AFTER, "PATCH lease-records"),), replicas=2))
    return (*jobs, *stale.JOBS)


JOBS = _jobs()

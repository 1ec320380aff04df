"""PURE: which lease is offered to which worker, which claim is granted, and when the operator gives a lease up."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from activity_operator.backlog.protocol import Key
from activity_operator.leases.model import LeaseOwner, TaskLease
from activity_worker.contract import ERROR_DELETED, ERROR_NO_WORKER, ERROR_NOT_RECORDED, Report, WorkerState

#: Seconds for which an offer is exclusive to one worker, so that workers that start together do not all claim the same
#: lease. A worker with a free slot claims at once, so after this time another worker gets the offer.
OFFER_SECONDS = 5.0
#: Seconds after which a lease is lost if its owner's reports show it neither as running nor as concluded. A worker
#: repeats an unanswered claim for 10 s; a longer outage of the report path shows in every other signal.
UNSHOWN_SECONDS = 120.0
#: Seconds after a claim for which the operator still sends the task heartbeats of a lease that no report has shown: the
#: reply with the grant may be lost, and the owner gets it only with its next report. After that the owner may be dead,
#: and the service's own time-out must end the task.
GRANT_SECONDS = 60.0

#: Seconds for which a pool must be gone before its tasks are failed. A failure is final, and the watch may lack an
#: object for a moment while it lists again.
POOL_MISSING_SECONDS = 3.0

_TAKES_LEASES = frozenset({WorkerState.STARTING, WorkerState.RUNNING})


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """The part of a pool's spec about leases. With `hold_seconds` None only the service's time-out ends a lease.

    `suspended`: the user lets no worker come, so leases wait and no time counts. `workers_since`: when workers were
    last allowed again (Unix seconds); the table of leases sets it.
    """

    heartbeat_seconds: float = 10.0
    hold_seconds: float | None = None
    suspended: bool = False
    workers_since: float = 0.0


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """One lease with this process's own state of it; a crash may lose that state. Times are Unix seconds.

    `heartbeat_accepted`: False once the service has refused a heartbeat without ending the task. `closing`: the
    operator is failing the task. `confirmed`: the owner has reported the lease as running or concluded. `task_over`:
    the service or the owner has reported the task's end. `owner_since`: when this process learned of the owner.
    `pool_missing_since`: since when the pool has been gone. `since`: when this process took the lease in; time limits
    count from it, because `received_at` may come from another machine's clock.
    """

    lease: TaskLease
    since: float
    heartbeat_accepted: bool = True
    closing: bool = False
    offered_to: str = ""
    offered_at: float = 0.0
    owner_since: float = 0.0
    confirmed: bool = False
    task_over: bool = False
    pool_missing_since: float | None = None

    @property
    def is_unclaimed(self) -> bool:
        """Whether a worker may still claim the lease."""
        return self.lease.owner is None and not self.closing


def is_kept_alive(entry: LeaseEntry | None, now: float) -> bool:
    """Whether the operator sends the lease's task heartbeats: until a report shows that the owner has its grant."""
    if entry is None or entry.lease.owner is None:
        return entry is not None
    return not entry.confirmed and now - entry.owner_since < GRANT_SECONDS


class ClaimDecision(Enum):
    """The answer to a claim: refuse it, grant it (again), or write the owner first."""

    REFUSE = auto()
    GRANT = auto()
    WRITE = auto()


class Disposition(Enum):
    """What the operator does with a lease now: keep it, fail its task, or give it up because its owner is gone."""

    KEEP = auto()
    FAIL_DELETED = auto()
    FAIL_NO_WORKER = auto()
    FAIL_NOT_RECORDED = auto()
    OWNER_GONE = auto()


#: The error and the cause for each way of failing a task.
CAUSES = {
    Disposition.FAIL_DELETED: (ERROR_DELETED, "The ActivityPool {pool} was deleted before a worker took this task."),
    Disposition.FAIL_NO_WORKER: (
        ERROR_NO_WORKER,
        "No worker of ActivityPool {pool} took this task within activation.holdSeconds.",
    ),
    Disposition.FAIL_NOT_RECORDED: (
        ERROR_NOT_RECORDED,
        "The operator could not record this task of ActivityPool {pool}: its input must fit into a Secret of 1 MiB.",
    ),
}


def decide_claim(entry: LeaseEntry | None, pool: Key, owner: LeaseOwner) -> ClaimDecision:
    """Return the decision on a claim by a worker of `pool`. A claim for a lease of another pool is refused."""
    if entry is None or entry.closing or entry.lease.pool.key != pool or not entry.lease.recorded:
        return ClaimDecision.REFUSE
    if entry.lease.owner is None:
        return ClaimDecision.WRITE
    return ClaimDecision.GRANT if entry.lease.owner == owner else ClaimDecision.REFUSE


@dataclass(frozen=True, slots=True)
class Offers:
    """The lease ids to offer to one worker: `now` exclusively, for free slots; `ahead` for slots that become free."""

    now: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()


def choose_offers(
    waiting: Iterable[LeaseEntry],
    owned: Iterable[LeaseEntry],
    report: Report,
    now: float,
    *,
    cordoned: bool,
    unclear: Collection[str] = (),
) -> Offers:
    """Return the leases of the pool to offer in the reply, oldest first, at most one for each slot of the worker.

    `waiting` are the recorded leases without an owner, oldest first; only as many are read as are needed. `owned` are
    the leases of the worker's pod. `unclear` are claims of this worker without an answer yet. Each of them takes a free
    slot, and so does a granted lease that no report shows yet. Leases beyond the free slots are offered ahead, to all
    workers: a slot that becomes free claims one at once, instead of polling for up to a minute. The first claim wins.
    """
    if cordoned or report.state not in _TAKES_LEASES:
        return Offers()
    owner = LeaseOwner(report.pod_uid, report.incarnation)
    shown = {lease.id for lease in report.leases} | set(report.released)
    underway = sum(entry.lease.owner == owner and entry.lease.id not in shown for entry in owned)
    free = max(report.slots - report.busy - underway - len(unclear), 0)
    at_once: list[str] = []
    later: list[str] = []
    for entry in waiting:
        if entry.lease.id in unclear:
            continue
        if len(at_once) < free and _may_be_offered(entry, report.pod_uid, now):
            at_once.append(entry.lease.id)
        elif len(later) < report.slots:
            later.append(entry.lease.id)
        if len(at_once) == free and len(at_once) + len(later) >= report.slots:
            break
    return Offers(tuple(at_once), tuple(later[: max(report.slots - len(at_once), 0)]))


def _may_be_offered(entry: LeaseEntry, pod_uid: str, now: float) -> bool:
    return entry.offered_to in {"", pod_uid} or now - entry.offered_at >= OFFER_SECONDS


def is_shown(lease_id: str, report: Report) -> bool:
    """Whether the report shows the lease as running or concluded."""
    return lease_id in report.released or any(lease.id == lease_id for lease in report.leases)


def is_lost(entry: LeaseEntry, report: Report, now: float) -> bool:
    """Whether the reporting worker owned the lease and has lost it: it restarted, or stopped showing the lease."""
    owner = entry.lease.owner
    if owner is None or owner.pod_uid != report.pod_uid:
        return False
    if owner.incarnation != report.incarnation:
        return True
    silent = not is_shown(entry.lease.id, report) and entry.lease.id not in report.claims
    return silent and now - entry.owner_since >= UNSHOWN_SECONDS


def with_pool_presence(entry: LeaseEntry, now: float, pool_exists: bool) -> LeaseEntry:
    """Return the entry with `pool_missing_since` set if the pool is gone, and reset if it exists."""
    if pool_exists == (entry.pool_missing_since is None):
        return entry
    return replace(entry, pool_missing_since=None if pool_exists else now)


def disposition_of(entry: LeaseEntry, policy: LeasePolicy, now: float, *, owner_exists: bool) -> Disposition:
    """Return what to do with the lease. `owner_exists`: the owner's pod exists; ignored for a lease without owner."""
    if entry.closing:
        return Disposition.KEEP
    if entry.lease.owner is not None:
        return Disposition.KEEP if owner_exists else Disposition.OWNER_GONE
    if entry.pool_missing_since is not None:
        return Disposition.FAIL_DELETED if now - entry.pool_missing_since >= POOL_MISSING_SECONDS else Disposition.KEEP
    held_for = now - max(entry.since, policy.workers_since)
    if policy.hold_seconds is not None and not policy.suspended and held_for >= policy.hold_seconds:
        return Disposition.FAIL_NO_WORKER
    return Disposition.KEEP

"""PURE: which lease is offered to whom, who may have it, and when one is over."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice

from activity_operator.backlog.protocol import Key
from activity_operator.leases.model import LeaseOwner, TaskLease
from activity_worker.contract import ERROR_DELETED, ERROR_NO_WORKER, Report, WorkerState

#: Seconds for which an offer is one worker's alone, so that forty workers that start together do not all ask for the
#: same lease. A worker claims at once; one that did not within this time has no slot free.
OFFER_SECONDS = 5.0
#: Seconds for which an owner may report neither running nor concluding its lease: it repeats an unanswered claim for
#: 10 s, and a report path that is down for longer than this shows in every other signal.
UNSHOWN_SECONDS = 120.0
#: Seconds from a claim for which the operator goes on with the task heartbeats of a lease that its owner has not shown:
#: the reply that grants it may be lost, and the owner hears of it only when reports get through again. An owner that
#: shows nothing for longer may be dead, and the service's own time-out must find that out.
GRANT_SECONDS = 60.0

#: Seconds for which a pool must be gone before its tasks are failed: failing cannot be taken back, and a view of the
#: cluster that is being renewed may lack an object for a moment.
POOLLESS_SECONDS = 3.0

_TAKES_LEASES = frozenset({WorkerState.STARTING, WorkerState.RUNNING})


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """What a pool's spec says about its leases. `hold_seconds` None: held for as long as the service lets us."""

    heartbeat_seconds: float = 10.0
    hold_seconds: float | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class LeaseEntry:
    """One lease with what only this process knows of it; all of it may be lost.

    `heartbeat_accepted` is False once the service refused a heartbeat without ending the task; `closing` while it is
    being failed; `confirmed` once its owner reported it, running or concluded; `task_over` once the service or its
    owner said that its task is; `owner_since` is when this process learned of the owner; `poolless_since` is when its
    pool was first seen to be gone. `since` is when this process took it in: patience is counted from there, because
    when it was received may have been told by another machine's clock.
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
    poolless_since: float | None = None

    @property
    def is_unclaimed(self) -> bool:
        """Whether a worker may still have it."""
        return self.lease.owner is None and not self.closing


def is_kept_alive(entry: LeaseEntry | None, now: float) -> bool:
    """Whether the lease's task heartbeats are the operator's to send: until its owner surely knows of its grant."""
    if entry is None or entry.lease.owner is None:
        return entry is not None
    return not entry.confirmed and now - entry.owner_since < GRANT_SECONDS


class ClaimDecision(Enum):
    """The answer to a claim: refuse it, grant it (again), or write the owner first."""

    REFUSE = auto()
    GRANT = auto()
    WRITE = auto()


class Disposition(Enum):
    """What becomes of a lease now."""

    KEEP = auto()
    FAIL_DELETED = auto()
    FAIL_NO_WORKER = auto()
    OWNER_GONE = auto()


#: Error and cause with which a task is failed.
CAUSES = {
    Disposition.FAIL_DELETED: (ERROR_DELETED, "The ActivityPool {pool} was deleted before a worker took this task."),
    Disposition.FAIL_NO_WORKER: (
        ERROR_NO_WORKER,
        "No worker of ActivityPool {pool} took this task within activation.holdSeconds.",
    ),
}


def decide_claim(entry: LeaseEntry | None, pool: Key, owner: LeaseOwner) -> ClaimDecision:
    """Judge a claim by a worker of `pool`; a lease of another pool does not exist for it."""
    if entry is None or entry.closing or entry.lease.pool.key != pool or not entry.lease.recorded:
        return ClaimDecision.REFUSE
    if entry.lease.owner is None:
        return ClaimDecision.WRITE
    return ClaimDecision.GRANT if entry.lease.owner == owner else ClaimDecision.REFUSE


@dataclass(frozen=True, slots=True)
class Offers:
    """What to offer one worker: `now` for its free slots and its alone for a while, `ahead` for slots that get free."""

    now: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()


def choose_offers(
    entries: Sequence[LeaseEntry], report: Report, now: float, *, cordoned: bool, unclear: Collection[str] = ()
) -> Offers:
    """Return the leases of the pool to offer in the reply: as many as the worker has slots at most, the oldest first.

    `unclear` are claims of this worker that could not be answered; each keeps a slot, and so does a granted one that
    it does not show yet. Leases beyond its free slots are offered too, to every worker alike: a slot that becomes free
    claims one at once, where it would otherwise begin a poll and be gone for a minute. The first claim wins.
    """
    if cordoned or report.state not in _TAKES_LEASES:
        return Offers()
    owner = LeaseOwner(report.pod_uid, report.incarnation)
    shown = {lease.id for lease in report.leases}
    owned = [entry for entry in entries if entry.lease.owner == owner]
    underway = sum(entry.lease.id not in shown and entry.lease.id not in report.released for entry in owned)
    free = max(report.slots - report.busy - underway - len(unclear), 0)
    waiting = [
        entry for entry in entries if entry.is_unclaimed and entry.lease.recorded and entry.lease.id not in unclear
    ]
    waiting.sort(key=lambda entry: (entry.lease.received_at, entry.lease.id))
    offered_now = [entry for entry in waiting if _may_be_offered(entry, report.pod_uid, now)][:free]
    at_once = tuple(entry.lease.id for entry in offered_now)
    later = (entry.lease.id for entry in waiting if entry.lease.id not in at_once)
    return Offers(at_once, tuple(islice(later, report.slots - len(at_once))))


def _may_be_offered(entry: LeaseEntry, pod_uid: str, now: float) -> bool:
    return entry.offered_to in {"", pod_uid} or now - entry.offered_at >= OFFER_SECONDS


def is_shown(lease_id: str, report: Report) -> bool:
    """Whether the report accounts for a lease of its worker as running or concluded."""
    return lease_id in report.released or any(lease.id == lease_id for lease in report.leases)


def is_lost(entry: LeaseEntry, report: Report, now: float) -> bool:
    """Whether the owner of the lease, whose report this is, has lost it: restarted, or long silent about it."""
    owner = entry.lease.owner
    if owner is None or owner.pod_uid != report.pod_uid:
        return False
    if owner.incarnation != report.incarnation:
        return True
    silent = not is_shown(entry.lease.id, report) and entry.lease.id not in report.claims
    return silent and now - entry.owner_since >= UNSHOWN_SECONDS


def with_pool_presence(entry: LeaseEntry, now: float, pool_exists: bool) -> LeaseEntry:
    """Return the lease with when its pool went."""
    if pool_exists == (entry.poolless_since is None):
        return entry
    return replace(entry, poolless_since=None if pool_exists else now)


def disposition_of(entry: LeaseEntry, policy: LeasePolicy, now: float, *, owner_exists: bool) -> Disposition:
    """Return what becomes of the lease; `owner_exists` is about the owner's pod and ignored while there is no owner."""
    if entry.closing:
        return Disposition.KEEP
    if entry.lease.owner is not None:
        return Disposition.KEEP if owner_exists else Disposition.OWNER_GONE
    if entry.poolless_since is not None:
        return Disposition.FAIL_DELETED if now - entry.poolless_since >= POOLLESS_SECONDS else Disposition.KEEP
    held_for = now - entry.since
    if policy.hold_seconds is not None and not policy.paused and held_for >= policy.hold_seconds:
        return Disposition.FAIL_NO_WORKER
    return Disposition.KEEP

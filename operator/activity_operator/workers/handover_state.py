"""PURE: which lease is offered to whom, who may have it, and when one is over."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice

from activity_operator.backlog.protocol import Key
from activity_operator.workers.leases import Lease, Owner
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
class Terms:
    """What a pool's spec says about its leases. `hold_seconds` None: held for as long as the service lets us."""

    heartbeat_seconds: float = 10.0
    hold_seconds: float | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """One lease with what only this process knows of it; all of it may be lost.

    `beats` is False once the service refused a heartbeat without ending the task; `closing` while it is being failed;
    `shown` once its owner reported it, running or concluded; `over` once the service or its owner said that its task
    is; `owner_since` is when this process learned of the owner; `poolless_since` is when its pool was first seen to be
    gone. `since` is when this process took it in: patience is counted from there, because when it was received may have
    been told by another machine's clock.
    """

    lease: Lease
    since: float
    beats: bool = True
    closing: bool = False
    offered_to: str = ""
    offered_at: float = 0.0
    owner_since: float = 0.0
    shown: bool = False
    over: bool = False
    poolless_since: float | None = None

    @property
    def waits(self) -> bool:
        """Whether a worker may still have it."""
        return self.lease.owner is None and not self.closing


def is_kept_alive(held: Held | None, now: float) -> bool:
    """Whether the lease's task heartbeats are the operator's to send: until its owner surely knows of its grant."""
    if held is None or held.lease.owner is None:
        return held is not None
    return not held.shown and now - held.owner_since < GRANT_SECONDS


class Verdict(Enum):
    """The answer to a claim: refuse it, grant it (again), or write the owner first."""

    REFUSE = auto()
    GRANT = auto()
    WRITE = auto()


class Fate(Enum):
    """What becomes of a lease now."""

    KEEP = auto()
    FAIL_DELETED = auto()
    FAIL_NO_WORKER = auto()
    OWNER_GONE = auto()


#: Error and cause with which a task is failed.
CAUSES = {
    Fate.FAIL_DELETED: (ERROR_DELETED, "The ActivityPool {pool} was deleted before a worker took this task."),
    Fate.FAIL_NO_WORKER: (
        ERROR_NO_WORKER,
        "No worker of ActivityPool {pool} took this task within activation.holdSeconds.",
    ),
}


def verdict(held: Held | None, pool: Key, owner: Owner) -> Verdict:
    """Judge a claim by a worker of `pool`; a lease of another pool does not exist for it."""
    if held is None or held.closing or held.lease.pool.key != pool or not held.lease.recorded:
        return Verdict.REFUSE
    if held.lease.owner is None:
        return Verdict.WRITE
    return Verdict.GRANT if held.lease.owner == owner else Verdict.REFUSE


@dataclass(frozen=True, slots=True)
class Offers:
    """What to offer one worker: `now` for its free slots and its alone for a while, `ahead` for slots that get free."""

    now: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()


def offers(
    held: Sequence[Held], report: Report, now: float, *, cordoned: bool, unclear: Collection[str] = ()
) -> Offers:
    """Return the leases of the pool to offer in the reply: as many as the worker has slots at most, the oldest first.

    `unclear` are claims of this worker that could not be answered; each keeps a slot, and so does a granted one that
    it does not show yet. Leases beyond its free slots are offered too, to every worker alike: a slot that becomes free
    claims one at once, where it would otherwise begin a poll and be gone for a minute. The first claim wins.
    """
    if cordoned or report.state not in _TAKES_LEASES:
        return Offers()
    owner = Owner(report.pod_uid, report.incarnation)
    shown = {lease.id for lease in report.leases}
    mine = [item for item in held if item.lease.owner == owner]
    underway = sum(item.lease.id not in shown and item.lease.id not in report.released for item in mine)
    free = max(report.slots - report.busy - underway - len(unclear), 0)
    waiting = [item for item in held if item.waits and item.lease.recorded and item.lease.id not in unclear]
    waiting.sort(key=lambda item: (item.lease.received_at, item.lease.id))
    mine_now = [item for item in waiting if _may_be_offered(item, report.pod_uid, now)][:free]
    at_once = tuple(item.lease.id for item in mine_now)
    later = (item.lease.id for item in waiting if item.lease.id not in at_once)
    return Offers(at_once, tuple(islice(later, report.slots - len(at_once))))


def _may_be_offered(item: Held, pod_uid: str, now: float) -> bool:
    return item.offered_to in {"", pod_uid} or now - item.offered_at >= OFFER_SECONDS


def is_shown(lease_id: str, report: Report) -> bool:
    """Whether the report accounts for a lease of its worker as running or concluded."""
    return lease_id in report.released or any(lease.id == lease_id for lease in report.leases)


def is_lost(item: Held, report: Report, now: float) -> bool:
    """Whether the owner of the lease, whose report this is, has lost it: restarted, or long silent about it."""
    owner = item.lease.owner
    if owner is None or owner.pod_uid != report.pod_uid:
        return False
    if owner.incarnation != report.incarnation:
        return True
    silent = not is_shown(item.lease.id, report) and item.lease.id not in report.claims
    return silent and now - item.owner_since >= UNSHOWN_SECONDS


def seen(item: Held, now: float, pool_exists: bool) -> Held:
    """Return the lease with when its pool went."""
    if pool_exists == (item.poolless_since is None):
        return item
    return replace(item, poolless_since=None if pool_exists else now)


def fate(item: Held, terms: Terms, now: float, *, owner_exists: bool) -> Fate:
    """Return what becomes of the lease; `owner_exists` is about the owner's pod and ignored while there is no owner."""
    if item.closing:
        return Fate.KEEP
    if item.lease.owner is not None:
        return Fate.KEEP if owner_exists else Fate.OWNER_GONE
    if item.poolless_since is not None:
        return Fate.FAIL_DELETED if now - item.poolless_since >= POOLLESS_SECONDS else Fate.KEEP
    held_for = now - item.since
    if terms.hold_seconds is not None and not terms.paused and held_for >= terms.hold_seconds:
        return Fate.FAIL_NO_WORKER
    return Fate.KEEP

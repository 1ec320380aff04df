"""Whether every slot of the pool stays busy: the only sign of a backlog if there is no count."""

from dataclasses import dataclass

from activity_operator.core.fleet import Fleet, Member

#: Seconds for which every slot must be busy before the pool grows without a count.
SATURATED_SECONDS = 1.0
#: Seconds that a report may take beyond its interval before the pool is decided again.
LATE_SECONDS = 0.1
#: Seconds between two decisions while a report is late. After a few of them the worker is stalled.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Saturation:
    """`since`: from when no worker has had an idle slot; `joined`: when the last of the `members` (pod UIDs) joined.

    Both are Unix seconds of reports, not of decisions.
    """

    since: float
    joined: float
    members: frozenset[str]


def track_saturation(fleet: Fleet, before: Saturation | None) -> Saturation | None:
    """Return since when no working member has had an idle slot, None if one has or if no member works.

    Tasks in flight are no condition: a pool with one worker has none between two tasks of a backlog.
    """
    if not fleet.working or any(member.shows_no_backlog for member in fleet.working):
        return None
    last_reports = {member.pod.uid: _last_report(member) for member in fleet.working}
    if before is None:
        began = max(last_reports.values())
        return Saturation(began, began, frozenset(last_reports))
    joined = [at for uid, at in last_reports.items() if uid not in before.members]
    return Saturation(before.since, max([before.joined, *joined]), frozenset(last_reports))


def is_established(full: Saturation, fleet: Fleet, now: float) -> bool:
    """Whether saturation has lasted long enough and every worker has reported since it began.

    An older report may show a task that has ended. Right after a worker joins, a free slot of another worker may mean
    that the new worker took the next task. With a free slot, the time therefore counts from the last join.
    """
    return now >= _lasted_at(full, fleet) and not _unheard(full, fleet)


def look_again_at(full: Saturation, fleet: Fleet, now: float) -> float | None:
    """Return the Unix time at which saturation may be established, None if it is.

    A report without a change starts no decision, so the decision must be due at a time.
    """
    if is_established(full, fleet, now):
        return None
    words = [_last_report(m) + (m.report.interval_seconds if m.report else 0.0) for m in _unheard(full, fleet)]
    due = max([_lasted_at(full, fleet), *(word + LATE_SECONDS for word in words)])
    return due if due > now else now + LOOK_SECONDS


def _lasted_at(full: Saturation, fleet: Fleet) -> float:
    all_busy = all(member.busy >= member.slots for member in fleet.working)
    return (full.since if all_busy else full.joined) + SATURATED_SECONDS


def _unheard(full: Saturation, fleet: Fleet) -> list[Member]:
    return [member for member in fleet.working if _last_report(member) < full.since]


def _last_report(member: Member) -> float:
    return 0.0 if member.report is None else member.report.reported_at

"""Whether every slot of the pool stays busy: the only sign of a backlog where nobody counts it."""

from dataclasses import dataclass

from activity_operator.core.fleet import Fleet, Member

#: Seconds for which every slot must be busy before the pool grows without a count.
SATURATED_SECONDS = 1.0
#: Seconds that a report may take beyond its interval before it is worth another look whether it has come.
LATE_SECONDS = 0.1
#: Seconds between two looks at a report that is late; its worker is stalled before there are many.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Saturation:
    """Since when no worker of the crew (pod UIDs) has had an idle slot, and when the last of them joined.

    Unix seconds, both as the workers said and not as somebody looked.
    """

    since: float
    joined: float
    members: frozenset[str]


def track_saturation(fleet: Fleet, before: Saturation | None) -> Saturation | None:
    """Return since when no working member has had an idle slot, None when one has or nobody works.

    Tasks in flight are not asked for: a pool of one worker has none between two tasks of a backlog.
    """
    if not fleet.working or any(member.idle for member in fleet.working):
        return None
    last_reports = {member.pod.uid: _last_report(member) for member in fleet.working}
    if before is None:
        began = max(last_reports.values())
        return Saturation(began, began, frozenset(last_reports))
    joined = [at for uid, at in last_reports.items() if uid not in before.members]
    return Saturation(before.since, max([before.joined, *joined]), frozenset(last_reports))


def is_proven(full: Saturation, fleet: Fleet, now: float) -> bool:
    """Whether it has lasted, and each worker has said so since it began: an older word may be of a task long done.

    Beside one that has just joined, a free slot is no gap between two tasks of a backlog: the next task may have gone
    to the newcomer. Then it must last anew.
    """
    return now >= _lasted_at(full, fleet) and not _unheard(full, fleet)


def look_again_at(full: Saturation, fleet: Fleet, now: float) -> float | None:
    """Return when it may be proven, None when it is: a report that repeats the one before is no event."""
    if is_proven(full, fleet, now):
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

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
    crew: frozenset[str]


def saturation(fleet: Fleet, before: Saturation | None) -> Saturation | None:
    """Return since when no working member has had an idle slot, None when one has or nobody works.

    Tasks in flight are not asked for: a pool of one worker has none between two tasks of a backlog.
    """
    if not fleet.working or any(member.idle for member in fleet.working):
        return None
    crew = {member.pod.uid: _last_word(member) for member in fleet.working}
    if before is None:
        began = max(crew.values())
        return Saturation(began, began, frozenset(crew))
    joined = [said for uid, said in crew.items() if uid not in before.crew]
    return Saturation(before.since, max([before.joined, *joined]), frozenset(crew))


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
    words = [_last_word(m) + (m.said.interval_seconds if m.said else 0.0) for m in _unheard(full, fleet)]
    due = max([_lasted_at(full, fleet), *(word + LATE_SECONDS for word in words)])
    return due if due > now else now + LOOK_SECONDS


def _lasted_at(full: Saturation, fleet: Fleet) -> float:
    all_busy = all(member.busy >= member.slots for member in fleet.working)
    return (full.since if all_busy else full.joined) + SATURATED_SECONDS


def _unheard(full: Saturation, fleet: Fleet) -> list[Member]:
    return [member for member in fleet.working if _last_word(member) < full.since]


def _last_word(member: Member) -> float:
    return 0.0 if member.said is None else member.said.reported_at

"""Whether every slot of the pool stays busy: a sign of a backlog if there is no count."""

from dataclasses import dataclass, replace

from activity_operator.core.fleet import SATURATED_SHARE, Fleet, Member

#: Seconds for which every slot must be busy before the pool grows without a count.
SATURATED_SECONDS = 1.0
#: Mean seconds from a short task of a slot to its next one that prove that none waits: a few polls of AWS take less.
GAP_SECONDS = 0.25
#: Longest mean seconds of short tasks: several of them run between two reports.
SHORT_TASK_SECONDS = 1.0
#: Seconds that a report may take beyond its interval before the pool is decided again.
LATE_SECONDS = 0.1
#: Seconds between two decisions while a report is late. After a few of them the worker is stalled.
LOOK_SECONDS = 0.5
#: Seconds after which a step of growth is no longer waited for, if most workers of the pool have come.
STEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Saturation:
    """`since`: from when no worker has had an idle slot; `joined`: when the last of the `members` (pod UIDs) joined.

    Both are Unix seconds of reports, not of decisions. `step` is the number of workers that the pool grew by last, to
    `asked` workers at `asked_at`; 0 before the first step.
    """

    since: float
    joined: float
    members: frozenset[str]
    step: int = 0
    asked: int = 0
    asked_at: float = 0.0


def track_saturation(fleet: Fleet, before: Saturation | None) -> Saturation | None:
    """Return since when no working member has had an idle slot, None if one has or if no member works.

    Tasks in flight are no condition: a pool with one worker has none between two tasks of a backlog.
    """
    witnesses = fleet.witnesses
    if not witnesses or any(member.shows_no_backlog for member in witnesses) or _has_gaps(witnesses):
        return None
    last_reports = {member.pod.uid: _last_report(member) for member in witnesses}
    if before is None:
        began = max(last_reports.values())
        return Saturation(began, began, frozenset(last_reports))
    joined = [at for uid, at in last_reports.items() if uid not in before.members]
    return replace(before, joined=max([before.joined, *joined]), members=frozenset(last_reports))


def _has_gaps(witnesses: tuple[Member, ...]) -> bool:
    """Whether the slots run short tasks with gaps between them, by what the workers did before their last reports.

    A single gap between short tasks is too short to prove anything; the mean over all workers is not.
    """
    uses = [(member.slots, member.report.use) for member in witnesses if member.report and member.report.use]
    known = [(slots * use.seconds, use) for slots, use in uses if not use.joined]
    received = sum(use.received for _, use in known)
    all_seconds = sum(seconds for seconds, _ in known)
    busy_seconds = sum(use.busy_share * seconds for seconds, use in known)
    if received < len(witnesses) or busy_seconds > SHORT_TASK_SECONDS * received:
        return False
    return busy_seconds <= SATURATED_SHARE * all_seconds and all_seconds - busy_seconds >= GAP_SECONDS * received


def is_established(full: Saturation, fleet: Fleet, now: float) -> bool:
    """Whether saturation has lasted long enough and every worker has reported since it began.

    An older report may show a task that has ended. Right after a worker joins, a free slot of another worker may mean
    that the new worker took the next task. With a free slot, the time therefore counts from the last join.
    """
    return now >= _lasted_at(full, fleet) and not _outdated(full, fleet)


def next_step(full: Saturation, fleet: Fleet, now: float) -> Saturation:
    """Return the saturation after the next step of growth, or as it was if the last step is still awaited.

    The steps are 1, 2, 4 … workers, each beyond the workers that take tasks. So a load that needs one worker more costs
    one, and an endless backlog gets its workers in few steps. A step is awaited until half of its workers take tasks,
    and a second has passed since the last one joined, so that one missing pod does not stop growth. After a minute it
    is not awaited any more if most workers have come.
    """
    taking, known = len(fleet.polling), len(fleet.witnesses)
    if not full.step and known < taking:
        return full
    if full.step:
        come = known >= full.asked - full.step // 2 and now - full.joined >= SATURATED_SECONDS
        given_up = now - full.asked_at >= STEP_SECONDS and 2 * taking > len(fleet.serving)
        if not (come or given_up):
            return full
    step = min(max(2 * full.step, 1), max(taking, 1))
    waited = len(fleet.serving) - taking if full.step else 0
    return replace(full, step=step, asked=taking + min(waited, taking) + step, asked_at=now)


def look_again_at(full: Saturation, fleet: Fleet, now: float) -> float | None:
    """Return the Unix time at which saturation may be established or the pool may grow on, None if no time is known.

    A report without a change starts no decision, so the decision must be due at a time.
    """
    if is_established(full, fleet, now):
        times = [full.joined + SATURATED_SECONDS, full.asked_at + STEP_SECONDS]
        return min((at for at in times if full.step and at > now), default=None)
    due_reports = [_last_report(m) + (m.report.interval_seconds if m.report else 0.0) for m in _outdated(full, fleet)]
    due = max([_lasted_at(full, fleet), *(at + LATE_SECONDS for at in due_reports)])
    return due if due > now else now + LOOK_SECONDS


def unclear_until(fleet: Fleet, now: float) -> float | None:
    """Return the Unix time at which the next reports tell whether busy slots stay busy, None if a slot is not busy.

    The report that shows a task covers the time before it, in which the slot was free. The next one shows no other
    number of tasks, so it starts no decision.
    """
    witnesses = fleet.witnesses
    if not witnesses or any(member.busy < member.slots for member in witnesses):
        return None
    due = max(_last_report(one) + (one.report.interval_seconds if one.report else 0.0) for one in witnesses)
    return due + LATE_SECONDS if due + LATE_SECONDS > now else now + LOOK_SECONDS


def _lasted_at(full: Saturation, fleet: Fleet) -> float:
    all_busy = all(member.busy >= member.slots for member in fleet.witnesses)
    return (full.since if all_busy else full.joined) + SATURATED_SECONDS


def _outdated(full: Saturation, fleet: Fleet) -> list[Member]:
    """Return the witnesses that have not reported since saturation began."""
    return [member for member in fleet.witnesses if _last_report(member) < full.since]


def _last_report(member: Member) -> float:
    return 0.0 if member.report is None else member.report.reported_at

"""PURE: the workers that cannot do their work, for the status. A record changes only when its worker does."""

from collections.abc import Iterator
from datetime import datetime

from activity_operator.api.status import MAX_WORKERS_NAMED, PoolStatus, WorkerRecord
from activity_operator.core.fleet import Member
from activity_operator.core.growth_guard import first_report_due_at
from activity_operator.core.lifecycle_ring import ORDINARY_WAITS
from activity_operator.core.observation import PodFacts
from activity_operator.core.situation import Situation


def failing_workers(situation: Situation, before: PoolStatus, now: datetime) -> tuple[WorkerRecord, ...]:
    """Return the workers that cannot do their work, those of the longest time first, at most 20.

    A worker keeps the time that `before` has for it, the last status, as long as its state is the same. The texts have
    no number that grows, so that the status of a pool at rest does not change.
    """
    since = {(record.worker, record.state): record.since for record in before.workers}
    records = [
        WorkerRecord(
            worker=member.pod.name,
            revision=member.pod.revision,
            state=state,
            since=since.get((member.pod.name, state), now),
            reason=reason,
        )
        for member in situation.fleet.members
        for state, reason in _problem(situation, member)
    ]
    records.sort(key=lambda record: (record.since, record.worker))
    return tuple(records[:MAX_WORKERS_NAMED])


def _problem(situation: Situation, member: Member) -> Iterator[tuple[str, str]]:
    """Yield state and reason of a worker that cannot do its work; nothing for any other worker."""
    pod, report = member.pod, member.report
    if pod.unschedulable:
        yield "Unschedulable", "the scheduler finds no node for the pod"
    elif pod.waiting_reason not in ORDINARY_WAITS:
        yield "Waiting", ", ".join(filter(None, (pod.waiting_reason, _last_end(pod))))
    elif member.failed_start:
        yield "FailedStart", f"it ended before its first task: {member.failed_start}"
    elif first_report_due_at(situation.observation, member) <= situation.observation.now:
        yield "Mute", "its pod is ready, but it does not report: may it reach the operator's report Service?"
    elif member.stalled and not member.excused:
        yield "Silent", "its reports have stopped; its tasks count as running"
    elif member.serving and report is not None and report.poll_trouble is not None:
        yield "CannotPoll", " ".join(filter(None, (f"{report.poll_trouble.fault}:", report.poll_trouble.code)))


def _last_end(pod: PodFacts) -> str:
    code = "" if pod.last_exit_code is None else f"exit code {pod.last_exit_code}"
    return " ".join(filter(None, (pod.last_exit_reason, code)))

"""PURE: the workers that cannot do their work, for the status. A record changes only when its worker does."""

from collections.abc import Iterator
from datetime import datetime

from activity_operator.api.status import MAX_WORKERS_NAMED, PoolStatus, WorkerRecord
from activity_operator.core.fleet import Member
from activity_operator.core.growth_guard import first_report_due_at
from activity_operator.core.lifecycle_ring import ORDINARY_WAITS
from activity_operator.core.observation import PodFacts
from activity_operator.core.situation import Situation

#: The states that a worker's reports show, and not its pod.
_REPORTED = frozenset({"FailedStart", "Silent", "CannotPoll"})


def failing_workers(situation: Situation, before: PoolStatus, now: datetime) -> tuple[WorkerRecord, ...]:
    """Return the workers that cannot do their work, those of the longest time first, at most 20.

    A worker keeps the time that `before` has for it, the last status, as long as its state is the same. It keeps its
    whole record until it has reported to a new leader. The texts have no number that grows, so that the status of a
    pool at rest does not change.
    """
    former = {record.worker: record for record in before.workers}
    since = {(record.worker, record.state): record.since for record in before.workers}
    problems: list[tuple[datetime, str, str, str, str]] = []
    for member in situation.fleet.members:
        name, revision = member.pod.name, member.pod.revision
        found = [
            (since.get((name, state), now), name, revision, state, reason)
            for state, reason in _problem(situation, member)
        ]
        if not found and member.unheard and (last := former.get(name)) is not None and last.state in _REPORTED:
            found = [(last.since, name, revision, last.state, last.reason)]
        problems += found
    return tuple(
        WorkerRecord(worker=name, revision=revision, state=state, since=at, reason=reason)
        for at, name, revision, state, reason in sorted(problems)[:MAX_WORKERS_NAMED]
    )


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

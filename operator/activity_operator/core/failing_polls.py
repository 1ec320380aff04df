"""PURE: workers that cannot poll although others can. They count as capacity and take no task, so they are replaced."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from activity_operator.core.fleet import Member
from activity_operator.core.situation import Situation
from activity_worker.contract import PollFault

#: Seconds of failed polls after which a worker is replaced, and least seconds between two replacements of a pool.
REPLACE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class FailingPolls:
    """Since when workers cannot poll while most others can (Unix seconds, by pod UID); when one was last replaced."""

    since: Mapping[str, float] = field(default_factory=dict)
    replaced_at: float = 0.0


NO_FAILING_POLLS = FailingPolls()


def watched(situation: Situation, before: FailingPolls) -> tuple[FailingPolls, Member | None]:
    """Return who cannot poll after this observation, and the worker to replace now.

    A worker is replaced if it is idle, if more workers can poll than cannot, and if the source does not throttle it:
    otherwise another pod would fare no better. Only one is replaced in two minutes. The time counts only while most can
    poll: once a source is reachable again, some workers notice it before others.
    """
    fleet, now = situation.fleet, situation.observation.now
    failing = [member for member in fleet.working if _cannot_poll(member)]
    if len(fleet.polling) <= len(failing):
        return FailingPolls(replaced_at=before.replaced_at), None
    since = {member.pod.uid: before.since.get(member.pod.uid, now) for member in failing}
    due = [member for member in failing if since[member.pod.uid] <= now - REPLACE_SECONDS and not member.busy]
    if not due or now - before.replaced_at < REPLACE_SECONDS:
        return FailingPolls(since, before.replaced_at), None
    chosen = min(due, key=lambda member: (since[member.pod.uid], member.pod.uid))
    del since[chosen.pod.uid]
    return FailingPolls(since, now), chosen


def reason_to_replace(member: Member) -> str:
    """Return the sentence for people about the replacement of this worker."""
    trouble = member.report.poll_trouble if member.report is not None else None
    error = "" if trouble is None else f" ({': '.join(filter(None, (trouble.code, trouble.message)))})"
    text = f"worker {member.pod.name} could not poll for {REPLACE_SECONDS:.0f} s while others can{error}"
    return f"{text}; its pod is deleted, and another one starts"


def recheck_times(failing: FailingPolls) -> Iterator[float]:
    """Yield the Unix times at which time alone can make a worker due."""
    for since in failing.since.values():
        yield max(since, failing.replaced_at) + REPLACE_SECONDS


def _cannot_poll(member: Member) -> bool:
    trouble = member.report.poll_trouble if member.report is not None else None
    return trouble is not None and trouble.fault is not PollFault.THROTTLED

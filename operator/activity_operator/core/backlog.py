"""How many tasks wait, from three signals: the source's own count, Prometheus, and an estimate from CloudWatch.

The source's own count is exact. The other two are lower bounds and can only raise it. When a signal that the pool
relies on is missing, the backlog is unknown, and an unknown backlog never counts as zero.
"""

from dataclasses import dataclass

from activity_operator.core import backlog_estimate
from activity_operator.core.fleet import Member
from activity_operator.core.observation import BacklogCount, Observation, WorkerFacts
from activity_operator.core.situation import Situation

#: Seconds after which an exact count is stale. Exact counts are read several times a second; a source that allows few
#: counts names the age itself.
EXACT_STALE_SECONDS = 30.0
#: Seconds after which a lower bound is stale. It is read at least once a minute, so five reads have failed by then.
BOUND_STALE_SECONDS = 300.0
_NOT_YET = "the backlog has not been read yet"
_NOT_NOW = "the backlog cannot be read now"


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is known of the tasks that wait.

    `tasks` is None when no signal has a number; with `exact` False it is a lower bound. `unknown` says why new work
    might go unnoticed: a count that the pool relies on is missing, stale or unreadable. It is "" when all counts are
    fresh or the pool relies on none. `emptied_at` is the last moment at which the backlog was certainly empty, in Unix
    seconds, 0 if no such moment is known.
    """

    tasks: int | None = None
    exact: bool = True
    unknown: str = ""
    emptied_at: float = 0.0


def counts_source(situation: Situation) -> bool:
    """Whether the operator counts the source's tasks: the pool's size depends on it, and the policy allows it."""
    spec = situation.spec
    if spec.source_kind == "stepFunctions":
        return spec.activation.mode == "CloudWatch" and spec.replicas is None and _free(situation)
    return spec.activation.mode != "None" and _free(situation)


def asks_prometheus(situation: Situation) -> bool:
    """Whether the operator asks Prometheus how many tasks wait."""
    return situation.spec.scaling.prometheus is not None and _free(situation)


def _free(situation: Situation) -> bool:
    observation = situation.observation
    return not (situation.spec.paused or observation.refusal or observation.pool.deleting)


def known_backlog(situation: Situation, emptied_at: float) -> Backlog:
    """Return the backlog. `emptied_at` is the last known empty moment; idle workers and the status add later ones."""
    observation = situation.observation
    exact, unknown = _exact(situation)
    incomplete = any(one.truncated or one.missing for one in observation.source.counts)
    emptied_at = backlog_estimate.last_emptied_at(situation, emptied_at)
    bounds = [found for found in (_bound(situation), _estimate(situation, emptied_at)) if found is not None]
    unknown = unknown or next((why for _, why in bounds if why), "")
    least = max((tasks for tasks, _ in bounds if tasks is not None), default=None)
    if exact is None:
        return Backlog(least, exact=not (bounds or unknown), unknown=unknown, emptied_at=emptied_at)
    # A lower bound may include tasks that have been leased since.
    more = (least or 0) - situation.fleet.inflight - observation.source.held - observation.source.claimed
    return Backlog(max(exact, more), exact=not incomplete, unknown=unknown, emptied_at=emptied_at)


def stale_at(situation: Situation) -> float | None:
    """Return the Unix time at which the next count becomes stale; if all counts are stale, when the last one did.

    None if the pool relies on no count, or while counts of the source keep arriving: a failed read is an event itself.
    """
    observation = situation.observation
    counted = observation.source.metrics
    times = (
        []
        if counted is None or not counts_source(situation)
        else [counted.observed_at + backlog_estimate.STALE_SECONDS]
    )
    if observation.source.error is not None:
        times += [one.observed_at + _stale_seconds(one) for one in observation.source.counts]
    return min((at for at in times if at > observation.now), default=max(times, default=None))


def _exact(situation: Situation) -> tuple[int | None, str]:
    """Return the source's own count, and why it is missing or has gaps if the pool relies on it."""
    tasks, why = _fresh_count(situation, exact=True)
    why = why or next((one.missing for one in situation.observation.source.counts if one.missing), "")
    return tasks, why if situation.spec.source_kind != "stepFunctions" and counts_source(situation) else ""


def _bound(situation: Situation) -> tuple[int | None, str] | None:
    """Return Prometheus' count and why it is missing, or None if the pool has no Prometheus query."""
    return _fresh_count(situation, exact=False) if asks_prometheus(situation) else None


def _estimate(situation: Situation, emptied_at: float) -> tuple[int | None, str] | None:
    """Return the estimate from CloudWatch's counts and why it is missing, or None if the pool does not use it."""
    observation = situation.observation
    if situation.spec.source_kind != "stepFunctions" or not counts_source(situation):
        return None
    counted = observation.source.metrics
    if counted is None:
        return None, _NOT_YET
    if observation.now - counted.observed_at >= backlog_estimate.STALE_SECONDS:
        return None, f"the backlog was last read {backlog_estimate.STALE_SECONDS:.0f} s ago or earlier"
    tasks = (
        0
        if backlog_estimate.worker_is_idle(situation.fleet)
        else backlog_estimate.estimated_backlog(counted.periods, emptied_at)
    )
    return tasks, _NOT_NOW if observation.source.error is not None else ""


def _fresh_count(situation: Situation, *, exact: bool) -> tuple[int | None, str]:
    """Return the highest fresh count of this kind, or None and the reason why there is none."""
    observation = situation.observation
    fresh = (
        _waiting_tasks(one, situation)
        for one in observation.source.counts
        if one.exact is exact and observation.now - one.observed_at < _stale_seconds(one)
    )
    tasks = max(fresh, default=None)
    return tasks, "" if tasks is not None else _missing(observation, exact=exact)


def _missing(observation: Observation, *, exact: bool) -> str:
    """Return why there is no fresh count."""
    subject = "the backlog" if exact else "Prometheus' count of the backlog"
    ages = [_stale_seconds(one) for one in observation.source.counts if one.exact is exact]
    if ages:
        return f"{subject} was last read {max(ages):.0f} s ago or earlier"
    return (_NOT_NOW if observation.source.error is not None else _NOT_YET).replace("the backlog", subject)


def unreported_running(observation: Observation) -> int:
    """Return 1 if a running task may have lost its worker, or may be another program's; 0 otherwise.

    One worker is enough for all such tasks: it puts the lost ones back, and then they are counted as waiting. Until
    then a worker may be idle beside them.
    """
    return max((_unreported(count, observation) for count in observation.source.counts), default=0)


def _waiting_tasks(count: BacklogCount, situation: Situation) -> int:
    """Return the tasks that wait. A running task that no worker reports was a dead worker's and waits again."""
    if count.with_running:
        return max(count.tasks - _busy(situation.observation), 0)
    if count.stale_seconds:
        return _still_waiting(count, situation)
    return count.tasks + _unreported(count, situation.observation)


def _still_waiting(count: BacklogCount, situation: Situation) -> int:
    """Return how many tasks of a count that may be seconds old still wait.

    Tasks that workers have taken since, and those that the operator holds, are not counted twice. A truncated count
    says that tasks wait. A slot that has polled in vain since the count would have taken one of them, so no more tasks
    wait than there are such slots: they hold the pool, and start no worker.
    """
    source = situation.observation.source
    # Leases of the operator may be younger than the count.
    taken = source.held + source.claimed
    taken += sum(_taken_since(worker, count.observed_at) for worker in situation.observation.workers)
    tasks = max(count.tasks - taken, 1 if count.truncated else 0)
    idle = [
        m
        for m in situation.fleet.working
        if backlog_estimate.polls_without_task(m) and _idle_since(m) > count.observed_at
    ]
    return min(tasks, sum(member.slots - member.busy for member in idle)) if idle else tasks


def _taken_since(worker: WorkerFacts, at: float) -> int:
    """Return how many of the worker's tasks it took after `at` (Unix seconds), by the mean age of its tasks."""
    if not worker.busy:
        return 0
    return worker.busy if worker.running_seconds / worker.busy < worker.reported_at - at else 0


def _idle_since(member: Member) -> float:
    """Return the time of the member's last report, Unix seconds."""
    return 0.0 if member.report is None else member.report.reported_at


def _unreported(count: BacklogCount, observation: Observation) -> int:
    return min(max(count.running - _busy(observation), 0), 1)


def _busy(observation: Observation) -> int:
    return sum(worker.busy for worker in observation.workers)


def _stale_seconds(count: BacklogCount) -> float:
    return count.stale_seconds or (EXACT_STALE_SECONDS if count.exact else BOUND_STALE_SECONDS)

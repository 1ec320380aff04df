"""What is wrong with a pool, most urgent first. The status and the Events use this list."""

from collections.abc import Iterator
from dataclasses import dataclass

from activity_operator.api.conditions import Reason
from activity_operator.core import poll_errors, preflight, probing
from activity_operator.core.blocked_pods import first_blocked
from activity_operator.core.decision import Breaker
from activity_operator.core.observation import SourceProblem
from activity_operator.core.situation import Situation
from activity_worker.contract import WorkerState

#: Seconds, and report intervals, after which a worker's report is overdue. While reports cannot be authenticated, a
#: worker whose token was accepted before goes on to report.
OVERDUE_SECONDS = 10.0
OVERDUE_INTERVALS = 3
#: Seconds until the next decision about a pool with overdue reports: the end of the problem raises no event.
OVERDUE_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NotReadyReason:
    """Why a pool is not Ready.

    `exact`: the message comes from outside, and each new message gets an Event. Other messages name pods and numbers
    that change often, so only a new reason gets an Event.
    """

    topic: str
    reason: str
    message: str
    exact: bool = False

    @property
    def key(self) -> str:
        """The part that must change before the fault gets another Event."""
        return self.message if self.exact else self.reason


def not_ready_reasons(situation: Situation, breaker: Breaker) -> Iterator[NotReadyReason]:
    """Yield every fault of the pool, most urgent first."""
    observation = situation.observation
    if observation.refusal:
        yield NotReadyReason("refusal", Reason.TENANCY_DENIED, observation.refusal, exact=True)
    if observation.rejected:
        yield NotReadyReason("rejected", observation.rejected_reason, observation.rejected, exact=True)
    yield from _source_reasons(situation)
    if observation.authentication_problem and any(at <= observation.now for at in _overdue_times(situation)):
        yield NotReadyReason("reports", Reason.REPORTS_UNAUTHENTICATED, observation.authentication_problem)
    if breaker.open:
        yield NotReadyReason("breaker", breaker.reason, breaker.message)
    if (waits := first_blocked(situation)) is not None:
        yield NotReadyReason("blocked-pod", *waits)


def _source_reasons(situation: Situation) -> Iterator[NotReadyReason]:
    """Yield what the operator and the workers were refused at the source.

    At AWS the workers come first: they run the tasks, under an identity of their own, and what the operator was refused
    is often the same fault. A queue or a store tells more when the operator asks.
    """
    error = situation.observation.source.error
    counted = error is None and any(count.exact for count in situation.observation.source.counts)
    trouble = poll_errors.poll_error(situation, counted=counted)
    beside = served_without_polls(situation)
    refused = [] if error is None or error == beside else [NotReadyReason("source", error.reason, error.message)]
    if trouble is not None:
        refused.insert(0 if situation.spec.on_aws else len(refused), NotReadyReason("polls", *trouble))
    yield from refused
    if not refused and (fault := preflight.fault(situation)) is not None:
        yield NotReadyReason("preflight", fault.reason, fault.message)


def served_without_polls(situation: Situation) -> SourceProblem | None:
    """Return why the operator may not poll for a pool that works all the same, None for any other pool.

    The pool always has workers, and their polls succeed. A pool that must start from zero needs the operator's polls.
    """
    error = probing.own_poll_error(situation)
    if error is None or not situation.spec.min_workers or not preflight.workers_poll(situation):
        return None
    return error


def recheck_times(situation: Situation) -> Iterator[float]:
    """Yield the Unix times at which time alone can change `not_ready_reasons`."""
    now = situation.observation.now
    if situation.observation.authentication_problem:
        yield from (at if at > now else now + OVERDUE_LOOK_SECONDS for at in _overdue_times(situation))


def _overdue_times(situation: Situation) -> Iterator[float]:
    """Yield for each running worker the Unix time from which its next report is overdue."""
    for member in situation.fleet.members:
        report, pod = member.report, member.pod
        if report is not None and report.state is not WorkerState.STOPPED:
            yield report.reported_at + max(OVERDUE_SECONDS, OVERDUE_INTERVALS * report.interval_seconds)
        elif report is None and pod.running_since and not member.failed_start:
            yield max(pod.running_since, situation.observation.leader_since) + OVERDUE_SECONDS

"""What is wrong with a pool, most urgent first. The status and the Events use this list."""

from collections.abc import Iterator
from dataclasses import dataclass

from activity_operator.api.conditions import Reason
from activity_operator.core import poll_errors
from activity_operator.core.blocked_pods import first_blocked
from activity_operator.core.decision import Breaker
from activity_operator.core.situation import Situation


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
    if observation.source.error is not None:
        yield NotReadyReason("source", observation.source.error.reason, observation.source.error.message)
    counted = observation.source.error is None and any(count.exact for count in observation.source.counts)
    if (trouble := poll_errors.poll_error(situation, counted=counted)) is not None:
        yield NotReadyReason("polls", *trouble)
    if observation.authentication_problem:
        yield NotReadyReason("reports", Reason.REPORTS_UNAUTHENTICATED, observation.authentication_problem)
    if breaker.open:
        yield NotReadyReason("breaker", breaker.reason, breaker.message)
    if (waits := first_blocked(situation)) is not None:
        yield NotReadyReason("hindrance", *waits)

"""What is wrong with a pool, in the order in which a person should look at it: the one list for status and Events."""

from collections.abc import Iterator
from dataclasses import dataclass

from activity_operator.api.conditions import Reason
from activity_operator.api.spec import PoolSpec
from activity_operator.core import polls
from activity_operator.core.decision import Breaker
from activity_operator.core.fleet import Fleet
from activity_operator.core.hindrance import hindrance
from activity_operator.core.observation import Observation


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a pool is not Ready. `exact` messages come from outside and are said anew whenever they change.

    Those of the others name pods and numbers, so only another reason makes news of them.
    """

    topic: str
    reason: str
    message: str
    exact: bool = False

    @property
    def key(self) -> str:
        """What must change for the fault to be said again."""
        return self.message if self.exact else self.reason


def faults(spec: PoolSpec, seen: Observation, fleet: Fleet, breaker: Breaker) -> Iterator[Fault]:
    """Yield every fault there is, the first one first."""
    if seen.refusal:
        yield Fault("refusal", Reason.TENANCY_DENIED, seen.refusal, exact=True)
    if seen.rejected:
        yield Fault("rejected", seen.rejected_reason, seen.rejected, exact=True)
    if seen.source.error is not None:
        yield Fault("source", seen.source.error.reason, seen.source.error.message)
    counted = seen.source.error is None and any(signal.exact for signal in seen.source.signals)
    if (trouble := polls.trouble(spec, fleet, counted=counted)) is not None:
        yield Fault("polls", *trouble)
    if seen.unauthenticated:
        yield Fault("reports", Reason.REPORTS_UNAUTHENTICATED, seen.unauthenticated)
    if breaker.open:
        yield Fault("breaker", breaker.reason, breaker.message)
    if (waits := hindrance(seen, fleet)) is not None:
        yield Fault("hindrance", *waits)

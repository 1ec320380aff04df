"""PURE: how many polls a pool may open now, and when the next one."""

from dataclasses import dataclass

from activity_operator.core.decision import SentinelOrder

#: Polls at rest: one that the service believes open and the network has dropped must not blind the pool.
RESTING_POLLS = 2
#: Seconds for which Step Functions holds an empty poll, until an empty one was timed.
USUAL_HOLD_SECONDS = 60.0
#: The least seconds between two empty polls of one slot: some services answer at once instead of waiting.
LEAST_CYCLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PollState:
    """What is known of a pool's polls: how many are open, when the last was opened, how long an empty one takes."""

    open: int = 0
    last_opened: float = float("-inf")
    hold_seconds: float = USUAL_HOLD_SECONDS


def may_open(order: SentinelOrder, leases: int, polls: PollState) -> int:
    """Return how many polls may be opened, staggering aside.

    Every open poll may bring a lease, so `leases` (recorded or not, claimed but not shown) and open polls together stay
    within `order.take`. The one exception: while the pool holds nothing at all, its resting polls are opened even if
    `take` is smaller. Both may then bring a task; a pool that polls with one may not notice work for a minute.
    """
    if order.take <= 0:
        return 0
    room = order.take - leases - polls.open
    if not leases:
        room = max(room, RESTING_POLLS - polls.open)
    return max(0, min(order.polls - polls.open, room))


def stagger_seconds(order: SentinelOrder, polls: PollState, now: float) -> float:
    """Return how long to wait before the next poll: half a hold between resting polls, nothing in a fan-out."""
    if order.polls > RESTING_POLLS or polls.open == 0:
        return 0.0
    return max(0.0, polls.last_opened + polls.hold_seconds / 2 - now)

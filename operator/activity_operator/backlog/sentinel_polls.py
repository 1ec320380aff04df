"""PURE: how many polls a pool may open now, when it may open the next one, and what the answers prove."""

from dataclasses import dataclass, replace

from activity_operator.core.decision import SentinelOrder

#: Polls of a pool without demand. The second poll finds tasks when the network has silently dropped the first one.
RESTING_POLLS = 2
#: Seconds for which Step Functions holds an empty poll; used until the first empty poll is measured.
USUAL_HOLD_SECONDS = 60.0
#: Minimum seconds from one empty poll to the next, because some services answer at once instead of holding the poll.
LEAST_CYCLE_SECONDS = 1.0
#: Seconds within which a poll gets a task that waits: several round trips to a service in the same region.
AT_ONCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class PollState:
    """A pool's polls: when each open one was opened, and how long the service holds an empty one.

    `opened` are the times of the open polls, oldest first. `at_once` counts the answers in a row that brought a task
    at once.
    """

    opened: tuple[float, ...] = ()
    last_opened: float = float("-inf")
    hold_seconds: float = USUAL_HOLD_SECONDS
    at_once: int = 0

    @property
    def open(self) -> int:
        """How many polls are open."""
        return len(self.opened)


def with_poll(polls: PollState, now: float) -> PollState:
    """Return the state after a poll was opened."""
    return replace(polls, opened=(*polls.opened, now), last_opened=now)


def with_answer(polls: PollState, opened: float, now: float, *, task: bool) -> PollState:
    """Return the state after the poll that was opened at `opened` has ended, with a task or without."""
    left = list(polls.opened)
    left.remove(opened)
    at_once = polls.at_once + 1 if task and now - opened < AT_ONCE_SECONDS else 0
    return replace(polls, opened=tuple(left), at_once=at_once)


def may_open(order: SentinelOrder, leases: int, polls: PollState, allowance: int | None = None) -> int:
    """Return how many polls may be opened, without regard to staggering.

    Each open poll may return a lease, so `leases` (unrecorded, recorded and claimed) plus open polls stay within
    `order.take` and within `allowance`, the pool's part of the budget for all pools (None: no limit). There is one
    exception: a pool without leases opens its resting polls even if both are smaller. Both polls may then return a
    task, but with a single poll the pool may notice a task a minute late.
    """
    if order.take <= 0:
        return 0
    room = (order.take if allowance is None else min(order.take, allowance)) - leases - polls.open
    if not leases:
        room = max(room, RESTING_POLLS - polls.open)
    return max(0, min(order.polls - polls.open, room))


def stagger_seconds(order: SentinelOrder, polls: PollState, now: float) -> float:
    """Return the seconds to wait before the next poll: half a hold between resting polls, else 0."""
    if order.polls > RESTING_POLLS or polls.open == 0:
        return 0.0
    return max(0.0, polls.last_opened + polls.hold_seconds / 2 - now)

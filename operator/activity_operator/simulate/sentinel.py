"""PURE: the operator's own polls of a pool without workers, by the product's rules of `sentinel_polls`."""

from collections.abc import Callable
from functools import partial

from activity_operator.backlog.sentinel_polls import PollState, may_open, stagger_seconds, with_answer, with_poll
from activity_operator.core.decision import SentinelOrder
from activity_operator.simulate.tasks import Poll, Task, TaskSource
from activity_operator.simulate.timeline import Timeline

#: Seconds for which Step Functions holds an empty poll.
HOLD_SECONDS = 60.0


class SentinelPolls:
    """Keeps as many polls open as ordered. `leases` counts the pool's leases; `on_task` gets the task of a poll."""

    def __init__(
        self, timeline: Timeline, source: TaskSource, leases: Callable[[], int], on_task: Callable[[Task], None]
    ) -> None:
        self.state = PollState()
        self.answered_at = 0.0
        self._timeline = timeline
        self._source = source
        self._leases = leases
        self._on_task = on_task
        self._order = SentinelOrder()
        self._timer = 0.0

    def order(self, order: SentinelOrder) -> None:
        """Keep `order.polls` polls open from now on; open polls end by themselves."""
        self._order = order
        self.fill()

    def fill(self) -> None:
        """Open the polls that may be opened now, and plan the next one."""
        now = self._timeline.now
        while self._order.polls and may_open(self._order, self._leases(), self.state) > 0:
            wait = stagger_seconds(self._order, self.state, now)
            if wait > 0:
                if self._timer <= now:
                    self._timer = now + wait
                    self._timeline.at(self._timer, self.fill)
                return
            self.state = with_poll(self.state, now)
            poll = Poll(now, self._receive)
            self._source.open(poll)
            self._timeline.after(HOLD_SECONDS, partial(self._expire, poll))

    def _receive(self, poll: Poll, task: Task) -> None:
        self._answer(poll, task=True)
        self._on_task(task)
        self.fill()

    def _expire(self, poll: Poll) -> None:
        if self._source.close(poll):
            self._answer(poll, task=False)
            self.fill()

    def _answer(self, poll: Poll, *, task: bool) -> None:
        self.state = with_answer(self.state, poll.opened, self._timeline.now, task=task)
        self.answered_at = self._timeline.now

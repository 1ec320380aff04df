"""PURE: a worker of the product in virtual time: its pod, its reports and how it obeys directives.

The rules of its reports are those of the worker's `report_state`; how the operator answers is the product's own
`WorkerRegistry`.
"""

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from activity_operator.core.observation import PodFacts
from activity_operator.simulate.tasks import Poll, Task
from activity_operator.simulate.workers import Worker
from activity_worker.contract import Counters, Directive, HeldLease, Report, WorkerState

if TYPE_CHECKING:
    from activity_operator.simulate.operator_pool import OperatorPool

#: Seconds before its first report for which a container has run: the import of the handler.
IMPORT_SECONDS = 1.0
#: Seconds between two readiness probes of a pod.
PROBE_SECONDS = 2.0
#: Seconds between two reports of a worker whose slots changed, and from a change to its report.
EARLY_SECONDS, SEND_SECONDS = 0.25, 0.02
KEY = ("default", "pool")

_READY = {WorkerState.RUNNING, WorkerState.DRAINING}
_SERVE = {Directive.RUN, Directive.STANDBY}
_AT_ONCE = {WorkerState.DRAINING, WorkerState.DRAINED}


class OperatorWorker(Worker):
    """One pod of an ActivityPool. `facts` is what the operator's watch shows of it."""

    pool: "OperatorPool"

    def __init__(self, pool: "OperatorPool", number: int) -> None:
        super().__init__(pool, number)
        self.facts = PodFacts(
            f"pod-{number}", f"uid-{number}", pool.revision, "Pending", float(math.floor(self.created))
        )
        self.state = WorkerState.STARTING
        self.offered: list[Task] = []
        self.stands_by = False
        #: Claimed leases that no report has shown yet.
        self.unshown = 0
        self.empty_polls = 0
        self._sequence = 0
        self._sent_at = 0.0
        self._interval = 1.0
        self._early = False
        self._sent: tuple[WorkerState, int] = (WorkerState.STARTING, 0)
        self._due = math.inf
        delay = pool.start_delay()
        pool.timeline.after(delay - min(IMPORT_SECONDS, delay / 2), self._container_runs)
        pool.timeline.after(delay, self._up)

    @property
    def serves(self) -> bool:
        """Whether the worker has started, and takes tasks: from its own polls, or as leases."""
        return self.state is WorkerState.RUNNING

    @property
    def engaged(self) -> bool:
        """Whether a removal of the pod would interrupt a task, or a poll or lease that may bring one."""
        return bool(self.tasks or self.polls or self.offered)

    def changed(self) -> None:
        """Report a change early where the rules allow it."""
        self._end_drain()
        self._schedule()

    def next_task(self) -> None:
        """Take a lease of the operator, which was offered ahead, or poll."""
        if (self.accepts or self.stands_by) and self.pool.held:
            self.pool.offered += 1
            self.offered.append(self.pool.held.popleft())
        self.fill()

    @property
    def free_slots(self) -> int:
        """Slots with neither a task, a poll nor an offered lease."""
        return super().free_slots - len(self.offered)

    def receive(self, poll: Poll, task: Task) -> None:
        """Take the task of a poll, and count the empty polls before it."""
        self.empty_polls += self._renewals(poll.opened)
        super().receive(poll, task)

    def _renewals(self, opened: float) -> int:
        return int((self.pool.timeline.now - opened) / self.pool.hold_seconds)

    def _container_runs(self) -> None:
        if not self.ended:
            self._put(phase="Running", running_since=float(math.floor(self.pool.timeline.now)))

    def _up(self) -> None:
        if not self.ended:
            self._report()

    def _put(self, **changes: object) -> None:
        self.facts = replace(self.facts, **changes)  # type: ignore[arg-type]
        self.pool.wake()

    def _move(self, state: WorkerState) -> None:
        """Enter a state; the readiness probe shows it later."""
        self.state = state
        now, up = self.pool.timeline.now, self.created
        self.pool.timeline.at(up + math.ceil((now - up) / PROBE_SECONDS) * PROBE_SECONDS, self._probe)

    def _probe(self) -> None:
        ready = self.state in _READY
        if not self.ended and ready != self.facts.ready:
            since = float(math.floor(self.pool.timeline.now)) if ready else 0.0
            self._put(ready=ready, ready_since=since)

    def _schedule(self) -> None:
        """Plan the next report if it is due earlier than planned."""
        if self._sequence == 0 or self.ended:
            return
        now = self.pool.timeline.now
        at = max(self._wanted_at(), now + SEND_SECONDS)
        if at < self._due:
            self._due = at
            self.pool.timeline.at(at, lambda: self._report() if self._due == at and not self.ended else None)

    def _wanted_at(self) -> float:
        state, busy = self._sent
        if self.offered or (self.state is not state and self.state in _AT_ONCE):
            return -math.inf
        slots = self.pool.slots
        edge = (self.busy >= slots) != (busy >= slots) or (self.busy == 0) != (busy == 0)
        spacing = EARLY_SECONDS if self._early and edge else self._interval
        return self._sent_at + min(spacing, self._interval)

    def _report(self) -> None:
        """Send a report and obey the reply."""
        pool, now = self.pool, self.pool.timeline.now
        claims, self.offered = self.offered, []
        pool.claimed -= self.unshown
        self.unshown = len(claims)
        pool.offered -= len(claims)
        pool.claimed += len(claims)
        self._sequence += 1
        self._sent_at, self._due, self._sent = now, math.inf, (self.state, self.busy)
        receipt = pool.registry.record(self._compose(len(claims)), now, hurry=bool(pool.held))
        self._interval, self._early = receipt.next_report_seconds, receipt.early_report
        for task in claims:
            pool.costs.writes += 1
            self.start(task)
        self._obey(receipt.directive)
        self._schedule()

    def _compose(self, claims: int) -> Report:
        pool, free = self.pool, self.busy < self.pool.slots
        waits = free and self.state is WorkerState.RUNNING
        empty = self.empty_polls + sum(self._renewals(poll.opened) for poll in self.polls)
        counters = Counters(self.received, self.received - self.busy, 0, 0, empty, self.busy_seconds())
        return Report(
            *KEY, self.facts.name, self.facts.uid, "1", self._sequence, self.state, pool.slots, self.busy,
            open_polls=len(self.polls), idle_seconds=pool.timeline.now - self.idle_since if waits else 0.0,
            leases=tuple(HeldLease(str(n), self._age(task)) for n, task in enumerate(self.tasks)),
            counters=counters, claims=tuple(f"lease-{number}" for number in range(claims)),
        )  # fmt: skip

    def _age(self, task: Task) -> float:
        return self.pool.timeline.now - (task.started or self.pool.timeline.now)

    def _obey(self, directive: Directive) -> None:
        if directive is Directive.DRAIN and self.state in {WorkerState.STARTING, WorkerState.RUNNING}:
            self._drain()
            return
        if self.state is WorkerState.STARTING or (directive in _SERVE and self.state is WorkerState.DRAINING):
            self._move(WorkerState.RUNNING)
            self.idle_since = self.pool.timeline.now
        if self.state is WorkerState.RUNNING:
            self._take_offers()
            self._stand_by(directive is Directive.STANDBY)

    def _stand_by(self, on: bool) -> None:
        """Open no further poll (True), or poll (False)."""
        self.stands_by = on
        if on and self.accepts:
            self.accepts = False
            self._end_polls()
        elif not on and not self.accepts:
            self.accepts = True
            self.fill()

    def _take_offers(self) -> None:
        """Take the leases that the reply offers to the slots that have no open poll."""
        pool = self.pool
        while pool.held and self.free_slots > 0:
            pool.offered += 1
            self.offered.append(pool.held.popleft())

    def _drain(self) -> None:
        """Take no new poll; the open ones end by themselves."""
        self.accepts = self.stands_by = False
        self._move(WorkerState.DRAINING)
        self._end_polls()
        self._end_drain()

    def _end_polls(self) -> None:
        """Close each open poll at its end, unless the worker polls again by then."""
        pool = self.pool
        for poll in self.polls:
            ends = poll.opened + (self._renewals(poll.opened) + 1) * pool.hold_seconds
            pool.timeline.at(ends, partial(self._poll_ends, poll))

    def _poll_ends(self, poll: Poll) -> None:
        if not self.accepts and poll in self.polls and self.pool.source.close(poll):
            self.polls.remove(poll)
            self.empty_polls += self._renewals(poll.opened)
            self._end_drain()
            self._schedule()

    def _end_drain(self) -> None:
        """Be drained once the worker has neither task nor poll."""
        if self.state is WorkerState.DRAINING and not self.engaged:
            self._move(WorkerState.DRAINED)

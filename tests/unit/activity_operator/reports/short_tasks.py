"""A pool with an endless backlog of short tasks in a large fleet, in virtual time.

Real are the decision, the registry, the handler of reports, and the workers' side of the report protocol. A worker's
slot runs a task, is free for a short gap, and takes the next task.
"""

import heapq
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from activity_operator.core.decide import decide
from activity_operator.core.decision import ApplyRevision, ScalingMemory, SetReplicas
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, Observation, PodFacts, PoolFacts
from activity_operator.leases.handover import LeaseAnswers
from activity_operator.reports.handler import ReportHandler
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import Counters, Reply, WorkerState
from activity_worker.supervisor.report_state import PodIdentity, ReportState, WorkerSnapshot
from tests.unit.activity_operator.core.pool_harness import pool_spec
from tests.unit.activity_operator.reports.builders import report

START = 1_000_000.0
KEY = ("team", "resize")
POD_START_SECONDS = 20.0


class NoLeases:
    """Stands for the handover of leases: there are none."""

    def waiting(self, key: tuple[str, str]) -> bool:
        return False

    async def answer(self, *_: object, **__: object) -> LeaseAnswers:
        return LeaseAnswers()


@dataclass
class Worker:
    """One worker with one slot. `changed_at` is the time of the slot's last change."""

    pod: PodFacts
    state: ReportState
    phase: WorkerState = WorkerState.STARTING
    busy: bool = False
    changed_at: float = 0.0
    received: int = 0
    busy_seconds: float = 0.0

    def snapshot(self, now: float) -> WorkerSnapshot:
        """Return what the worker does now."""
        lasted = now - self.changed_at
        counters = Counters(received=self.received, busy_seconds=self.busy_seconds + (lasted if self.busy else 0.0))
        idle = 0.0 if self.busy else lasted
        polls = int(not self.busy)
        return WorkerSnapshot(self.phase, busy=int(self.busy), open_polls=polls, idle_seconds=idle, counters=counters)


@dataclass
class ShortTasks:
    """The pool in a fleet of `fleet` workers; each task takes `seconds`, and `gap` passes between two of them."""

    fleet: int
    seconds: float
    gap: float = 0.1
    max_workers: int = 64
    now: float = START
    #: When the pool had each number of replicas for the first time, in seconds since the start.
    grown: dict[int, float] = field(default_factory=dict)
    reports: int = 0

    def __post_init__(self) -> None:
        # The operator may not poll, so that only the slots show the backlog.
        self.spec = pool_spec(maxWorkers=self.max_workers, minWorkers=1, activation={"mode": "None"})
        self.revision = revision_of(self.spec)
        self.memory = ScalingMemory()
        self.registry = WorkerRegistry(lambda *key: self._wake(key), jitter=lambda: 0.5)
        self.handler = ReportHandler(self.registry, cast("Any", NoLeases()), term=lambda: 1, now=lambda: self.now)
        self.workers: list[Worker] = []
        self.replicas = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._look_due = math.inf
        # The other workers of the fleet report at some later time: their number sets the interval.
        for number in range(self.fleet):
            other = report(namespace="others", pool=f"pool-{number % 50}", pod_uid=f"other-{number}")
            self.registry.record(other, START + 1e6)
        self._wake(KEY)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = end

    def _at(self, at: float, call: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (max(at, self.now), self._serial, call))

    def _wake(self, key: tuple[str, ...]) -> None:
        if key == KEY:
            self._look_at(self.now)

    def _look_at(self, at: float) -> None:
        if at < self._look_due:
            self._look_due = at
            self._at(at, lambda: self._look() if at == self._look_due else None)

    def _look(self) -> None:
        self._look_due = math.inf
        decision = decide(self.spec, self._observe(), self.memory)
        self.memory = decision.memory
        self.registry.set_directives(*KEY, decision.directives)
        for action in decision.actions:
            if isinstance(action, ApplyRevision | SetReplicas):
                self._scale(action.replicas)
        if decision.look_again_in is not None:
            self._look_at(self.now + decision.look_again_in)

    def _observe(self) -> Observation:
        deployment = DeploymentFacts("d", "d", "1", self.revision, 1, self.replicas)
        path = self.registry.report_path(*KEY, self.now, self.spec.stalled.deadline_seconds)
        return Observation(
            now=self.now,
            pool=PoolFacts(*KEY, "pool-uid", 1, proven_revision=self.revision),
            deployments=(deployment,) if self.replicas else (),
            pods=tuple(worker.pod for worker in self.workers),
            workers=self.registry.workers(*KEY),
            report_path_problem=path.problem,
            excused_workers=path.excused,
        )

    def _scale(self, replicas: int) -> None:
        for number in range(self.replicas, replicas):
            uid = f"w{number}"
            pod = PodFacts(uid, uid, self.revision, "Pending", self.now)
            worker = Worker(pod, ReportState(PodIdentity(*KEY, uid, uid, "one", slots=1)))
            self.workers.append(worker)
            # Starts differ by up to a second, as those of real pods do.
            self._at(self.now + POD_START_SECONDS + number % 10 / 10, partial(self._start, worker))
        self.replicas = max(self.replicas, replicas)
        self.grown.setdefault(self.replicas, self.now - START)
        self._wake(KEY)

    def _start(self, worker: Worker) -> None:
        worker.pod = PodFacts(
            worker.pod.name, worker.pod.uid, self.revision, "Running", worker.pod.created,
            ready=True, ready_since=self.now, running_since=self.now,
        )  # fmt: skip
        worker.changed_at = self.now
        self._report_when_due(worker)
        worker.phase = WorkerState.RUNNING
        self._at(self.now + self.gap, lambda: self._turn(worker))

    def _turn(self, worker: Worker) -> None:
        """Take a task, or end it."""
        if worker.busy:
            worker.busy_seconds += self.now - worker.changed_at
        else:
            worker.received += 1
        worker.busy, worker.changed_at = not worker.busy, self.now
        self._at(self.now + (self.seconds if worker.busy else self.gap), lambda: self._turn(worker))
        self._report_when_due(worker)

    def _report_when_due(self, worker: Worker) -> None:
        snapshot = worker.snapshot(self.now)
        due = worker.state.due_at(snapshot)
        if due > self.now:
            self._at(due, lambda: self._report_if_due(worker))
            return
        self.reports += 1
        sent = worker.state.compose(snapshot, self.now)
        worker.state.answered(_result(self.handler.answer(sent)))
        self._at(worker.state.due_at(snapshot), lambda: self._report_if_due(worker))

    def _report_if_due(self, worker: Worker) -> None:
        if worker.state.due_at(worker.snapshot(self.now)) <= self.now:
            self._report_when_due(worker)


def _result(answering: Coroutine[Any, Any, Reply]) -> Reply:
    """Return the result of a coroutine that waits for nothing."""
    try:
        answering.send(None)
    except StopIteration as done:
        return cast("Reply", done.value)
    raise AssertionError("the handler waits")

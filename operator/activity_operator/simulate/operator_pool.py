"""PURE: a pool under this operator in virtual time. Every size, directive and poll order comes from `core.decide`."""

import math
import random
from collections import deque
from dataclasses import replace

from activity_operator.api.spec import PoolSpec
from activity_operator.backlog.task_list_pace import FASTEST_SECONDS, SLOW_SECONDS
from activity_operator.core.backlog import EXACT_STALE_SECONDS
from activity_operator.core.decide import decide
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    CountPace,
    DeletePod,
    EmitEvent,
    ScalingMemory,
    SetDeletionCost,
    SetReplicas,
)
from activity_operator.core.manifests import deployment_name, revision_of
from activity_operator.core.observation import BacklogCount, DeploymentFacts, Observation, PoolFacts, SourceFacts
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_operator.simulate.operator_worker import KEY, OperatorWorker
from activity_operator.simulate.sentinel import HOLD_SECONDS, SentinelPolls
from activity_operator.simulate.tasks import Task
from activity_operator.simulate.timeline import Timeline
from activity_operator.simulate.workers import WorkerPool

#: Least seconds between two decisions; the operator combines its raises of replicas over the same time.
DECISION_SECONDS = 0.25
#: Seconds from a change to the decision, and from a change of the backlog to the operator's next count.
REACTION_SECONDS, COUNT_SECONDS = 0.02, 0.1
#: Seconds between two counts of a task list that is alone in its region, by its pace (`task_list_pace`).
LIST_SECONDS = {CountPace.FAST: FASTEST_SECONDS, CountPace.STEADY: FASTEST_SECONDS, CountPace.SLOW: SLOW_SECONDS}
#: Least seconds between two changes of the count that reach a decision (`poll_rounds.ANNOUNCE_SECONDS`).
ANNOUNCE_SECONDS = 0.25
#: Seconds of a worker's poll of a source with a count (`redis_keys.BLOCK_SECONDS`), and from such a poll to its task.
BLOCK_SECONDS, COUNTED_POLL_SECONDS = 3.0, 0.002
#: Seconds from a poll of Step Functions to a task that waits: measured from a cluster in the same region.
LONG_POLL_SECONDS = 0.08
#: Writes of a lease: its record, its owner (counted at the claim), its removal.
LEASE_WRITES = 2

_PHASES = {"Pending": 0, "Running": 1}


class OperatorPool(WorkerPool):
    """One ActivityPool with a leader since long ago and a proven revision. The manifest decides the kind of source."""

    name = "activitypool"
    workers: dict[int, OperatorWorker]  # type: ignore[assignment]

    def __init__(
        self,
        timeline: Timeline,
        random_source: random.Random,
        spec: PoolSpec,
        *,
        start_seconds: float,
        first_poll_seconds: float = 0.0,
    ) -> None:
        self.counted = spec.source_kind != "stepFunctions"
        long_polls = spec.on_aws
        super().__init__(
            timeline,
            random_source,
            slots=spec.slots_per_worker,
            start_seconds=start_seconds,
            poll_seconds=LONG_POLL_SECONDS if long_polls else COUNTED_POLL_SECONDS,
        )
        self.spec = spec
        self.first_poll_seconds = first_poll_seconds if long_polls else 0.0
        self.hold_seconds = HOLD_SECONDS if long_polls else BLOCK_SECONDS
        self.revision = revision_of(spec)
        self.held: deque[Task] = deque()
        #: Leases offered to a worker and not claimed yet; leases claimed and not shown in a report yet.
        self.offered = self.claimed = 0
        self.registry = WorkerRegistry(lambda *_: self.wake(), jitter=random_source.random)
        self.registry.begin_term(0.0, 0)
        self.memory = ScalingMemory()
        self.sentinel = SentinelPolls(timeline, self.source, self._leases, self._hold)
        self._facts = PoolFacts(*KEY, "pool-uid", 1, proven_revision=self.revision)
        self._deployment: DeploymentFacts | None = None
        self._count = 0
        self._count_due = self._told_at = self._counted_at = -math.inf
        self._pace = CountPace.STEADY
        self._decided_at = -math.inf
        self._due = math.inf

    def begin(self) -> None:
        """Decide for the first time, so that the pool exists when the trace begins."""
        self.source.on_waiting = self._count_changes
        self.wake()

    def wake(self) -> None:
        """Decide soon."""
        now = self.timeline.now
        self._decide_at(max(now + REACTION_SECONDS, self._decided_at + DECISION_SECONDS))

    def _decide_at(self, at: float) -> None:
        if at < self._due:
            self._due = at
            self.timeline.at(at, lambda: self._decide() if self._due == at else None)

    @property
    def waiting(self) -> int:
        """Number of tasks that have not begun: at the source, and as leases that no worker has claimed."""
        return super().waiting + len(self.held) + self.offered

    def _leases(self) -> int:
        return len(self.held) + self.offered + self.claimed

    def _hold(self, task: Task) -> None:
        """Record the task of one of the operator's polls as a lease."""
        self.costs.writes += LEASE_WRITES
        self.held.append(task)
        self.wake()

    def _count_changes(self) -> None:
        """Count the waiting tasks a moment later, and not too often."""
        if self.counted and self._count_due < self.timeline.now:
            self._count_at(max(self.timeline.now + self._count_wait(), self._told_at + ANNOUNCE_SECONDS))

    def _count_wait(self) -> float:
        """Return the seconds until the next count: of a task list any part of its interval."""
        if self.spec.swf is None:
            return COUNT_SECONDS
        return LIST_SECONDS[self._pace] * self.random.random()

    def _count_at(self, at: float) -> None:
        self._count_due = at
        self.timeline.at(at, lambda: self._count_now() if self._count_due == at else None)

    def _count_now(self) -> None:
        self._counted_at = self.timeline.now
        if len(self.source.waiting) != self._count:
            self._count, self._told_at = len(self.source.waiting), self.timeline.now
            self.wake()

    def _observe(self) -> Observation:
        now = self.timeline.now
        path = self.registry.report_path(*KEY, now, self.spec.stalled.deadline_seconds)
        running = self.busy() if self.spec.source_kind == "taskStore" else 0
        if self.spec.swf is None:
            count = BacklogCount(self._count + running, True, now, with_running=self.spec.source_kind == "taskStore")
        else:
            counted_at = max(self._counted_at, now - LIST_SECONDS[self._pace])
            count = BacklogCount(self._count, True, counted_at, stale_seconds=EXACT_STALE_SECONDS)
        source = SourceFacts(
            open_polls=self.sentinel.state.open,
            held=len(self.held) + self.offered,
            claimed=self.claimed,
            counts=(count,) if self.counted and self.spec.activation.mode != "None" else (),
            observed_at=self.sentinel.answered_at,
            oldest_poll_at=next(iter(self.sentinel.state.opened), 0.0),
            newest_poll_at=next(reversed(self.sentinel.state.opened), 0.0),
            at_once=self.sentinel.state.at_once,
        )
        return Observation(
            now=now,
            pool=self._facts,
            deployments=() if self._deployment is None else (self._deployment,),
            pods=tuple(worker.facts for worker in self.workers.values()),
            workers=self.registry.workers(*KEY),
            source=source,
            report_path_problem=path.problem,
            excused_workers=path.excused,
            tasks=self.registry.tasks(*KEY, now),
        )

    def _decide(self) -> None:
        self._decided_at, self._due = self.timeline.now, math.inf
        decision = decide(self.spec, self._observe(), self.memory)
        self.memory = decision.memory
        self.want(decision.size.desired)
        for action in decision.actions:
            self._apply(action)
        self.registry.set_directives(*KEY, decision.directives)
        self.sentinel.order(decision.sentinel)
        self._pace = decision.sentinel.pace
        if self.spec.swf is not None and self._count_due > self.timeline.now + LIST_SECONDS[self._pace]:
            self._count_at(self.timeline.now + self._count_wait())
        if decision.look_again_in is not None:
            self._decide_at(self.timeline.now + max(decision.look_again_in, REACTION_SECONDS))

    def _apply(self, action: Action) -> None:
        """Carry out one write."""
        self.costs.writes += 1
        match action:
            case ApplyRevision():
                name = deployment_name(self._facts, self.revision)
                self._deployment = DeploymentFacts(name, "uid", "1", self.revision, 1, action.replicas)
                self._reconcile()
            case SetReplicas():
                if self._deployment is not None:
                    self._deployment = replace(self._deployment, replicas=action.replicas)
                    self._reconcile()
            case SetDeletionCost():
                worker = self._worker(action.pod)
                if worker is not None:
                    worker.facts = replace(worker.facts, deletion_cost=action.cost)
            case DeletePod():
                worker = self._worker(action.pod)
                if worker is not None:
                    self._remove(worker)
                    self._reconcile()
            case EmitEvent():
                pass
            case _:
                raise RuntimeError(f"the simulator knows no {type(action).__name__}: a pool has one revision here")
        if not isinstance(action, EmitEvent):
            self.wake()

    def _worker(self, pod: str) -> OperatorWorker | None:
        return self.workers.get(int(pod.removeprefix("pod-")))

    def _reconcile(self) -> None:
        """Create and remove pods as a ReplicaSet does; among equal pods it removes a busy one first."""
        replicas = 0 if self._deployment is None else self._deployment.replicas
        for _ in range(replicas - len(self.workers)):
            self.add(OperatorWorker)  # type: ignore[arg-type]
        surplus = len(self.workers) - replicas
        if surplus > 0:
            for worker in sorted(self.workers.values(), key=_removal_order)[:surplus]:
                self._remove(worker)

    def _remove(self, worker: OperatorWorker) -> None:
        self.count_interrupted(worker)
        self.end(worker)
        self.registry.forget(worker.facts.uid)


def _removal_order(worker: OperatorWorker) -> tuple[int, bool, int, bool]:
    facts = worker.facts
    return (_PHASES[facts.phase], facts.ready, facts.deletion_cost or 0, not worker.engaged)

"""One leader's term over a `Truth`: the changes it has received, its decisions, and the results of its writes.

A new leader starts with a LIST of the objects and the pool's status, and nothing else. Its watch may lag.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import (
    Action,
    ApplyRevision,
    Decision,
    DeleteDeployment,
    DeletePod,
    EmitEvent,
    ScalingMemory,
    SentinelOrder,
    SetDeletionCost,
    SetReplicas,
)
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import (
    BacklogCount,
    DeploymentFacts,
    Observation,
    PodFacts,
    PoolFacts,
    SourceFacts,
    SourceProblem,
)
from activity_operator.core.task_window import TaskWindow
from activity_operator.reports.worker_registry import WorkerRegistry
from activity_worker.contract import ExitOutput, Report, WorkerState
from tests.unit.activity_operator.core.truth import SENTINEL_POLL_SECONDS, Pod, Process, Truth

#: Seconds from a refused write until the next look.
AGAIN_SECONDS = 0.5
KEY = ("team", "resize")


class ConflictError(Exception):
    """The object has changed since it was observed."""


class Term:
    """A leader from `truth.now` on. `proven` is the proven revision in the pool's status."""

    def __init__(self, truth: Truth, spec: PoolSpec, generation: int, proven: str) -> None:
        self.truth, self.spec, self.generation, self.proven = truth, spec, generation, proven
        #: The operator's version: another one renders another pod template.
        self.version = 1
        #: The stopped revision in the pool's status, as a former leader left it.
        self.stopped = ""
        self.since = truth.now
        self.memory = ScalingMemory()
        self.registry = WorkerRegistry(lambda *_: self.wake(), jitter=lambda: 0.5)
        self.deployments = dict(truth.deployments)
        self.pods = {name: pod.facts for name, pod in truth.pods.items()}
        self.registry.begin_term(truth.now, len(self.pods))
        self.lag = 0.0
        self.blind = False
        self.source = SourceFacts()
        #: Returns the facts about the source, if a test sets its own.
        self.counted: Callable[[], SourceFacts] | None = None
        #: Returns what the workers did lately, if a test sets its own.
        self.tasks: Callable[[float], TaskWindow] | None = None
        self.due: float | None = truth.now
        self.decision: Decision | None = None
        self.events: list[EmitEvent] = []
        self._answers = 0
        self._arriving: deque[tuple[float, str, str, PodFacts | DeploymentFacts | None]] = deque()

    def wake(self) -> None:
        """Look at once."""
        self.due = self.truth.now

    def on_change(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        """Receive a change from the watch, `lag` seconds later."""
        if self.lag or self._arriving:
            last = self._arriving[-1][0] if self._arriving else 0.0
            self._arriving.append((max(last, self.truth.now + self.lag), kind, name, facts))
        else:
            self._take_in(kind, name, facts)

    def listen(self) -> None:
        """Process the watch's events, the source's count and the workers' reports that have arrived."""
        while self._arriving and self._arriving[0][0] <= self.truth.now:
            _, kind, name, facts = self._arriving.popleft()
            self._take_in(kind, name, facts)
        self._count()
        for pod in list(self.truth.pods.values()):
            if (
                pod.process is not None
                and not pod.cut
                and pod.facts.name in self.pods  # the report of an unknown pod is refused
                and self.truth.now >= max(pod.process.report_at, pod.process.up_at)
            ):
                self._hear(pod, pod.process)
        # A report that shows a lease as running ends its place among the held ones.
        self._count()

    def observe(self) -> Observation:
        """Return the observation of this moment."""
        now = self.truth.now
        path = self.registry.report_path(*KEY, now, self.spec.stalled.deadline_seconds)
        return Observation(
            now=now,
            pool=PoolFacts(
                *KEY, "pool-uid", self.generation, proven_revision=self.proven, stopped_revision=self.stopped
            ),
            deployments=tuple(self._compared(found) for found in self.deployments.values()),
            pods=tuple(sorted(self.pods.values(), key=lambda pod: pod.name)),
            workers=self.registry.workers(*KEY),
            source=self.source,
            leader_since=self.since,
            report_path_problem=path.problem,
            excused_workers=path.excused,
            tasks=self.registry.tasks(*KEY, now) if self.tasks is None else self.tasks(now),
        )

    def look(self) -> tuple[Observation, ScalingMemory, Decision, bool]:
        """Decide once and carry it out; the last value tells whether an answer to a write changed the leader's view.

        Answers to deletions do not count: the watch reports that an object is gone.
        """
        observation, before, answers = self.observe(), self.memory, self._answers
        decision = self.decision = decide(self.spec, observation, before)
        self.memory = decision.memory
        self.due = None if decision.look_again_in is None else self.truth.now + decision.look_again_in
        writes = [action for action in decision.actions if not isinstance(action, EmitEvent)]
        self.events += [action for action in decision.actions if isinstance(action, EmitEvent)]
        try:
            for action in writes:
                self._apply(action)
        except ConflictError:
            # By then the watch has shown the change that caused the refusal.
            self.due = self.truth.now + max(AGAIN_SECONDS, self.lag)
            return observation, before, decision, False
        self.registry.set_directives(*KEY, decision.directives)
        self._poll(decision.sentinel)
        revision = revision_of(self.spec)
        if revision in decision.memory.proven and self.proven != revision:
            self.proven = revision
            self.wake()
        return observation, before, decision, self._answers > answers

    def _compared(self, found: DeploymentFacts) -> DeploymentFacts:
        """Return a Deployment's facts as this version of the operator sees them."""
        outdated = self.truth.rendered_by.get(found.name, self.version) != self.version
        return replace(found, outdated=outdated and found.revision == revision_of(self.spec))

    def _take_in(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        if isinstance(facts, DeploymentFacts):
            changed = _newer(facts, self.deployments.get(name))
            if changed:
                self.deployments[name] = facts
        elif facts is not None:
            changed = _newer(facts, self.pods.get(name))
            if changed:
                self.pods[name] = facts
        elif kind == "pod":
            gone = self.pods.pop(name, None)
            changed = gone is not None
            if gone is not None:
                self.registry.forget(gone.uid)
        else:
            changed = self.deployments.pop(name, None) is not None
        if changed:
            self.wake()

    def _count(self) -> None:
        truth, before = self.truth, self.source
        running = sum(len(pod.process.tasks) for pod in truth.pods.values() if pod.process is not None)
        if self.counted is not None:
            self.source = self.counted()
        elif truth.long_polls:
            self.source = sentinel_facts(truth)
        elif self.blind:
            error = before.error or SourceProblem("BackendUnreachable", "no answer", truth.now)
            self.source = replace(before, error=error)
        elif truth.now > self.since:
            also = running if self.spec.source_kind == "taskStore" else 0
            count = BacklogCount(len(truth.waiting) + also, True, truth.now, with_running=bool(also))
            self.source = SourceFacts(counts=(count,), observed_at=truth.now)
        if _comparable(before) != _comparable(self.source):
            self.wake()

    def _hear(self, pod: Pod, process: Process) -> None:
        """Receive a report and answer it; a worker with a free slot gets a held task."""
        process.sequence += 1
        free = self.truth.slots - len(process.tasks)
        while self.truth.held and free > 0 and process.state in {WorkerState.STARTING, WorkerState.RUNNING}:
            process.tasks.append(self.truth.now + self.truth.held.popleft())
            free -= 1
        report = Report(
            *KEY, pod.facts.name, pod.facts.uid, process.incarnation, process.sequence, process.state, self.truth.slots,
            len(process.tasks), open_polls=int(bool(process.poll_until)),
            idle_seconds=self.truth.now - process.idle_since if free and process.idle_since else 0.0,
            exit=ExitOutput(1, "no such handler") if process.unusable else None,
            poll_trouble=self.truth.trouble,
        )  # fmt: skip
        receipt = self.registry.record(report, self.truth.now)
        process.report_at = self.truth.now + receipt.next_report_seconds
        pod.heard_at = self.truth.now
        if process.unusable:
            self.truth.crash(pod.facts.name, 1, "Error")
        else:
            self.truth.order(pod.facts.uid, receipt.directive)

    def _poll(self, order: SentinelOrder) -> None:
        truth = self.truth
        free = min(order.polls, order.take - len(truth.held)) - len(truth.sentinel_polls)
        truth.sentinel_polls += [truth.now + SENTINEL_POLL_SECONDS] * max(0, free)

    def _apply(self, action: Action) -> None:
        match action:
            case ApplyRevision():
                self._render(action)
            case SetReplicas():
                self._scale(action)
            case SetDeletionCost():
                self._mark(action)
            case DeletePod(pod=name, uid=uid):
                self._delete(name, uid)
            case DeleteDeployment(name=name):
                live = self.truth.deployments.get(name)
                if live is not None and live.resource_version != self.deployments[name].resource_version:
                    self._conflict(name)
                if live is not None:
                    self.truth.drop(name)
            case EmitEvent():
                pass

    def _scale(self, action: SetReplicas) -> None:
        """Lower a Deployment only if it is unchanged since it was observed; raise it only if its replicas are."""
        live, observed = self.truth.deployments.get(action.name), self.deployments[action.name]
        raising = action.resource_version is None
        if live is None or (
            live.replicas != observed.replicas if raising else live.resource_version != observed.resource_version
        ):
            self._conflict(action.name)
            return
        self.deployments[action.name] = self.truth.write(replace(live, replicas=action.replicas))
        self._answers += 1

    def _mark(self, action: SetDeletionCost) -> None:
        pod = self.truth.pods.get(action.pod)
        if pod is not None and pod.facts.uid == action.uid:
            self.truth.set_cost(action.pod, action.cost)
            self.pods[action.pod] = pod.facts
            self._answers += 1

    def _render(self, action: ApplyRevision) -> None:
        truth, name = self.truth, action.name
        live = truth.deployments.get(name)
        if live is not None and live.resource_version != action.resource_version:
            self._conflict(name)
        uid = f"d{truth.version}" if live is None else live.uid
        created = truth.now if live is None else live.created
        self._answers += 1
        version = truth.rendered_by[name] if action.keeps_template else self.version
        deployment = DeploymentFacts(name, uid, "", action.revision, self.generation, action.replicas, created=created)
        self.deployments[name] = truth.render(deployment, self.spec.handler_image, version)

    def _delete(self, name: str, uid: str) -> None:
        pod = self.truth.pods.get(name)
        if pod is None or pod.facts.uid != uid or pod.facts.deleting:
            return
        self.truth.delete(name, "operator")
        for deployment in list(self.truth.deployments):
            self.truth.reconcile(deployment)

    def _conflict(self, name: str) -> None:
        """Read the Deployment again and refuse the write."""
        live = self.truth.deployments.get(name)
        if live is None:
            self.deployments.pop(name, None)
        else:
            self.deployments[name] = live
        raise ConflictError


def sentinel_facts(truth: Truth) -> SourceFacts:
    """Return what the operator's polls and leases tell of the source."""
    polls = truth.sentinel_polls
    opened = [ends - SENTINEL_POLL_SECONDS for ends in polls] or [0.0]
    return SourceFacts(
        open_polls=len(polls), held=len(truth.held), observed_at=truth.now, oldest_poll_at=min(opened),
        newest_poll_at=max(opened), at_once=truth.at_once,
    )  # fmt: skip


def _newer(facts: PodFacts | DeploymentFacts, known: PodFacts | DeploymentFacts | None) -> bool:
    return known is None or int(facts.resource_version) > int(known.resource_version)


def _comparable(source: SourceFacts) -> tuple[object, ...]:
    signals = tuple((count.tasks, count.exact) for count in source.counts)
    return source.held, source.error is None, signals, source.metrics and source.metrics.periods

"""One pool over a true cluster (`truth.py`) with one leader (`term.py`), for tests of whole scenarios."""

from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decision import Decision, EmitEvent
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, PodFacts, SourceFacts
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.term import Term
from tests.unit.activity_operator.core.truth import Pod, Truth

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
START = 10_000.0
STEP_SECONDS = 1.0
#: Longer than any scenario.
FOREVER_SECONDS = 1e6
#: Most looks at one moment until the decisions must have settled.
LOOKS = 40


def pool_spec(**changes: Any) -> PoolSpec:
    """Return a spec with a window of 60 s, 300 s before zero, and these changes (camelCase)."""
    scaling = {"scaleDown": {"stabilizationWindowSeconds": 60, "zeroAfterSeconds": 300}, **changes.pop("scaling", {})}
    return PoolSpec.model_validate(
        {"activityArn": ARN, "handlerImage": "h:1", "maxWorkers": 10, "scaling": scaling, **changes}
    )


class PoolHarness:
    """A pool whose leader's term began long ago; `proven`: a worker of its revision has reported before."""

    def __init__(self, spec: PoolSpec, *, proven: bool = False) -> None:
        deadline = spec.stalled.deadline_seconds
        long_polls = spec.source_kind == "stepFunctions"
        self.truth = Truth(self._on_change, START, long_polls, deadline, spec.slots_per_worker)
        self.term = Term(self.truth, spec, 1, revision_of(spec) if proven else "")
        self.term.since = 0.0

    @property
    def spec(self) -> PoolSpec:
        """Return the pool's current spec."""
        return self.term.spec

    @property
    def now(self) -> float:
        """Return the current time, in seconds."""
        return self.truth.now

    @property
    def pods(self) -> dict[str, Pod]:
        """Return the pods that are not being deleted, by name."""
        return {name: pod for name, pod in self.truth.pods.items() if pod.active}

    @property
    def replicas(self) -> int:
        """Return the sum of the Deployments' replicas."""
        return sum(deployment.replicas for deployment in self.truth.deployments.values())

    @property
    def warnings(self) -> list[str]:
        """Return the reasons of the Warnings so far."""
        return [event.reason for event in self.term.events if event.kind == "Warning"]

    def know(self, source: SourceFacts) -> None:
        """Set the facts that the leader has about the source from now on."""
        self.term.counted = lambda: source
        self.term.source = source
        self.term.wake()

    def edit(self, **changes: object) -> None:
        """Change the spec as a user does."""
        self.term.spec = PoolSpec.model_validate({**self.spec.model_dump(by_alias=True, exclude_none=True), **changes})
        self.term.generation += 1
        self.term.wake()

    def upgrade(self, version: int = 2) -> None:
        """Let an operator of another version decide, which renders another pod template."""
        self.term.version = version
        self.term.wake()

    def settle(self) -> Decision:
        """Look until a look writes nothing, without time passing."""
        for _ in range(LOOKS):
            decision, term = self.term.look()[2], self.term
            idle = all(isinstance(action, EmitEvent) for action in decision.actions)
            if idle and not (term.due is not None and term.due <= self.now):
                return decision
        raise AssertionError("the decisions do not settle")

    def run(self, seconds: float) -> Decision:
        """Let time pass; the leader looks after each change and whenever `look_again_in` has passed."""
        end, term = self.now + seconds, self.term
        if term.decision is None or term.due is not None:
            self.settle()
        while self.now < end:
            self.truth.step(min(STEP_SECONDS, end - self.now))
            term.listen()
            if term.due is not None and term.due <= self.now:
                self.settle()
        assert term.decision is not None
        return term.decision

    def serving(self) -> list[Pod]:
        """Return the pods whose workers take tasks."""
        running = (pod for pod in self.pods.values() if pod.process is not None)
        return [pod for pod in running if pod.process is not None and pod.process.state is WorkerState.RUNNING]

    def busy(self) -> set[str]:
        """Return the names of the pods with a task."""
        return {name for name, pod in self.truth.pods.items() if pod.process is not None and pod.process.tasks}

    def occupy(self, *names: str) -> None:
        """Give each of these workers a task that lasts until `free`."""
        for name in names:
            process = self.truth.pods[name].process
            assert process is not None
            process.tasks, process.poll_until = [self.now + FOREVER_SECONDS], 0.0

    def free(self) -> None:
        """End all tasks."""
        for name in self.busy():
            process = self.truth.pods[name].process
            assert process is not None
            process.tasks, process.idle_since = [], self.now

    def drain_by_itself(self, name: str) -> None:
        """Let a worker drain without an order, or although it was uncordoned."""
        process = self.truth.pods[name].process
        assert process is not None
        process.state, process.poll_until = WorkerState.DRAINED, 0.0

    def _on_change(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        self.term.on_change(kind, name, facts)

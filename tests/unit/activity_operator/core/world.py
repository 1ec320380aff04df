"""A cluster in virtual time: Deployments, a ReplicaSet that removes pods as Kubernetes does, workers that report.

It carries out what `decide` answers, so that whole stories (burst, scale-in, rollout) can be told in a test.
"""

from dataclasses import dataclass, field, replace

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import (
    ApplyRevision,
    Decision,
    DeleteDeployment,
    DeletePod,
    Say,
    ScalingMemory,
    SetDeletionCost,
    SetReplicas,
)
from activity_operator.core.drain import removal_order
from activity_operator.core.fleet import fleet
from activity_operator.core.observation import (
    DeploymentFacts,
    Observation,
    PodFacts,
    PoolFacts,
    SourceFacts,
    WorkerFacts,
)
from activity_worker.contract import Directive, PollTrouble, WorkerState

ARN = "arn:aws:states:us-east-1:123456789012:activity:resize"
START = 10_000.0
#: Seconds from a pod's creation to its first report.
STARTUP_SECONDS = 2.0


def pool_spec(**changes: object) -> PoolSpec:
    """Return a spec with the usual defaults and these changes (camelCase)."""
    return PoolSpec.model_validate({"activityArn": ARN, "handlerImage": "h:1", "maxWorkers": 10, **changes})


@dataclass
class World:
    """One pool's world. `busy` maps a busy pod's name to its tasks; `broken` are revisions whose pods never start.

    `unready` are pods whose node is not ready: they run and report all the same. `trouble` is why nobody can poll.
    """

    spec: PoolSpec
    now: float = START
    source: SourceFacts = field(default_factory=SourceFacts)
    memory: ScalingMemory = field(default_factory=ScalingMemory)
    deployments: dict[str, DeploymentFacts] = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    workers: dict[str, WorkerFacts] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    trouble: PollTrouble | None = None
    events: list[Say] = field(default_factory=list)
    killed_busy: list[str] = field(default_factory=list)
    generation: int = 1
    made: int = 0

    def observe(self) -> Observation:
        """Return what the operator sees now."""
        return Observation(
            now=self.now,
            pool=PoolFacts("team", "resize", "pool-uid", self.generation),
            deployments=tuple(self.deployments.values()),
            pods=tuple(self.pods.values()),
            workers=tuple(self.workers.values()),
            source=self.source,
        )

    def look(self) -> Decision:
        """Decide once and carry it out."""
        decision = decide(self.spec, self.observe(), self.memory)
        self.memory = decision.memory
        for action in decision.actions:
            self._do(action)
        for uid, directive in decision.directives.items():
            self._tell(uid, directive)
        return decision

    def settle(self, rounds: int = 20) -> Decision:
        """Look until nothing is written any more, without time passing."""
        for _ in range(rounds):
            decision = self.look()
            if not [action for action in decision.actions if not isinstance(action, Say)]:
                return decision
        raise AssertionError("the decisions do not settle")

    def run(self, seconds: float, step: float = 0.5) -> Decision:
        """Let time pass, looking at every step; workers report at every step."""
        end = self.now + seconds
        decision = self.look()
        while self.now < end:
            self.now += step
            self._start_and_report()
            decision = self.look()
        return decision

    def step(self, seconds: float) -> Decision:
        """Let time pass, then let the workers report and look once."""
        self.now += seconds
        self._start_and_report()
        return self.look()

    def follow(self, seconds: float, reports_every: float) -> None:
        """Let time pass as the operator does: it looks when reports come, and when it said it would look again."""
        end, next_report = self.now + seconds, self.now + reports_every
        decision = self.settle()
        while self.now < end:
            due = end if decision.look_again_in is None else self.now + decision.look_again_in
            self.now = min(end, next_report, due)
            if self.now == next_report:
                self._start_and_report()
                next_report += reports_every
            decision = self.settle()

    def edit(self, **changes: object) -> None:
        """Change the spec, as a user does."""
        self.spec = PoolSpec.model_validate({**self.spec.model_dump(by_alias=True, exclude_none=True), **changes})
        self.generation += 1

    def serving(self) -> list[PodFacts]:
        """Return the pods that serve."""
        return [member.pod for member in fleet(self.spec, self.observe()).serving]

    def _do(self, action: object) -> None:
        match action:
            case Say():
                self.events.append(action)
            case ApplyRevision(name=name, revision=revision, replicas=replicas):
                old = self.deployments.get(name)
                version = "1" if old is None else old.resource_version
                self.deployments[name] = DeploymentFacts(
                    name, f"uid-{name}", version, revision, self.generation, replicas, created=self.now
                )
                self._reconcile_pods(name)
            case SetReplicas(name=name, replicas=replicas):
                self.deployments[name] = replace(self.deployments[name], replicas=replicas)
                self._reconcile_pods(name)
            case SetDeletionCost(pod=pod, cost=cost):
                self.pods[pod] = replace(self.pods[pod], deletion_cost=cost)
            case DeletePod(pod=pod):
                self._remove(pod)
                for name in self.deployments:
                    self._reconcile_pods(name)
            case DeleteDeployment(name=name):
                del self.deployments[name]

    def _reconcile_pods(self, name: str) -> None:
        """Do what a ReplicaSet does: make what lacks, remove in its order, the worst choice among equals first."""
        deployment = self.deployments[name]
        mine = [m for m in fleet(self.spec, self.observe()).members if m.pod.revision == deployment.revision]
        for _ in range(deployment.replicas - len(mine)):
            self.made += 1
            pod = PodFacts(f"{name}-{self.made}", f"u{self.made}", deployment.revision, "Pending", self.now)
            self.pods[pod.name] = pod
        mine.sort(key=lambda member: (*removal_order(member), -self.busy.get(member.pod.name, 0)))
        for member in mine[: max(0, len(mine) - deployment.replicas)]:
            self._remove(member.pod.name)

    def _remove(self, pod: str) -> None:
        if self.busy.pop(pod, 0):
            self.killed_busy.append(pod)
        self.workers.pop(self.pods.pop(pod).uid, None)

    def _tell(self, uid: str, directive: Directive) -> None:
        worker = self.workers.get(uid)
        if worker is None or worker.state is WorkerState.DRAINED:
            return
        state = WorkerState.DRAINING if directive is Directive.DRAIN else WorkerState.RUNNING
        self.workers[uid] = replace(worker, state=state)

    def _start_and_report(self) -> None:
        for pod in list(self.pods.values()):
            if pod.revision in self.broken:
                self.pods[pod.name] = replace(pod, waiting_reason="ImagePullBackOff", waiting_message="no such image")
                continue
            if self.now - pod.created < STARTUP_SECONDS or pod.name in self.silent:
                continue
            busy = self.busy.get(pod.name, 0)
            old = self.workers.get(pod.uid)
            state = WorkerState.RUNNING if old is None else old.state
            if state is WorkerState.DRAINING and not busy:
                state = WorkerState.DRAINED
            idle = 0.0 if busy or old is None or old.busy else old.idle_seconds + (self.now - old.reported_at)
            self.workers[pod.uid] = WorkerFacts(
                pod.uid, "i", state, self.spec.slots_per_worker, busy, 1, idle, self.now, 1.0, poll_trouble=self.trouble
            )
            ready = state is not WorkerState.DRAINED and pod.name not in self.unready
            self.pods[pod.name] = replace(pod, phase="Running", ready=ready, running_since=pod.created)

"""The true state of a cluster in virtual time: Deployments, pods, containers, workers and tasks.

It follows Kubernetes' own rules, and knows no observer: what a leader sees, and when, is in `term.py`. `taken` lists
every removed pod whose worker might have had a task.
"""

import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from activity_operator.core.observation import DeploymentFacts, PodFacts
from activity_worker.contract import Directive, PollTrouble, WorkerState

#: Duration of an open poll of Step Functions; polls of the other sources return at once.
POLL_SECONDS = 60.0
#: Duration of an open poll of the operator, and within which a task that waits is its answer: one step.
SENTINEL_POLL_SECONDS, AT_ONCE_SECONDS = 60.0, 1.0
#: Seconds for which a started worker waits for the operator's first answer before it polls anyway.
SILENCE_SECONDS = 2.0
#: Seconds after which a worker that stands by polls again unless the order is repeated.
RESUME_SECONDS = 10.0
#: Seconds between two readiness probes; between two steps of a node that has an image to pull.
PROBE_SECONDS, PULL_SECONDS = 2.0, 10.0
#: Longest restart delay of a crashing container, and the running time after which the delay is reset.
LONGEST_BACKOFF_SECONDS, BACKOFF_FORGOTTEN_SECONDS = 300.0, 600.0

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_ASKING = {WorkerState.RUNNING, WorkerState.DRAINING, WorkerState.STOPPING}
_READY = {WorkerState.RUNNING, WorkerState.DRAINING}


@dataclass
class Process:
    """The process in a worker's container. `tasks` holds each task's end time; `poll_until` is 0 without a poll."""

    incarnation: str
    up_at: float
    unusable: bool = False
    state: WorkerState = WorkerState.STARTING
    tasks: list[float] = field(default_factory=list)
    poll_until: float = 0.0
    idle_since: float = 0.0
    sequence: int = 0
    report_at: float = 0.0
    answered: bool = False
    #: Until when the worker stands by unless a reply orders something else.
    stands_by_until: float = 0.0

    @property
    def engaged(self) -> bool:
        """Whether the worker has a task, or a poll that may return one."""
        return bool(self.tasks or self.poll_until) or self.state is WorkerState.RUNNING

    def work(self, now: float, slots: int, poll_seconds: float) -> int:
        """End tasks and polls whose time has come, start a poll for a free slot; return the number of ended tasks."""
        ended = sum(until <= now for until in self.tasks)
        if ended:
            self.tasks = [until for until in self.tasks if until > now]
            self.idle_since = now
        if self.poll_until <= now:
            self.poll_until = 0.0
        silence = 0.0 if self.answered else SILENCE_SECONDS
        if self.state is WorkerState.STARTING and now >= self.up_at + silence:
            self.state, self.idle_since = WorkerState.RUNNING, now
        if (
            self.state is WorkerState.RUNNING
            and len(self.tasks) < slots
            and not self.poll_until
            and now >= self.stands_by_until
        ):
            self.poll_until = now + poll_seconds
        if self.state is WorkerState.DRAINING and not (self.tasks or self.poll_until):
            self.state = WorkerState.DRAINED
        return ended

    def order(self, directive: Directive, now: float) -> None:
        """Apply the directive in the answer to a report."""
        self.answered = True
        if directive is Directive.DRAIN and self.state in {WorkerState.STARTING, WorkerState.RUNNING}:
            self.state = WorkerState.DRAINING
        elif directive in {Directive.RUN, Directive.STANDBY} and self.state is WorkerState.DRAINING:
            self.state, self.idle_since = WorkerState.RUNNING, now
        self.stands_by_until = now + RESUME_SECONDS if directive is Directive.STANDBY else 0.0


@dataclass
class Pod:
    """One pod: `facts` as in the API server, `process` as it really is."""

    facts: PodFacts
    image: str
    process: Process | None = None
    next_at: float = 0.0
    pauses: int = 0
    lost_node: bool = False
    on_bad_node: bool = False
    cut: bool = False
    heard_at: float = 0.0

    @property
    def active(self) -> bool:
        """Whether a ReplicaSet counts the pod."""
        return not self.facts.deleting


@dataclass
class Truth:
    """The cluster. `on_change(kind, name, facts)` gets every change, None if deleted. `most_pods` is a limit."""

    on_change: Callable[[str, str, PodFacts | DeploymentFacts | None], None]
    now: float
    long_polls: bool
    #: `stalled.deadlineSeconds`: seconds of silence after which an unready worker may be removed.
    deadline_seconds: float
    slots: int = 1
    #: Conditions for new pods: seconds of import, images that cannot be pulled or used, no room on nodes, no quota.
    import_seconds: float = 1.0
    unpullable: set[str] = field(default_factory=set)
    unusable: set[str] = field(default_factory=set)
    #: Number of pods that a node takes first, because it is the emptiest, and that can pull no image there.
    bad_node_pods: int = 0
    no_room: bool = False
    no_quota: bool = False
    #: Cordoned busy workers miss a readiness probe just before a ReplicaSet chooses pods, and no leader sees it.
    probes_fail: bool = False
    most_pods: int | None = None
    #: Error of all polls, those of the operator included.
    trouble: PollTrouble | None = None
    #: Seconds by which the nodes' clocks are ahead.
    skew: float = 0.0
    deployments: dict[str, DeploymentFacts] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    #: The version of the operator that rendered each Deployment.
    rendered_by: dict[str, int] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    waiting: deque[float] = field(default_factory=deque)
    held: deque[float] = field(default_factory=deque)
    sentinel_polls: list[float] = field(default_factory=list)
    at_once: int = 0
    arrived: int = 0
    done: int = 0
    taken: list[str] = field(default_factory=list)
    version: int = 0
    made: int = 0

    def arrive(self, tasks: int, seconds: float) -> None:
        """Let `tasks` tasks arrive, each of `seconds`."""
        self.arrived += tasks
        self.waiting.extend([seconds] * tasks)

    def step(self, seconds: float) -> None:
        """Let time pass: containers, workers, tasks, controllers."""
        self.now += seconds
        for pod in list(self.pods.values()):
            self._kubelet(pod)
            if pod.process is not None:
                self.done += pod.process.work(self.now, self.slots, POLL_SECONDS if self.long_polls else 0.5)
            self._leave(pod)
        self._poll()
        for name in list(self.deployments):
            self.reconcile(name)

    def write(self, deployment: DeploymentFacts) -> DeploymentFacts:
        """Store a Deployment under a new resourceVersion and let its ReplicaSet act."""
        self.version += 1
        stored = replace(deployment, resource_version=str(self.version))
        self.deployments[stored.name] = stored
        self.on_change("deployment", stored.name, stored)
        self.reconcile(stored.name)
        return self.deployments[stored.name]

    def render(self, deployment: DeploymentFacts, image: str, version: int) -> DeploymentFacts:
        """Store a Deployment with this version's pod template; Kubernetes replaces all pods of another template."""
        former = self.rendered_by.get(deployment.name, version)
        if former != version and (pods := self.of(deployment.revision)):
            self.taken.append(f"{len(pods)} pods by a new template at {self.now:.2f}: {deployment}")
        self.images[deployment.name], self.rendered_by[deployment.name] = image, version
        return self.write(deployment)

    def drop(self, name: str) -> None:
        """Delete a Deployment and its pods."""
        gone = self.deployments.pop(name)
        self.on_change("deployment", name, None)
        for pod in self.of(gone.revision):
            self.delete(pod.facts.name, "deployment")

    def set_cost(self, name: str, cost: int | None) -> None:
        """Write a pod's deletion cost."""
        self._put(self.pods[name], deletion_cost=cost)

    def delete(self, name: str, by: str) -> None:
        """Start the deletion of a pod. `by` names the client; only `somebody` may delete a pod that works."""
        pod = self.pods[name]
        given_up = not pod.facts.ready and pod.heard_at and self.now - pod.heard_at >= self.deadline_seconds
        if pod.process is not None and pod.process.engaged and by != "somebody" and not given_up:
            self.taken.append(f"{name} by the {by} at {self.now:.2f}: {pod}")
        self._put(pod, deleting=True)
        if pod.process is not None:
            pod.process.state = WorkerState.STOPPING
        self._leave(pod)

    def evict(self, name: str) -> None:
        """Start the deletion of a pod on an unreachable node, whose worker does not notice it."""
        self._put(self.pods[name], deleting=True)

    def crash(self, name: str, code: int, reason: str) -> None:
        """End a pod's container; its tasks wait again."""
        pod = self.pods[name]
        if (process := pod.process) is None:
            return
        self.waiting.extend([1.0] * len(process.tasks))
        pod.process = None
        pod.pauses = 0 if self.now - pod.facts.running_since > BACKOFF_FORGOTTEN_SECONDS else pod.pauses
        pause = 1.0 if not pod.pauses else min(LONGEST_BACKOFF_SECONDS, 10.0 * 2 ** (pod.pauses - 1))
        pod.next_at = self.now + pause
        why = "CrashLoopBackOff" if pod.pauses else ""
        pod.pauses += 1
        if not pod.lost_node:
            self._put(
                pod, running_since=0.0, ready=False, ready_since=0.0, waiting_reason=why, waiting_message=reason,
                last_exit_code=code, last_exit_reason=reason,
            )  # fmt: skip

    def lose_node(self, name: str, lost: bool = True) -> None:
        """Make a pod's node unreachable or reachable: the pod works on, but its status is not updated."""
        pod = self.pods[name]
        if not pod.facts.assigned:
            return
        pod.lost_node = lost
        if lost:
            self._put(pod, ready=False, ready_since=0.0)

    def order(self, uid: str, directive: Directive) -> None:
        """Apply the directive in the answer to a worker's report."""
        process = next((pod.process for pod in self.pods.values() if pod.facts.uid == uid), None)
        if process is not None:
            process.order(directive, self.now)

    def of(self, revision: str) -> list[Pod]:
        """Return the pods of a revision that its ReplicaSet counts."""
        return [pod for pod in self.pods.values() if pod.active and pod.facts.revision == revision]

    def reconcile(self, name: str) -> None:
        """Create and remove pods as a ReplicaSet does; among equal pods, a working one is removed first."""
        if (deployment := self.deployments.get(name)) is None:
            return
        active = self.of(deployment.revision)
        lacking = deployment.replicas - len(active)
        allowed = min(lacking, self._allowed())
        failure = "exceeded quota: pods" if allowed < lacking else ""
        for _ in range(allowed):
            self._make(deployment)
        active.sort(key=lambda pod: _removal_order(pod, probes_fail=self.probes_fail))
        for pod in active[: max(0, -lacking)]:
            self.delete(pod.facts.name, "ReplicaSet")
        if failure != deployment.failure:
            self.write(replace(deployment, failure=failure, failure_reason="FailedCreate" if failure else ""))

    def _allowed(self) -> int:
        """Return how many more pods may be created."""
        if self.no_quota:
            return 0
        return sys.maxsize if self.most_pods is None else max(0, self.most_pods - len(self.pods))

    def _make(self, deployment: DeploymentFacts) -> None:
        self.made += 1
        facts = PodFacts(
            f"p{self.made}", f"u{self.made}", deployment.revision, "Pending", math.floor(self.now), assigned=False
        )
        bad = sum(pod.on_bad_node for pod in self.pods.values()) < self.bad_node_pods
        pod = self.pods[facts.name] = Pod(facts, self.images[deployment.name], next_at=self.now, on_bad_node=bad)
        self._put(pod)

    def _put(self, pod: Pod, **changes: object) -> None:
        """Write a pod, and its Deployment's status if the pod's readiness changed."""
        was_ready = pod.facts.ready
        self.version += 1
        pod.facts = replace(pod.facts, resource_version=str(self.version), **changes)  # type: ignore[arg-type]
        self.on_change("pod", pod.facts.name, pod.facts)
        if was_ready != pod.facts.ready:
            self._count(pod)

    def _count(self, pod: Pod) -> None:
        for name, deployment in self.deployments.items():
            if deployment.revision == pod.facts.revision:
                self.version += 1
                self.deployments[name] = replace(deployment, resource_version=str(self.version))
                self.on_change("deployment", name, self.deployments[name])

    def _kubelet(self, pod: Pod) -> None:
        facts = pod.facts
        if pod.lost_node or facts.deleting:
            return
        if not facts.assigned:
            if self.no_room and not facts.unschedulable:
                self._put(pod, unschedulable="0/3 nodes are available")
            elif not self.no_room:
                pod.next_at = self.now + 1.0
                self._put(pod, assigned=True, unschedulable="")
        elif pod.process is None and self.now >= pod.next_at:
            self._start(pod)
        elif self.now % PROBE_SECONDS < 1.0:
            self._probe(pod)

    def _start(self, pod: Pod) -> None:
        if pod.facts.phase == "Pending" and (pod.on_bad_node or pod.image in self.unpullable):
            again = pod.facts.waiting_reason == "ErrImagePull"
            pod.next_at = self.now + PULL_SECONDS
            why = "ImagePullBackOff" if again else "ErrImagePull"
            self._put(pod, waiting_reason=why, waiting_message="not found")
            return
        restarts = pod.facts.restarts + (1 if pod.facts.last_exit_code is not None else 0)
        pod.process = Process(
            f"{pod.facts.uid}-{restarts}", self.now + self.import_seconds, unusable=pod.image in self.unusable
        )
        since = math.floor(self.now) + self.skew
        self._put(
            pod, phase="Running", running_since=since, waiting_reason="", waiting_message="", restarts=restarts
        )  # fmt: skip

    def _probe(self, pod: Pod) -> None:
        ready = pod.process is not None and pod.process.state in _READY
        if ready != pod.facts.ready:
            since = math.floor(self.now) + self.skew if ready else 0.0
            self._put(pod, ready=ready, ready_since=since)

    def _leave(self, pod: Pod) -> None:
        """Remove a deleted pod once its worker has finished; on an unreachable node nothing is removed."""
        if not pod.facts.deleting or pod.lost_node:
            return
        if pod.process is None or not (pod.process.tasks or pod.process.poll_until):
            del self.pods[pod.facts.name]
            self.on_change("pod", pod.facts.name, None)

    def _poll(self) -> None:
        """Give waiting tasks to workers with an open poll, then to the operator's polls."""
        if self.trouble is not None:
            return
        for pod in self._asking():
            process = pod.process
            assert process is not None
            while self.waiting and len(process.tasks) < self.slots and process.poll_until > self.now:
                process.tasks.append(self.now + self.waiting.popleft())
                if not (self.long_polls and process.state is WorkerState.RUNNING and len(process.tasks) < self.slots):
                    process.poll_until = 0.0
        self.sentinel_polls = [until for until in self.sentinel_polls if until > self.now]
        while self.waiting and self.sentinel_polls:
            opened = self.sentinel_polls.pop() - SENTINEL_POLL_SECONDS
            self.at_once = self.at_once + 1 if opened >= self.now - AT_ONCE_SECONDS else 0
            self.held.append(self.waiting.popleft())

    def _asking(self) -> Iterator[Pod]:
        for pod in self.pods.values():
            if pod.process is not None and pod.process.poll_until and pod.process.state in _ASKING:
                yield pod


def _removal_order(pod: Pod, *, probes_fail: bool) -> tuple[object, ...]:
    """Return the sort key of a ReplicaSet's removal; its later keys (node, age) are unspecified here."""
    facts, works = pod.facts, pod.process is not None and pod.process.engaged
    ready = facts.ready and not (probes_fail and works and (facts.deletion_cost or 0) < 0)
    return facts.assigned, _PHASES[facts.phase], ready, facts.deletion_cost or 0, not works

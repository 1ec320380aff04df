"""One pool of a test, as a user sees and changes it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from activity_worker.contract import LABEL_POOL
from tests.e2e.executions import Executions
from tests.e2e.handler import GATE
from tests.e2e.stage import SHORT, Stage, wait_for
from tests.readiness import is_ready

COST = "controller.kubernetes.io/pod-deletion-cost"
#: Seconds for what takes seconds: a machine may be crowded, and patience costs nothing where all is well.
PATIENCE = 600.0
#: Time limits for tasks that last until the test lets them end, however long a busy machine makes that: a machine too
#: busy for a heartbeat in half a minute is another theme.
UNHURRIED = {"HeartbeatSeconds": 300, "TimeoutSeconds": 1800}


@dataclass(frozen=True)
class Pool:
    """A pool, and the executions whose tasks it works on."""

    stage: Stage
    namespace: str
    name: str
    executions: Executions

    def apply(self, **spec: Any) -> None:
        """Apply it with short windows, unless the spec says otherwise."""
        self.stage.apply_pool(self.namespace, self.name, self.executions.activity, **{"scaling": SHORT, **spec})

    def change(self, **spec: Any) -> None:
        """Change fields of the spec; None removes one."""
        self.kubectl("patch", "apool", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the pool's namespace."""
        return self.stage.kubectl("-n", self.namespace, *words)

    @property
    def status(self) -> dict[str, Any]:
        """Its status now."""
        return cast("dict[str, Any]", self.stage.pool(self.namespace, self.name).get("status", {}))

    def says(self, kind: str, status: str, reason: str = "") -> bool:
        """Whether a condition has this status, and this reason if one is given."""
        found = self.stage.condition(self.namespace, self.name, kind)
        return found["status"] == status and reason in {"", found["reason"]}

    def peak(self) -> int:
        """Return the largest size that the decisions want which its status still tells, ten at most."""
        return max((decision["desired"] for decision in self.status.get("decisions", ())), default=0)

    def message(self, kind: str) -> str:
        """Return what a condition says."""
        return self.stage.condition(self.namespace, self.name, kind)["message"]

    def events(self, reason: str) -> list[str]:
        """Return the messages of its Kubernetes Events with this reason."""
        return [message for found, message in self.stage.events(self.namespace, self.name) if found == reason]

    def wait_event(self, reason: str, seconds: float = PATIENCE) -> str:
        """Wait for a Kubernetes Event with this reason; returns the message of the first."""
        self.wait_for(f"Event {reason}", lambda: bool(self.events(reason)), seconds)
        return self.events(reason)[0]

    def workers(self) -> set[str]:
        """Return the names of its pods that are not being deleted."""
        return {pod["metadata"]["name"] for pod in self.stage.workers(self.namespace, self.name)}

    def cordoned(self) -> set[str]:
        """Return the names of the pods that were told to take no new task."""
        pods = self.stage.workers(self.namespace, self.name)
        return {pod["metadata"]["name"] for pod in pods if COST in pod["metadata"].get("annotations", {})}

    def leaving(self, workers: set[str]) -> set[str]:
        """Return those of these workers that were told to take no new task; who was may be gone already."""
        return (workers & self.cordoned()) | (workers - self.workers())

    def worker_of(self, execution: str) -> str:
        """Return the name of the pod that took an execution's task first: where no operator polls, a worker's."""
        return self.executions.attempts(execution)[0].worker.rpartition(":")[0]

    def deployments(self) -> list[dict[str, Any]]:
        """Return its Deployments, oldest first."""
        words = ("get", "deployments", "-l", f"{LABEL_POOL}={self.name}", "--sort-by=.metadata.creationTimestamp")
        return cast("list[dict[str, Any]]", json.loads(self.kubectl(*words, "-o", "json"))["items"])

    def revisions(self) -> list[str]:
        """Return the names of its Deployments, oldest first; a pod's name begins with its Deployment's."""
        return [deployment["metadata"]["name"] for deployment in self.deployments()]

    def pods_of(self, executions: list[str]) -> set[str]:
        """Return the names of the pods that gave back these executions' output."""
        return {self.executions.output(execution).get("pod", "") for execution in executions}

    def let_go(self, workers: Iterable[str]) -> None:
        """Let the gated tasks of these workers end, now and from now on."""
        for worker in sorted(workers):
            self.kubectl("exec", worker, "-c", "worker", "--", "touch", GATE)

    def shut_gate(self, worker: str) -> None:
        """Let this worker's gated tasks last again; none may be running there."""
        self.kubectl("exec", worker, "-c", "worker", "--", "rm", GATE)

    def wait_for(self, what: str, holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until it holds; what does not hold in time fails with what the pool and its pods say."""
        try:
            wait_for(f"{self.name}: {what}", holds, seconds)
        except AssertionError as late:
            words = ("get", "pods,deployments,events", "--sort-by=.metadata.creationTimestamp")
            told = f"{json.dumps(self.status, indent=1)}\n{self.kubectl(*words)}"
            raise AssertionError(f"{late}\n{told}\n{self.executions.attempts()}") from late

    def wait_until(self, kind: str, status: str, reason: str = "", seconds: float = PATIENCE) -> None:
        """Wait for a condition."""
        self.wait_for(f"says {kind} {status} {reason}", lambda: self.says(kind, status, reason), seconds)

    def wait_ready(self, workers: int, seconds: float = PATIENCE) -> None:
        """Wait until so many workers are Ready, and no pod more is there."""
        self.wait_for(f"has {workers} workers", lambda: self._ready() == len(self.workers()) == workers, seconds)

    def wait_revisions(self, number: int, seconds: float = PATIENCE) -> None:
        """Wait until it has so many Deployments."""
        self.wait_for(f"has {number} revisions", lambda: len(self.revisions()) == number, seconds)

    def wait_empty(self, seconds: float = PATIENCE) -> None:
        """Wait until it has no pod."""
        self.wait_for("is at zero", lambda: not self.workers(), seconds)

    def wait_running(self, tasks: int, seconds: float = PATIENCE) -> None:
        """Wait until so many tasks are with a worker."""
        self.wait_for(f"{tasks} tasks run", lambda: self.executions.running() >= tasks, seconds)

    def wait_done(self, seconds: float = PATIENCE) -> None:
        """Wait until every execution succeeded."""
        self.wait_for("every execution succeeded", self.executions.all_succeeded, seconds)

    def assert_nothing_lost(self) -> None:
        """The oracle of a day without kills: every task was handed out once, and concluded by whom it went to."""
        assert self.executions.all_succeeded()
        assert not self.executions.interrupted()
        assert [attempt.ending for attempt in self.executions.attempts()] == ["succeeded"] * len(self.executions.arns())

    def _ready(self) -> int:
        pods = self.stage.workers(self.namespace, self.name)
        return sum(map(is_ready, pods))


def a_pool(stage: Stage, namespace: str, name: str, *, task: Mapping[str, Any] = {}, **spec: Any) -> Pool:
    """Create an activity, a state machine, to whose state `task` adds, and a pool for them."""
    pool = Pool(stage, namespace, name, stage.machine(f"{name}-{namespace}", **task))
    pool.apply(**spec)
    return pool

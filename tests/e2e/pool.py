"""One pool of a test, as a user changes it, and its history since."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tests.cluster import ClusterError
from tests.e2e.executions import UNANSWERED, Attempt, Executions, most_at_once
from tests.e2e.handler import GATE
from tests.e2e.harness import SHORT, ClusterHarness
from tests.e2e.timeline import PATIENCE, Moment, Timeline
from tests.e2e.view import PoolView
from tests.eventually import eventually_sync

T = TypeVar("T")

#: Time limits of tasks that last until the test lets them end. They are long, because a busy machine may take half a
#: minute for a heartbeat, and these tests are about other things.
UNHURRIED = {"HeartbeatSeconds": 300, "TimeoutSeconds": 1800}
READING = {"get", "describe", "logs", "exec"}


@dataclass(eq=False)
class BasePool:
    """A pool with any source of tasks.

    `mark` is where in the timeline the test last acted on the pool: by default a test asks about the time since then.
    """

    harness: ClusterHarness
    namespace: str
    name: str
    mark: int = field(default=0, init=False)
    generation: int = field(default=0, init=False)

    @property
    def timeline(self) -> Timeline:
        """Everything that happened in the pool's namespace."""
        return self.harness.timeline(self.namespace)

    def act(self) -> None:
        """Move the mark to now: the test is about to do something to the pool."""
        self.mark = self.timeline.catch_up()

    def apply_manifest(self, manifest: dict[str, Any]) -> None:
        """Apply the pool's whole manifest."""
        self.act()
        self.generation = self.harness.apply(manifest)["metadata"]["generation"]

    def change(self, **spec: Any) -> None:
        """Change fields of the spec; None removes one."""
        words = ("patch", "apool", self.name, "--type=merge", "-p", json.dumps({"spec": spec}), "-o", "json")
        self.generation = json.loads(self.kubectl(*words))["metadata"]["generation"]

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the pool's namespace."""
        if words[0] not in READING:
            self.act()
        return self.harness.kubectl("-n", self.namespace, *words)

    # Questions to the timeline.

    def view(self, moment: Moment) -> PoolView:
        """Return the pool at a moment."""
        return PoolView(moment, self.name)

    @property
    def now(self) -> PoolView:
        """The pool as the API server has it now."""
        mark = self.timeline.catch_up()
        return self.view(self.timeline.since(mark)[0])

    def since(self, mark: int | None = None) -> list[PoolView]:
        """Return the pool at every moment since a mark (default: the test's last act), up to now."""
        self.timeline.catch_up()
        return [self.view(moment) for moment in self.timeline.since(self.mark if mark is None else mark)]

    def eventually(
        self, what: str, holds: Callable[[PoolView], T], *, since: int | None = None, seconds: float = PATIENCE
    ) -> PoolView:
        """Return the pool at the first moment since a mark (default: the test's last act) of which `holds` is true."""
        begin = self.mark if since is None else since
        try:
            moment, _ = self.timeline.eventually(
                f"{self.name}: {what}", lambda moment: holds(self.view(moment)), since=begin, seconds=seconds
            )
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.story()}") from late
        return self.view(moment)

    def story(self) -> str:
        """Return the present state of the pool and its tasks as text."""
        texts: list[str] = []
        with suppress(Exception):  # a failure here must not hide the test's own
            texts.append(json.dumps(self.now.status, indent=1))
        with suppress(Exception):
            texts.append(self.task_story())
        return "\n".join(texts)

    def task_story(self) -> str:
        """Return the source's present account of the tasks as text."""
        return ""

    def wait_until(self, kind: str, status: str, reason: str = "", seconds: float = PATIENCE) -> str:
        """Wait for a condition that was written after the last change of the spec; return its message."""

        def says(view: PoolView) -> bool:
            current = view.status.get("observedGeneration", -1) >= self.generation
            return current and view.says(kind, status, reason)

        seen = self.eventually(f"says {kind} {status} {reason}", says, seconds=seconds)
        return seen.condition(kind)["message"]

    def wait_event(self, reason: str, seconds: float = PATIENCE) -> str:
        """Wait for a Kubernetes Event with this reason; returns the message of the first."""
        seen = self.eventually(f"Event {reason}", lambda view: bool(view.events(reason)), seconds=seconds)
        return seen.events(reason)[0]

    def wait_ready(self, workers: int, seconds: float = PATIENCE) -> PoolView:
        """Wait until it had exactly this number of pods, all of them Ready."""
        return self.eventually(
            f"has {workers} workers", lambda view: len(view.ready) == len(view.workers) == workers, seconds=seconds
        )

    def wait_revisions(self, number: int, seconds: float = PATIENCE) -> PoolView:
        """Wait until it had this number of Deployments."""
        return self.eventually(f"has {number} revisions", lambda view: len(view.revisions) == number, seconds=seconds)

    def wait_empty(self, seconds: float = PATIENCE) -> PoolView:
        """Wait until it had no pod."""
        return self.eventually("is at zero", lambda view: not view.workers, seconds=seconds)

    def wait_zero(self, *, since: int | None = None, seconds: float = PATIENCE) -> PoolView:
        """Wait until its status counted no pod, and its last decision asked for none."""

        def says_zero(view: PoolView) -> bool:
            return view.status.get("replicas", 0) == 0 and [one["desired"] for one in view.decisions[-1:]] == [0]

        return self.eventually("the status shows the pool at zero", says_zero, since=since, seconds=seconds)

    def peak(self, since: int = 0) -> int:
        """Return the largest size that any decision since a mark (default: the start) asked for."""
        return max((one["desired"] for view in self.since(since) for one in view.decisions), default=0)

    # Questions to the source of its tasks.

    def wait_source(
        self,
        what: str,
        look: Callable[[], T | None],
        seconds: float = PATIENCE,
        tolerate: tuple[type[Exception], ...] = (),
    ) -> T:
        """Wait until the source of the tasks shows something that stays true; return it.

        After an exception in `tolerate` the source is asked again.
        """
        return eventually_sync(
            f"{self.name}: {what}",
            look,
            seconds=seconds,
            every_seconds=0.5,
            tolerate=tolerate,
            details=lambda: f"{self.timeline.story(self.mark)}\n{self.story()}",
        )

    def wait_reported(self, state: str, workers: int) -> None:
        """Wait until this number of its workers has told the operator that it is in a state.

        Only for states that last until the test acts: a worker obeys a directive a little later than the pool's status
        shows the decision, and no object of the API server shows when.
        """
        labels = {"namespace": self.namespace, "activitypool": self.name, "state": state}
        eventually_sync(
            f"{self.name}: {workers} workers report that they are {state}",
            lambda: workers in self.harness.operator_samples("activitypool_workers", labels),
            seconds=PATIENCE,
            every_seconds=0.5,
            tolerate=(ClusterError,),
            details=self.story,
        )

    # Gates of its workers.

    def let_go(self, workers: Iterable[str]) -> None:
        """Let the gated tasks of these workers end, and all their later ones."""
        self.act()
        for worker in sorted(workers):
            self.kubectl("exec", worker, "-c", "worker", "--", "touch", GATE)

    def shut_gate(self, worker: str) -> None:
        """Let this worker's gated tasks last again; none may be running there."""
        self.kubectl("exec", worker, "-c", "worker", "--", "rm", GATE)


@dataclass(eq=False)
class Pool(BasePool):
    """A pool, and the executions whose tasks it works on."""

    tasks: Executions

    @property
    def executions(self) -> Executions:
        """Its executions; starting one moves the mark."""
        return replace(self.tasks, before_start=self.act)

    def apply(self, **spec: Any) -> None:
        """Apply it with short windows, unless the spec says otherwise."""
        self.act()
        made = self.harness.apply_pool(self.namespace, self.name, self.tasks.activity, **{"scaling": SHORT, **spec})
        self.generation = made["metadata"]["generation"]

    def task_story(self) -> str:
        """Return every attempt, one on each line."""
        return "\n".join(map(str, self.tasks.attempts()))

    def wait_tasks(self, what: str, holds: Callable[[list[Attempt]], T], seconds: float = PATIENCE) -> T:
        """Wait until the histories of its executions show something; return it."""
        return self.wait_source(what, lambda: holds(self.tasks.attempts()), seconds, UNANSWERED)

    def wait_running(self, tasks: int, seconds: float = PATIENCE) -> None:
        """Wait until this number of tasks ran on workers, or were leased by the operator, at the same time."""
        self.wait_tasks(f"{tasks} tasks run", lambda attempts: most_at_once(attempts) >= tasks, seconds)

    def wait_done(self, seconds: float = PATIENCE) -> None:
        """Wait until every execution succeeded, and move the mark to that moment."""
        self.wait_source("every execution succeeded", self.tasks.all_succeeded, seconds, UNANSWERED)
        self.act()

    def worker_of(self, execution: str) -> str:
        """Return the name of the pod that polled an execution's task first.

        Only for pools without polls of the operator.
        """
        return self.tasks.attempts(execution)[0].worker.rpartition(":")[0]

    def pods_of(self, executions: list[str]) -> set[str]:
        """Return the names of the pods in these executions' outputs."""
        return {self.tasks.output(execution).get("pod", "") for execution in executions}

    def assert_nothing_lost(self) -> None:
        """Assert what must hold without kills: every task was handed out once, and its worker concluded it."""
        assert self.tasks.all_succeeded()
        attempts = self.tasks.attempts()
        assert not [attempt for attempt in attempts if attempt.interrupted]
        assert [attempt.ending for attempt in attempts] == ["succeeded"] * len(self.tasks.arns())


def a_pool(harness: ClusterHarness, namespace: str, name: str, *, task: Mapping[str, Any] = {}, **spec: Any) -> Pool:
    """Create an activity, a state machine with these fields in its state, and a pool for them."""
    pool = Pool(harness, namespace, name, harness.machine(f"{name}-{namespace}", **task))
    pool.apply(**spec)
    return pool

"""What is known of the run, put together from what the API server and the task service say. Times are of one clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activity_operator.api.conditions import ConditionType
from tests.demo import plan

Raw = Mapping[str, Any]
SUCCEEDED, RUNNING = "SUCCEEDED", "RUNNING"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
STATES = ("starting", "busy", "idle", "draining", "leaving")


@dataclass(frozen=True, slots=True)
class StoryLine:
    """A sentence: a Kubernetes Event about the pool, or something that the demo saw itself."""

    at: float
    text: str
    bad: bool = False


@dataclass
class DemoState:
    """Everything, as it is now; None while a thing has not happened."""

    ready: Mapping[str, str] = field(default_factory=dict)
    ready_since: float = 0.0
    busy: int = 0
    pods: Sequence[Raw] = ()
    replicas: int = 0
    sizes: list[tuple[float, int]] = field(default_factory=list)
    most_ready: int = 0
    started: int = 0
    began: float | None = None
    first_replica: float | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    problem_since: float | None = None
    ended_at: float | None = None
    story: list[StoryLine] = field(default_factory=list)
    _events: dict[str, int] = field(default_factory=dict)

    def saw_pool(self, raw: Raw, at: float) -> None:
        """Take in the pool: its condition Ready, and how many workers are busy."""
        status = raw.get("status", {})
        found = _condition(status, ConditionType.READY)
        if found.get("status") != self.ready.get("status"):
            self.ready_since = at
        self.ready, self.busy = found, status.get("busyWorkers", 0)

    def saw_pods(self, raws: Sequence[Raw]) -> None:
        """Take in all its pods."""
        self.pods = raws
        self.most_ready = max(self.most_ready, sum(1 for pod in raws if _is_ready(pod) and not _leaves(pod)))

    def saw_deployments(self, raws: Sequence[Raw], at: float) -> None:
        """Take in all its Deployments."""
        replicas = sum(int(raw["spec"].get("replicas") or 0) for raw in raws)
        if replicas != self.replicas or not self.sizes:
            self.sizes.append((at, replicas))
        self.replicas = replicas
        if replicas and self.first_replica is None and self.began is not None:
            self.first_replica = at
            self.tell(at, f"the first replica is written, {at - self.began:.2f} s after the first execution")

    def saw_events(self, raws: Sequence[Raw], at: float) -> None:
        """Take in all Events; those about pods are other controllers'. One that is repeated is counted up."""
        for raw in raws:
            name, count = raw["metadata"]["name"], (raw.get("series") or {}).get("count", 1)
            if raw.get("regarding", {}).get("kind") == "ActivityPool" and self._events.get(name) != count:
                self._events[name] = count
                self.tell(at, raw.get("note", ""), bad=raw.get("type") == "Warning")

    def start(self, count: int, at: float) -> None:
        """Note how many executions have been started; the first call of this, with 0, is just before the first."""
        self.started = count
        self.began = at if self.began is None else self.began

    def count(self, statuses: Mapping[str, int], at: float) -> None:
        """Take in how many executions have which status."""
        before = self.failed
        self.statuses, self.problem, self.problem_since = statuses, "", None
        if self.failed > before:
            self.tell(at, f"{self.failed} executions did not succeed", bad=True)
        if self.all_ended and self.ended_at is None:
            self.ended_at = at
            self.tell(at, f"the last execution has ended: {self.succeeded} succeeded")

    def miss(self, problem: str, at: float) -> None:
        """Note that the service did not answer."""
        if not self.problem:
            self.problem_since = at
            self.tell(at, problem, bad=True)
        self.problem = problem

    def tell(self, at: float, text: str, *, bad: bool = False) -> None:
        """Add a sentence to the story."""
        self.story.append(StoryLine(at, text, bad))

    @property
    def succeeded(self) -> int:
        """Executions that succeeded."""
        return self.statuses.get(SUCCEEDED, 0)

    @property
    def failed(self) -> int:
        """Executions that ended otherwise."""
        return sum(count for status, count in self.statuses.items() if status not in {SUCCEEDED, RUNNING})

    @property
    def all_ended(self) -> bool:
        """Whether every execution has ended."""
        return self.succeeded + self.failed == plan.EXECUTIONS

    @property
    def at_zero(self) -> bool:
        """Whether no worker is wanted and none is there."""
        return not self.replicas and not self.pods

    @property
    def workers(self) -> dict[str, int]:
        """How many workers are in each of `STATES`. Which of them are busy only the operator knows, so it says."""
        serving = [pod for pod in self.pods if not _leaves(pod) and not _is_cordoned(pod)]
        ready = sum(1 for pod in serving if _is_ready(pod))
        leaving = sum(1 for pod in self.pods if _leaves(pod))
        busy = min(self.busy, ready)
        return dict(
            zip(
                STATES,
                (len(serving) - ready, busy, ready - busy, len(self.pods) - len(serving) - leaving, leaving),
                strict=True,
            )
        )


def _is_ready(pod: Raw) -> bool:
    return _condition(pod.get("status", {}), "Ready").get("status") == "True"


def _is_cordoned(pod: Raw) -> bool:
    return DELETION_COST in (pod["metadata"].get("annotations") or {})


def _leaves(pod: Raw) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _condition(status: Raw, kind: str) -> Mapping[str, str]:
    return next((condition for condition in status.get("conditions") or () if condition["type"] == kind), {})

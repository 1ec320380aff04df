"""A queue and its work in virtual time: tasks arrive, a world's workers take and finish them, the source is counted."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decision import SentinelOrder
from activity_operator.core.observation import Counts, Flow, SourceError
from activity_operator.core.signal import Signal
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.world import World, pool_spec

STEP_SECONDS = 1.0
SILENT = SourceError("BackendUnreachable", "no answer", 0.0)
#: Seconds of a period of CloudWatch's counts, and how late they are told.
PERIOD_SECONDS, LATE_SECONDS = 60, 120

_REDIS = {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}
_PROMETHEUS = {"serverUrl": "http://prometheus:9090", "query": "vector(0)"}
#: How a pool learns of its tasks, and what its spec says for that.
KINDS: dict[str, dict[str, object]] = {
    # The source counts what waits.
    "counted": {"activityArn": None, "source": _REDIS},
    # The source counts what waits and what runs, as a task store does.
    "with running": {"activityArn": None, "source": _REDIS},
    # Nobody counts: the sentinel at zero, busy slots above it.
    "sentinel": {},
    # The same, and what CloudWatch counted minutes ago.
    "cloudwatch": {"activation": {"mode": "CloudWatch"}},
    # The same, and a number that Prometheus tells.
    "prometheus": {"scaling": {"prometheus": _PROMETHEUS}},
}


def spec_of(kind: str, window: int = 60, zero_after: int = 300, **changes: object) -> PoolSpec:
    """Return the spec of a pool of this kind, at most 20 workers."""
    base = {**KINDS[kind], "maxWorkers": 20, **changes}
    scaling = base.get("scaling", {})
    assert isinstance(scaling, dict)
    down = {"stabilizationWindowSeconds": window, "zeroAfterSeconds": zero_after}
    return pool_spec(**{**base, "scaling": {**scaling, "scaleDown": down}})


@dataclass
class Load:
    """Work for a world's pool. `seconds` is what a task takes; `lies` may change what is told of the waiting tasks.

    `lies` gets the true count and the time, and returns what is told, None for an error.
    """

    world: World
    kind: str = "counted"
    seconds: float = 5.0
    lies: Callable[[int, float], int | None] = lambda count, _: count
    waiting: deque[int] = field(default_factory=deque)
    held: int = 0
    under_way: dict[str, list[float]] = field(default_factory=dict)
    arrived: int = 0
    done: int = 0
    sizes: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    _order: SentinelOrder = field(default_factory=SentinelOrder)
    _flows: dict[int, Flow] = field(default_factory=dict)

    def arrive(self, tasks: int) -> None:
        """Let tasks arrive."""
        for _ in range(tasks):
            self.arrived += 1
            self.waiting.append(self.arrived)
        self._note(scheduled=tasks)

    def run(self, seconds: float, arrivals: Callable[[float], int] = lambda _: 0) -> None:
        """Let time pass; `arrivals(seconds since the beginning)` come at each step."""
        began, end = self.world.now, self.world.now + seconds
        while self.world.now < end:
            self.arrive(arrivals(self.world.now - began))
            self._work()
            self._poll()
            self._tell()
            decision = self.world.step(STEP_SECONDS)
            self._order = decision.sentinel
            self.sizes.append(decision.size.desired)
            self.replicas.append(sum(deployment.replicas for deployment in self.world.deployments.values()))

    def run_until_idle(self, seconds: float, workers: int) -> None:
        """Let time pass until everything is done and no more than these workers are left, but not for longer."""
        end = self.world.now + seconds
        while self.world.now < end and (self.done < self.arrived or len(self.world.serving()) > workers):
            self.run(10 * STEP_SECONDS)

    def reversals(self) -> int:
        """Return how often the size turned from growing to shrinking or back."""
        return turns(self.sizes)

    def _work(self) -> None:
        world = self.world
        for name in [name for name in self.under_way if name not in world.pods]:
            # Its pod is gone: whoever takes a busy pod has lost what it did, which the world notes.
            del self.under_way[name]
        for name, pod in world.pods.items():
            tasks = [until for until in self.under_way.get(name, ()) if until > world.now]
            self.done += len(self.under_way.get(name, ())) - len(tasks)
            worker = world.workers.get(pod.uid)
            if worker is not None and worker.state is WorkerState.RUNNING and name not in world.silent:
                while len(tasks) < world.spec.slots_per_worker and self._take():
                    tasks.append(world.now + self.seconds)
            self.under_way[name] = tasks
            world.busy[name] = len(tasks)

    def _take(self) -> bool:
        """Give a worker a task: what the operator holds for it, else what waits, if it can poll."""
        if self.held:
            self.held -= 1
            return True
        if self.world.trouble is not None or not self.waiting:
            return False
        self.waiting.popleft()
        self._note(started=1)
        return True

    def _poll(self) -> None:
        """Let the operator's own polls bring what waits."""
        for _ in range(min(self._order.polls, self._order.take - self.held, len(self.waiting))):
            if self.lies(0, self.world.now) is None:
                return
            self.waiting.popleft()
            self._note(started=1)
            self.held += 1

    def _note(self, scheduled: int = 0, started: int = 0) -> None:
        start = int(self.world.now) // PERIOD_SECONDS * PERIOD_SECONDS
        flow = self._flows.get(start, Flow(start, PERIOD_SECONDS))
        self._flows[start] = replace(flow, scheduled=flow.scheduled + scheduled, started=flow.started + started)

    def _tell(self) -> None:
        now = self.world.now
        running = sum(self.world.busy.values())
        told = self.lies(len(self.waiting), now)
        source = replace(self.world.source, held=self.held, error=SILENT if told is None else None)
        if told is not None and self.kind == "cloudwatch":
            # What the last minutes brought is not told yet, so a lie is one about the minutes before.
            flows = [flow for start, flow in sorted(self._flows.items()) if start + LATE_SECONDS <= now]
            lie = Flow(int(now) - LATE_SECONDS, PERIOD_SECONDS, scheduled=max(0, told - len(self.waiting)))
            source = replace(source, counts=Counts((*flows, lie), now))
        elif told is not None and self.kind != "sentinel":
            also = running if self.kind == "with running" else 0
            exact = self.kind != "prometheus"
            source = replace(source, signals=(Signal(told + also, exact, now, with_running=bool(also)),))
        self.world.source = source


def load_of(kind: str, **changes: object) -> Load:
    """Return work for a new pool of this kind; `window`, `zero_after` and what else differs may be given."""
    return Load(World(spec_of(kind, **changes)), kind)  # type: ignore[arg-type]


def turns(sizes: list[int]) -> int:
    """Return how often a row of sizes turned from growing to shrinking or back."""
    moves = [after - before for before, after in pairwise(sizes) if after != before]
    return sum(1 for one, other in pairwise(moves) if (one > 0) != (other > 0))

"""A queue in virtual time: tasks arrive, and the source reports a true or a false count of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise

from activity_operator.api.spec import PoolSpec
from activity_operator.core.observation import ActivityMetrics, BacklogCount, MetricPeriod, SourceFacts, SourceProblem
from tests.unit.activity_operator.core.pool_harness import STEP_SECONDS, PoolHarness, pool_spec
from tests.unit.activity_operator.core.term import sentinel_facts

SILENT = SourceProblem("BackendUnreachable", "no answer", 0.0)
#: Seconds of a period of CloudWatch's counts, and the delay until CloudWatch shows them.
PERIOD_SECONDS, LATE_SECONDS = 60, 120

_REDIS = {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}
_PROMETHEUS = {"serverUrl": "http://prometheus:9090", "query": "vector(0)"}
#: The ways in which a pool learns of its tasks, with the part of the spec that selects each.
KINDS: dict[str, dict[str, object]] = {
    # The source counts waiting tasks.
    "counted": {"activityArn": None, "source": _REDIS},
    # The source counts waiting and running tasks, as a task store does.
    "with running": {"activityArn": None, "source": _REDIS},
    # No source counts: the sentinel polls at zero, and busy slots drive growth above zero.
    "sentinel": {},
    # As `sentinel`, plus CloudWatch's counts, which are minutes old.
    "cloudwatch": {"activation": {"mode": "CloudWatch"}},
    # As `sentinel`, plus the result of a Prometheus query.
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
    """Work for a harness's pool. `seconds` is the duration of a task.

    `lies` falsifies the count of waiting tasks: it gets the true count and the time, and returns the count that the
    source reports, or None for an error.
    """

    harness: PoolHarness
    kind: str = "counted"
    seconds: float = 5.0
    lies: Callable[[int, float], int | None] = lambda count, _: count
    sizes: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    _flows: dict[int, MetricPeriod] = field(default_factory=dict)
    _started: int = 0

    def __post_init__(self) -> None:
        self.harness.term.counted = self._source_facts

    @property
    def left(self) -> int:
        """Return the number of tasks that are not done."""
        return self.harness.truth.arrived - self.harness.truth.done

    def arrive(self, tasks: int) -> None:
        """Let `tasks` tasks arrive."""
        self.harness.truth.arrive(tasks, self.seconds)
        self._note(scheduled=tasks)

    def run(self, seconds: float, arrivals: Callable[[float], int] = lambda _: 0) -> None:
        """Let time pass; `arrivals` gets the seconds since the start and returns how many tasks arrive at that step."""
        harness, truth = self.harness, self.harness.truth
        began, end = harness.now, harness.now + seconds
        while harness.now < end:
            self.arrive(arrivals(harness.now - began))
            decision = harness.run(STEP_SECONDS)
            started = truth.arrived - len(truth.waiting)
            self._note(started=started - self._started)
            self._started = started
            self.sizes.append(decision.size.desired)
            self.replicas.append(harness.replicas)

    def run_until_idle(self, seconds: float, workers: int) -> None:
        """Let time pass until all tasks are done and at most `workers` workers are left, up to `seconds`."""
        end = self.harness.now + seconds
        while self.harness.now < end and (self.left or len(self.harness.pods) > workers):
            self.run(10 * STEP_SECONDS)

    def reversals(self) -> int:
        """Return how often the size changed from growing to shrinking or back."""
        return turns(self.sizes)

    def _note(self, scheduled: int = 0, started: int = 0) -> None:
        start = int(self.harness.now) // PERIOD_SECONDS * PERIOD_SECONDS
        flow = self._flows.get(start, MetricPeriod(start, PERIOD_SECONDS))
        self._flows[start] = replace(flow, scheduled=flow.scheduled + scheduled, started=flow.started + started)

    def _source_facts(self) -> SourceFacts:
        truth, now = self.harness.truth, self.harness.now
        running = sum(len(pod.process.tasks) for pod in truth.pods.values() if pod.process is not None)
        reported, before = self.lies(len(truth.waiting), now), self.harness.term.source
        source = replace(sentinel_facts(truth), metrics=before.metrics, counts=before.counts)
        source = replace(source, error=SILENT if reported is None else None)
        if reported is not None and self.kind == "cloudwatch":
            # CloudWatch does not show the last minutes yet, so a false count concerns the minutes before them.
            flows = [flow for start, flow in sorted(self._flows.items()) if start + LATE_SECONDS <= now]
            lie = MetricPeriod(int(now) - LATE_SECONDS, PERIOD_SECONDS, scheduled=max(0, reported - len(truth.waiting)))
            source = replace(source, metrics=ActivityMetrics((*flows, lie), now))
        elif reported is not None and self.kind != "sentinel":
            also = running if self.kind == "with running" else 0
            exact = self.kind != "prometheus"
            source = replace(source, counts=(BacklogCount(reported + also, exact, now, with_running=bool(also)),))
        return source


def load_of(kind: str, **changes: object) -> Load:
    """Return work for a new pool of this kind; keyword arguments go to `spec_of`."""
    return Load(PoolHarness(spec_of(kind, **changes)), kind)  # type: ignore[arg-type]


def turns(sizes: list[int]) -> int:
    """Return how often a series of sizes changed from growing to shrinking or back."""
    moves = [after - before for before, after in pairwise(sizes) if after != before]
    return sum(1 for one, other in pairwise(moves) if (one > 0) != (other > 0))

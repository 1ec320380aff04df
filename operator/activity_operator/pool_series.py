"""The gauges of all pools, kept as plain numbers and turned into series at each scrape.

A pool has 35 gauges. As objects of prometheus-client they took 22 KB per pool, as plain numbers 1 KB (measured).
"""

from collections import Counter as Count
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from activity_operator.api.spec import PoolSpec
from activity_operator.cluster.resources import Key
from activity_operator.core.decision import Decision
from activity_operator.core.observation import Observation

POOL = ("namespace", "activitypool")
WORKER_STATES = ("pending", "starting", "running", "draining", "drained", "stopping", "stopped")
STATUSES = ("True", "False", "Unknown")


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """The numbers of one pool: `workers` in the order of `WORKER_STATES`, `conditions` as (type, status)."""

    desired: int
    min_workers: int
    max_workers: int
    paused: bool
    backlog: int | None
    workers: tuple[int, ...]
    conditions: tuple[tuple[str, str], ...]
    recommended: int | None = None
    runtimes: tuple[tuple[str, int], ...] = ()


def numbers(spec: PoolSpec, observation: Observation, decision: Decision, status: Mapping[str, Any]) -> PoolNumbers:
    """Return a pool's numbers from one reconciliation; `status` is the status that it wants."""
    applied = spec if decision.situation is None else decision.situation.spec
    states: Count[str] = Count(map(attrgetter("state"), observation.workers))
    states["pending"] = max(len(observation.pods) - len(observation.workers), 0)
    return PoolNumbers(
        desired=decision.size.desired,
        min_workers=applied.min_workers,
        max_workers=applied.max_workers,
        recommended=None if decision.recommended is None else decision.recommended.desired,
        runtimes=tuple(sorted(Count(worker.runtime for worker in observation.workers if worker.runtime).items())),
        paused=spec.paused,
        backlog=decision.backlog.tasks,
        workers=tuple(states[state] for state in WORKER_STATES),
        conditions=tuple((str(c["type"]), str(c["status"])) for c in status.get("conditions") or ()),
    )


class PoolSeries(Collector):
    """The numbers of all pools, as a collector for a prometheus-client registry."""

    def __init__(self) -> None:
        self._pools: dict[Key, PoolNumbers] = {}

    def set(self, key: Key, found: PoolNumbers) -> None:
        """Replace a pool's numbers."""
        if self._pools.get(key) != found:
            self._pools[key] = found

    def forget(self, key: Key) -> None:
        """Remove the series of a deleted pool."""
        self._pools.pop(key, None)

    def clear(self) -> None:
        """Remove the series of all pools."""
        self._pools.clear()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families one by one, so that only one is in memory at a time. May run in another thread."""
        # The copy is one step under the interpreter's lock, so the main loop cannot change it halfway.
        pools = list(self._pools.copy().items())
        yield _family(
            "status_condition", "1 for the status that a condition has", _conditions(pools), "condition", "status"
        )
        yield _family("workers", "Workers by state", _workers(pools), "state")
        yield _family("replicas_desired", "Workers wanted", ((key, n.desired) for key, n in pools))
        yield _family(
            "replicas_recommended",
            "Workers that the operator would set, in scaling.mode Recommend",
            ((key, n.recommended) for key, n in pools if n.recommended is not None),
        )
        yield _family("replicas_min", "minWorkers that applies now", ((key, n.min_workers) for key, n in pools))
        yield _family("replicas_max", "maxWorkers that applies now", ((key, n.max_workers) for key, n in pools))
        yield _family(
            "backlog_tasks",
            "Tasks waiting, where the source can tell; from counts at least so many",
            ((key, n.backlog) for key, n in pools if n.backlog is not None),
        )
        yield _family(
            "runtime_workers",
            "Workers by the version of the worker's package",
            (((*key, version), count) for key, n in pools for version, count in n.runtimes),
            "version",
        )
        yield _family("paused", "1 while the pool is paused", ((key, n.paused) for key, n in pools))


Series = Iterator[tuple[tuple[str, ...], float]]


def _family(name: str, text: str, series: Series, *labels: str) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"activitypool_{name}", text, labels=[*POOL, *labels])
    for values, number in series:
        family.add_metric(values, float(number))
    return family


def _conditions(pools: list[tuple[Key, PoolNumbers]]) -> Series:
    for key, found in pools:
        for name, value in found.conditions:
            yield from (((*key, name, status), float(value == status)) for status in STATUSES)


def _workers(pools: list[tuple[Key, PoolNumbers]]) -> Series:
    for key, found in pools:
        yield from (((*key, state), count) for state, count in zip(WORKER_STATES, found.workers, strict=True))

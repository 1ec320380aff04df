"""The gauges of all pools, kept as plain numbers and turned into series at each scrape.

A pool has 35 gauges. As objects of prometheus-client they took 22 KB per pool, as plain numbers 1 KB (measured).
"""

from collections import Counter as Count
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.cluster.resources import Key
from activity_operator.core.decision import Decision
from activity_operator.core.observation import Observation
from activity_operator.exposition import Series, label_value, metric_text, pool_labels

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


class PoolSeries:
    """The numbers of all pools, and the text of their series."""

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

    def render(self) -> Iterator[str]:
        """Yield the text of one family after the other. May run in another thread."""
        # The copy is one step under the interpreter's lock, so the main loop cannot change it halfway.
        pools = [(pool_labels(key), found) for key, found in self._pools.copy().items()]
        yield _gauge("status_condition", "1 for the status that a condition has", _conditions(pools))
        yield _gauge("workers", "Workers by state", _workers(pools))
        yield _gauge("replicas_desired", "Workers wanted", ((pool, n.desired) for pool, n in pools))
        yield _gauge(
            "replicas_recommended",
            "Workers that the operator would set, in scaling.mode Recommend",
            ((pool, n.recommended) for pool, n in pools if n.recommended is not None),
        )
        yield _gauge("replicas_min", "minWorkers that applies now", ((pool, n.min_workers) for pool, n in pools))
        yield _gauge("replicas_max", "maxWorkers that applies now", ((pool, n.max_workers) for pool, n in pools))
        yield _gauge(
            "backlog_tasks",
            "Tasks waiting, where the source can tell; from counts at least so many",
            ((pool, n.backlog) for pool, n in pools if n.backlog is not None),
        )
        yield _gauge("runtime_workers", "Workers by the version of the worker's package", _runtimes(pools))
        yield _gauge("paused", "1 while the pool is paused", ((pool, int(n.paused)) for pool, n in pools))


#: Pools by the text of their labels.
Pools = list[tuple[str, PoolNumbers]]


def _gauge(name: str, text: str, series: Series) -> str:
    return metric_text(f"activitypool_{name}", "gauge", text, series)


def _conditions(pools: Pools) -> Series:
    for pool, found in pools:
        for name, value in found.conditions:
            for status in STATUSES:
                yield f'{pool},condition="{name}",status="{status}"', int(value == status)


def _workers(pools: Pools) -> Series:
    for pool, found in pools:
        for state, count in zip(WORKER_STATES, found.workers, strict=True):
            yield f'{pool},state="{state}"', count


def _runtimes(pools: Pools) -> Series:
    for pool, found in pools:
        for version, count in found.runtimes:
            yield f'{pool},version="{label_value(version)}"', count

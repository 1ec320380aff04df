"""PURE: the pools of a soak, and the arrivals at each: bursts, trickles and silences."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

#: The tasks' HeartbeatSeconds: the least that docs/limits.md recommends.
TASK_SECONDS = 30
#: Short times for scale-in and for zero, so that a run starts from zero many times.
DOWN = {"stabilizationWindowSeconds": 3, "zeroAfterSeconds": 4}


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool: its own fields of the spec, how long its tasks take, and how many of ten fail at first."""

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    seconds: tuple[float, float] = (0.2, 4.0)
    failing: int = 0

    @property
    def arn(self) -> str:
        """Its activity's ARN."""
        return f"arn:aws:states:us-east-1:123456789012:activity:{self.name}"


#: Each pool has room for its load and for what faults take from it: an endless queue says nothing of the operator.
POOLS = (
    Pool("zero", {"maxWorkers": 3}),
    Pool("zero-short", {"maxWorkers": 4}, (0.05, 0.5)),
    Pool("zero-long", {"maxWorkers": 6}, (4.0, 12.0)),
    Pool("minimum", {"minWorkers": 1, "maxWorkers": 4}),
    Pool("minimum-two", {"minWorkers": 2, "maxWorkers": 3}, (1.0, 8.0)),
    Pool("retries", {"maxWorkers": 3}, failing=4),
    Pool("slots", {"slotsPerWorker": 3, "maxWorkers": 2}),
    Pool("slots-minimum", {"slotsPerWorker": 2, "minWorkers": 1, "maxWorkers": 3}, failing=1),
)
#: The changes of a pool's spec that a fault can draw; they are taken back later.
CHANGES: tuple[dict[str, Any], ...] = (
    {"handlerImage": "registry.invalid/handler:2"},
    {"maxWorkers": 7},
    {"minWorkers": 2},
    {"taskHeartbeat": {"intervalSeconds": 2}},
)


def whole(pool: Pool) -> dict[str, Any]:
    """Return the spec of a pool."""
    return {
        "activityArn": pool.arn,
        "handlerImage": "registry.invalid/handler:1",
        "minWorkers": 0,
        "taskHeartbeat": {"intervalSeconds": 1},
        "reports": {"timeoutSeconds": 10},
        "scaling": {"scaleDown": DOWN},
        **pool.spec,
    }


@dataclass(frozen=True, slots=True)
class Arrival:
    """Executions that start together, `wait` seconds after the previous ones, with their duration and failures."""

    wait: float
    tasks: tuple[tuple[float, int], ...]


def arrivals(pool: Pool, generator: random.Random) -> Iterator[Arrival]:
    """Yield the arrivals at a pool, for ever."""
    while True:
        yield Arrival(generator.uniform(2.0, 15.0), ())
        if generator.random() < 0.5:
            yield Arrival(0.0, tuple(_task(pool, generator) for _ in range(generator.randint(2, 6))))
        else:
            for _ in range(generator.randint(3, 10)):
                yield Arrival(generator.uniform(0.2, 2.0), (_task(pool, generator),))


def _task(pool: Pool, generator: random.Random) -> tuple[float, int]:
    fails = generator.randint(1, 2) if generator.randrange(10) < pool.failing else 0
    return round(generator.uniform(*pool.seconds), 2), fails

"""Checks every pool once a second: whether its status is true, and how long after a fault it becomes true."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from activity_worker.contract import LABEL_POOL
from tests.faults.api import Raw
from tests.readiness import is_ready
from tests.soak.pools import POOLS
from tests.soak.verdict import CONVERGE_SECONDS, Struck
from tests.soak.world import World

LOOK_SECONDS = 1.0
#: Seconds for which a fault that has not converged is observed: beyond the limit, to measure by how much.
LONGEST_SECONDS = 3 * CONVERGE_SECONDS


def truthful(pool: Raw, deployments: Sequence[Raw], pods: Sequence[Raw]) -> bool:
    """Whether a pool's status is true: generation, number of pods, number of ready pods."""
    status = pool.get("status") or {}
    staying = [raw for raw in pods if "deletionTimestamp" not in raw["metadata"]]
    ready = sum(is_ready(raw) for raw in staying)
    wanted = sum(raw["spec"]["replicas"] for raw in deployments)
    return bool(
        status.get("observedGeneration") == pool["metadata"]["generation"]
        and wanted == len(staying) == status.get("replicas")
        and ready == status.get("readyReplicas")
    )


@dataclass(slots=True)
class Debt:
    """A fault that is over, the pools whose status has not been true since, and an execution started at its end."""

    struck: Struck
    pools: set[str] = field(default_factory=lambda: {pool.name for pool in POOLS})
    canary: str = ""


class Watch:
    """`owe` registers a fault; `run` records when it has converged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._debts: list[Debt] = []
        self.untruthful: set[str] = set()

    def owe(self, struck: Struck, canary: str) -> None:
        """Observe from now on until every pool's status was true and the canary has succeeded."""
        self._debts.append(Debt(struck, canary=canary))

    @property
    def settled(self) -> bool:
        """Whether every fault has converged and every pool's status is true."""
        return not self._debts and not self.untruthful

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            began = time.monotonic()
            self.untruthful = await self._look()
            self._debts = [debt for debt in self._debts if not self._paid(debt, began)]
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> set[str]:
        world = self._world
        pools = await world.api.items(world.path())
        deployments, pods = _by_pool(await world.deployments()), _by_pool(await world.pods())
        names = {raw["metadata"]["name"]: raw for raw in pools}
        return {name for name, raw in names.items() if not truthful(raw, deployments.get(name, ()), pods.get(name, ()))}

    def _paid(self, debt: Debt, looked: float) -> bool:
        if looked < debt.struck.over:
            return False
        debt.pools &= self.untruthful
        owed = [f"status of {name}" for name in sorted(debt.pools)]
        if not self._sung(debt.canary):
            owed.append(f"execution {debt.canary}")
        debt.struck.owed = ", ".join(owed) or debt.struck.owed
        since = time.monotonic() - debt.struck.over
        if not owed:
            debt.struck.converged = since
        return not owed or since > LONGEST_SECONDS

    def _sung(self, number: str) -> bool:
        """Whether the canary has succeeded, or shows nothing because its holder was killed and Retry repeats it."""
        run = self._world.fake._executions.execution(self._world.runs[number].arn)
        return run.status == "SUCCEEDED" or any(event["type"] == "ActivityTimedOut" for event in run.history)


def _by_pool(objects: Sequence[Raw]) -> dict[str, list[Raw]]:
    found: dict[str, list[Raw]] = {}
    for raw in objects:
        found.setdefault((raw["metadata"].get("labels") or {}).get(LABEL_POOL, ""), []).append(raw)
    return found

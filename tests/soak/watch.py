"""Checks every pool once a second: whether its status is true, and how long after a fault it becomes true."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from activity_worker.contract import LABEL_POOL
from tests.faults.api import Raw
from tests.readiness import is_ready
from tests.soak.harness import SoakHarness
from tests.soak.pools import POOLS
from tests.soak.verdict import CONVERGE_SECONDS, InjectedFault

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
class PendingRecovery:
    """A fault that is over, the pools whose status has not been true since, and an execution started at its end."""

    struck: InjectedFault
    pools: set[str] = field(default_factory=lambda: {pool.name for pool in POOLS})
    canary: str = ""


class Watch:
    """`expect_recovery` registers a fault; `run` records when it has converged."""

    def __init__(self, harness: SoakHarness) -> None:
        self._harness = harness
        self._pending: list[PendingRecovery] = []
        self.untruthful: set[str] = set()

    def expect_recovery(self, struck: InjectedFault, canary: str) -> None:
        """Observe from now on until every pool's status was true and the canary has succeeded."""
        self._pending.append(PendingRecovery(struck, canary=canary))

    @property
    def settled(self) -> bool:
        """Whether every fault has converged and every pool's status is true."""
        return not self._pending and not self.untruthful

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            began = time.monotonic()
            self.untruthful = await self._look()
            self._pending = [recovery for recovery in self._pending if not self._has_ended(recovery, began)]
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> set[str]:
        harness = self._harness
        pools = await harness.api.items(harness.path())
        deployments, pods = _by_pool(await harness.deployments()), _by_pool(await harness.pods())
        names = {raw["metadata"]["name"]: raw for raw in pools}
        return {name for name, raw in names.items() if not truthful(raw, deployments.get(name, ()), pods.get(name, ()))}

    def _has_ended(self, recovery: PendingRecovery, looked: float) -> bool:
        if looked < recovery.struck.over:
            return False
        recovery.pools &= self.untruthful
        missing = [f"status of {name}" for name in sorted(recovery.pools)]
        if not self._has_succeeded(recovery.canary):
            missing.append(f"execution {recovery.canary}")
        recovery.struck.missing = ", ".join(missing) or recovery.struck.missing
        since = time.monotonic() - recovery.struck.over
        if not missing:
            recovery.struck.converged = since
        return not missing or since > LONGEST_SECONDS

    def _has_succeeded(self, number: str) -> bool:
        """Whether the canary has succeeded, or shows nothing because its holder was killed and Retry repeats it."""
        run = self._harness.fake._executions.execution(self._harness.runs[number].arn)
        return run.status == "SUCCEEDED" or any(event["type"] == "ActivityTimedOut" for event in run.history)


def _by_pool(objects: Sequence[Raw]) -> dict[str, list[Raw]]:
    found: dict[str, list[Raw]] = {}
    for raw in objects:
        found.setdefault((raw["metadata"].get("labels") or {}).get(LABEL_POOL, ""), []).append(raw)
    return found

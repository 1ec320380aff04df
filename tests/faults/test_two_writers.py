"""Another controller writes a pool's Deployment in a loop: the operator names it and limits its own writes."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from activity_operator.cluster.edit_conflicts import EDITS, PACE_SECONDS
from tests.eventually import eventually
from tests.faults import audit
from tests.faults.api import Raw, RefusedError
from tests.faults.election import DEFAULTS
from tests.faults.fault_cluster import REPLICAS, fault_cluster
from tests.faults.harness import POOL, FaultHarness, harness
from tests.faults.replicas import fork_server
from tests.faults.scenarios import leads, pool_of

pytestmark = pytest.mark.timeout(400)

#: Seconds of each conflict: several times as long as the operator waits in it.
FIGHT_SECONDS = 40.0
#: Seconds after the other writer's last write within which the Deployment must be as the pool declares.
PEACE_SECONDS = PACE_SECONDS + 15.0


async def _deployment(harness: FaultHarness) -> Raw:
    (found,) = await harness.deployments()
    return found


class Rival:
    """A controller in a loop: whenever the Deployment is not as it wants, it writes that at once."""

    def __init__(self, harness: FaultHarness, manager: str, change: Raw, wants: Callable[[Raw], bool]) -> None:
        self._harness = harness
        self._manager = manager
        self._change = change
        self._wants = wants
        self.writes = 0

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            found = await _deployment(self._harness)
            if not self._wants(found):
                path = f"/apis/apps/v1/namespaces/{self._harness.namespace}/deployments/{found['metadata']['name']}"
                with suppress(RefusedError):
                    await self._harness.api.call("PATCH", f"{path}?fieldManager={self._manager}", self._change)
                    self.writes += 1
            await asyncio.sleep(0.05)


@asynccontextmanager
async def _harness() -> AsyncIterator[FaultHarness]:
    """Set up a harness with a pool of two workers on its own control plane.

    The election's settings are as shipped: a change of leader would forget the conflict.
    """
    async with (
        fault_cluster() as place,
        fork_server(place.folder) as processes,
        harness(place, processes, "fight", 1, **DEFAULTS) as made,
    ):
        await leads(made)
        await pool_of(made, 2, minWorkers=2)
        made.plan.arm()
        yield made


async def _fight(made: FaultHarness, rival: Rival) -> tuple[float, int]:
    """Let both write; return the seconds, and how often the operator wrote the Deployment meanwhile."""
    began, begun = time.monotonic(), time.time()
    task = asyncio.create_task(rival.run())
    try:
        await eventually("the status says that the Deployment is contested", lambda: _contested(made), seconds=60.0)
        await asyncio.sleep(max(0.0, began + FIGHT_SECONDS - time.monotonic()))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return time.monotonic() - began, _effective(made, begun)


def _effective(made: FaultHarness, since: float) -> int:
    """Return how many writes of the operator to Deployments took effect; refused writes do not count."""
    writes = audit.writers(made.cluster.folder, (made.namespace,))
    ours = [one for one in writes if one.resource == "deployments" and one.user in REPLICAS and one.received >= since]
    return sum(one.code < 300 for one in ours)


async def _contested(made: FaultHarness) -> bool:
    return (await _limited(made))["reason"] == "DeploymentContested"


async def _limited(made: FaultHarness) -> dict[str, str]:
    conditions = (((await made.pool()) or {}).get("status") or {}).get("conditions") or ()
    none = {"status": "", "reason": "", "message": ""}
    return next((found for found in conditions if found["type"] == "ScalingLimited"), none)


async def _events_of(made: FaultHarness, reason: str) -> list[Raw]:
    events = await made.api.items(f"/apis/events.k8s.io/v1/namespaces/{made.namespace}/events")
    return [event for event in events if event["reason"] == reason and event["regarding"]["name"] == POOL]


RIVALS: dict[str, tuple[str, Raw, Callable[[Raw], bool]]] = {
    "an autoscaler": ("keda", {"spec": {"replicas": 1}}, lambda raw: raw["spec"]["replicas"] == 1),
    "a deployer": (
        "argocd-controller",
        {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 30}}}},
        lambda raw: raw["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30,
    ),
}


async def _as_declared(made: FaultHarness, declared: Raw) -> bool:
    found = await _deployment(made)
    spec, template = found["spec"], found["spec"]["template"]["spec"]
    grace = declared["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    return bool(spec["replicas"] == 2 and template["terminationGracePeriodSeconds"] == grace)


async def _play(name: str) -> tuple[Rival, float, int, dict[str, Any]]:
    manager, change, wants = RIVALS[name]
    async with _harness() as made:
        declared = await _deployment(made)
        rival = Rival(made, manager, change, wants)
        seconds, writes = await _fight(made, rival)
        events = {reason: await _events_of(made, reason) for reason in ("DeploymentContested", "EditReverted")}
        events["limited"] = [await _limited(made)]
        await eventually(
            "the Deployment is as the pool declares", lambda: _as_declared(made, declared), seconds=PEACE_SECONDS
        )
        assert made.kubelet.troubles == []
        return rival, seconds, writes, events


async def test_other_writer_of_a_deployment_is_named_and_own_writes_are_paced() -> None:
    played = await asyncio.gather(*(_play(name) for name in RIVALS))

    for (manager, _, _), (rival, seconds, writes, events) in zip(RIVALS.values(), played, strict=True):
        most = EDITS + seconds / PACE_SECONDS + 1
        assert 2 <= writes <= most, f"{manager}: {writes} writes in {seconds:.0f} s"
        assert rival.writes <= most + 1, f"{manager}: the operator reverted its writes without a pause"
        (limited,) = events["limited"]
        assert (limited["status"], limited["reason"]) == ("True", "DeploymentContested")
        assert f"is also written by {manager}, again and again" in limited["message"]
        (event,) = events["DeploymentContested"]
        assert (event["type"], event["note"]) == ("Warning", limited["message"])
        assert len(events["EditReverted"]) <= EDITS
        assert all(f"(field manager {manager})" in event["note"] for event in events["EditReverted"])

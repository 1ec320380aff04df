"""Checks of a pool with a fault: its conditions and Warnings, and its untouched workers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from activity_worker.contract import Env
from tests.e2e.handler import GATE
from tests.e2e.harness import CREDENTIALS, SYSTEM, ClusterHarness
from tests.e2e.pool import Pool
from tests.e2e.view import PoolView

HANDLER = f'''
"""Works until the gate is open, when the input asks for that."""
import pathlib, time

def handle(request):
    time.sleep(1)
    while request.input.get("gated") and not pathlib.Path({GATE!r}).exists():
        time.sleep(0.2)
    return {{"task": request.input["n"]}}
'''
GATED: dict[str, Any] = {
    "env": [*CREDENTIALS, {"name": Env.HANDLER, "value": "gated:handle"}, {"name": "PYTHONPATH", "value": "/gated"}],
    "volumeMounts": [{"name": "gated", "mountPath": "/gated"}],
}


@dataclass(frozen=True)
class Fault:
    """A pool, and the row of the fault table that it must show; `says` is a pattern for the message's beginning.

    `warns` is the pattern of the Warning where an earlier message may be reported; "" means that of `says`.
    """

    pool: Pool
    reason: str
    says: str
    needs_a_person: bool = False
    warns: str = ""

    def shown_by(self, view: PoolView) -> bool:
        """Whether the conditions show it."""
        ready, stalled = view.condition("Ready"), view.condition("Stalled")
        if (ready["status"], ready["reason"]) != ("False", self.reason) or not re.match(self.says, ready["message"]):
            return False
        shown = (stalled["status"], stalled["reason"], stalled["message"])
        return shown == (("True", ready["reason"], ready["message"]) if self.needs_a_person else ("", "", ""))

    def warnings(self, view: PoolView) -> list[str]:
        """Return the messages of the Warnings that match it."""
        pattern = self.warns or self.says
        return [message for message in view.events(self.reason, "Warning") if re.match(pattern, message)]


def term(harness: ClusterHarness) -> int:
    """Return the number of the present term: a new leader repeats Warnings."""
    lease = harness.kubectl("get", "lease", "activity-operator", "-n", SYSTEM, "-o=jsonpath={.spec.leaseTransitions}")
    return int(lease)


def wait_shown(faults: Iterable[Fault], since: int, seconds: float = 480) -> None:
    """Wait until every pool has shown its fault, with exactly one Warning.

    `since` is the term in which the faults began.
    """
    faults = tuple(faults)
    for fault in faults:
        shown = fault.pool.eventually(f"shows {fault.reason}", fault.shown_by, seconds=seconds)
        print(f"{fault.pool.name} showed {fault.reason} at {shown.moment.at:.1f}")
        fault.pool.eventually(f"a Warning {fault.reason}", fault.warnings)
    repeated = {fault.pool.name: messages for fault in faults if len(messages := fault.warnings(fault.pool.now)) > 1}
    assert not repeated or term(faults[0].pool.harness) != since, f"reported more than once: {repeated}"


def wait_well(pools: Iterable[Pool], seconds: float = 480) -> None:
    """Wait until every pool was Ready at some time from now on."""
    for pool in pools:
        pool.eventually("the pool is Ready again", is_well, since=pool.timeline.mark(), seconds=seconds)


def is_well(view: PoolView) -> bool:
    """Whether the pool is Ready without a fault."""
    return view.condition("Ready")["status"] == "True" and not view.condition("Stalled")["status"]


def busy_pool(harness: ClusterHarness, namespace: str, name: str, **spec: Any) -> Pool:
    """Apply a pool of one worker, unless the spec says otherwise, and give it a task that lasts until `let_go`."""
    executions = harness.machine(f"{name}-{namespace}", HeartbeatSeconds=300)
    return make_busy(Pool(harness, namespace, name, executions), **spec)


def make_busy(pool: Pool, **spec: Any) -> Pool:
    """Apply the pool as `busy_pool` does; returns it."""
    metadata = {"name": "gate", "namespace": pool.namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gated.py": HANDLER}}
    pool.harness.apply(body)
    pool.apply(**{"minWorkers": 1, "maxWorkers": 1, "podTemplate": worker_with(), **spec})
    pool.executions.start(1, gated=True)
    return pool


@dataclass(frozen=True)
class BusyPools:
    """Workers with a task, by pool: their pods' names and the starts of their containers; `marks`: since when."""

    containers: dict[Pool, set[str]]
    marks: dict[Pool, int]

    def assert_untouched(self) -> None:
        """Assert that the same containers ran at every moment since, and that every task still runs."""
        for pool, before in self.containers.items():
            for view in pool.since(self.marks[pool]):
                assert before <= _started(view), f"the workers of {pool.name} were touched: {pool.timeline.story()}"
            running = [attempt for attempt in pool.tasks.attempts() if attempt.worker and not attempt.ending]
            assert len(running) == 1, f"the task of {pool.name} does not run"

    def let_go(self) -> None:
        """Let the tasks end."""
        for pool, started in self.containers.items():
            pool.let_go({container.partition(" ")[0] for container in started})


def busy_pools(pools: Iterable[Pool]) -> BusyPools:
    """Wait until each pool has one busy worker and the kubelet has reported the containers of its workers."""
    pools = tuple(pools)
    for pool in pools:
        pool.eventually("a worker is busy and every container runs", _works)
    seen = {pool: pool.now for pool in pools}
    marks = {pool: view.moment.number for pool, view in seen.items()}
    return BusyPools({pool: _started(view) for pool, view in seen.items()}, marks)


def _works(view: PoolView) -> bool:
    """Whether a worker is busy and every worker's container is known to run: the kubelet may report one later."""
    started = {container.partition(" ")[0] for container in _started(view)}
    return view.status.get("busyWorkers") == 1 and started == {pod["metadata"]["name"] for pod in view.pods}


def _started(view: PoolView) -> set[str]:
    """Return pod and start of each container of the pool that runs, without pods that are being deleted."""
    return {
        f"{pod['metadata']['name']} {container['state']['running']['startedAt']}"
        for pod in view.pods
        for container in pod["status"].get("containerStatuses", ())
        if "running" in container["state"]
    }


def worker_with(**fields: Any) -> dict[str, Any]:
    """Return a podTemplate whose worker container has these fields, and the credentials."""
    return pod_with({}, **fields)


def pod_with(pod: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a podTemplate with these fields of the pod, and of its worker container."""
    mounts = [*GATED["volumeMounts"], *fields.pop("volumeMounts", ())]
    worker = {"name": "worker", **GATED, "volumeMounts": mounts, **fields}
    volumes = [{"name": "gated", "configMap": {"name": "gate"}}, *pod.get("volumes", ())]
    return {"spec": {**pod, "containers": [worker, *pod.get("containers", ())], "volumes": volumes}}

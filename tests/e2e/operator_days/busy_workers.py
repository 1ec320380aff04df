"""Twenty busy workers of one pool, whose tasks last until the test lets them end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from activity_worker.contract import Env
from tests.e2e.handler import GATE
from tests.e2e.harness import CREDENTIALS, ClusterHarness
from tests.e2e.operator_days import node
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.view import PoolView
from tests.e2e.watches import Raw

SIZE = 20
#: The conditions that a change of leader must not change. While no replica runs, two others may change for some
#: seconds: SignalsStale and ScalingLimited.
STEADY = {"Ready", "Active"}
HANDLER = f'''
"""Works until the gate is open."""
import pathlib, time

def handle(request):
    while not pathlib.Path({GATE!r}).exists():
        time.sleep(0.2)
    return {{"task": request.input["n"]}}
'''
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 2, "zeroAfterSeconds": 2}}


def gated(harness: ClusterHarness, namespace: str, name: str, **spec: Any) -> Pool:
    """Apply a pool in whose workers every task lasts until `open_gates`."""
    metadata = {"name": "gated", "namespace": namespace}
    harness.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gated.py": HANDLER}})
    env = [{"name": Env.HANDLER, "value": "gated:handle"}, {"name": "PYTHONPATH", "value": "/gated"}]
    worker = {
        "name": "worker",
        "env": [*CREDENTIALS, *env],
        "volumeMounts": [{"name": "gated", "mountPath": "/gated"}],
    }
    pod = {"containers": [worker], "volumes": [{"name": "gated", "configMap": {"name": "gated"}}]}
    # Long limits, because twenty new workers share the node with everything else in their first minute.
    limits = UNHURRIED | {"TimeoutSeconds": 3600}
    return a_pool(harness, namespace, name, task=limits, podTemplate={"spec": pod}, scaling=AT_ONCE, **spec)


def open_gates(pool: Pool) -> None:
    """Let the tasks of the pool's present workers end, and all their later ones.

    No operator and no kubelet is needed.
    """
    node.open_gates(pool.harness.cluster, [pod["metadata"]["uid"] for pod in pool.now.pods])


@dataclass
class BusyWorkers:
    """The twenty workers. The windows are short: an operator that took silence for idleness would soon remove them."""

    harness: ClusterHarness
    namespace: str
    pool: Pool | None = None
    gathered: bool = False

    def call(self) -> Pool:
        """At the first call, apply the pool with its twenty workers and start a task for each."""
        if self.pool is None:
            self.pool = gated(self.harness, self.namespace, "busy-workers", minWorkers=SIZE, maxWorkers=SIZE)
            self.pool.executions.start(SIZE)
        return self.pool

    def gather(self) -> Pool:
        """At the first call, wait until all workers are busy, then set minWorkers to 0: only tasks keep them."""
        pool = self.call()
        if not self.gathered:
            pool.eventually(f"{SIZE} workers are busy", lambda view: view.status.get("busyWorkers") == SIZE)
            pool.change(minWorkers=0)
            pool.eventually("the operator has seen minWorkers 0", lambda view: _generation(view) == pool.generation)
            self.gathered = True
        return pool

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Assert that the workers are the same at every moment of the block, and its pool's status at the end.

        Meanwhile the status may say that the workers have not reported to a new leader yet.
        """
        pool = self.gather()
        before = pool.eventually("the pool's reports are fresh", _is_known, since=pool.timeline.catch_up())
        yield
        now = pool.timeline.catch_up()
        pool.eventually("the status is as before", lambda view: _says(view) == _says(before), since=now)
        for view in pool.since(before.moment.number):
            changed = _difference(_picture(before), _picture(view))
            assert not changed, f"{changed}\n{pool.timeline.story(before.moment.number)}"

    @contextmanager
    def edited(self) -> Iterator[Pool]:
        """Give the pool of the busy workers to edit; assert that they and the Deployment's spec stay the same."""
        pool = self.gather()
        before = pool.now
        yield pool
        pool.eventually("its workers are busy", lambda view: view.status.get("busyWorkers") == SIZE)
        for view in pool.since(before.moment.number):
            changed = _difference(_objects(before), _objects(view))
            assert not changed, f"{changed}\n{pool.timeline.story(before.moment.number)}"
        assert not pool.tasks.interrupted()


def _generation(view: PoolView) -> int:
    return int(view.status.get("observedGeneration", -1))


def _is_known(view: PoolView) -> bool:
    """Whether the workers have reported to the leader."""
    return view.says("SignalsStale", "False")


def _says(view: PoolView) -> dict[str, Any]:
    """Return the status and the reason of every condition."""
    return {one["type"]: (one["status"], one["reason"]) for one in view.status["conditions"]}


def _picture(view: PoolView) -> dict[str, Any]:
    """Return what must not change: workers, Deployments, the numbers and decisions of the status, steady conditions."""
    status = view.status
    return {
        **_objects(view),
        "deployments": {one["metadata"]["uid"]: one["metadata"]["generation"] for one in view.deployments},
        "busy": status.get("busyWorkers"),
        "desired": status.get("desiredReplicas"),
        "decisions": view.decisions,
        "since": {kind: view.condition(kind).get("lastTransitionTime") for kind in STEADY},
    }


def _objects(view: PoolView) -> dict[str, Any]:
    """Return the workers and the specs of the Deployments."""
    return {
        "workers": {pod["metadata"]["uid"]: _touchable(pod) for pod in view.pods},
        "specs": {one["metadata"]["uid"]: one["spec"] for one in view.deployments},
    }


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the former and the present value of each key that changed."""
    return {key: (was, after[key]) for key, was in before.items() if after[key] != was}


def _touchable(pod: Raw) -> dict[str, Any]:
    return {
        "annotations": pod["metadata"].get("annotations", {}),
        "restarts": [container["restartCount"] for container in pod["status"].get("containerStatuses", [])],
    }

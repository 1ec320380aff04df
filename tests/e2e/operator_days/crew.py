"""Twenty busy workers of one pool, whose tasks last until the test lets them end."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from activity_worker.contract import LABEL_POOL, Env
from tests.cluster import probe
from tests.e2e.handler import GATE
from tests.e2e.pool import UNHURRIED, Pool, a_pool
from tests.e2e.stage import CREDENTIALS, Stage, wait_for

SIZE = 20
#: A new leader says for some seconds that it has heard nobody yet (SignalsStale), and holds the size for that reason
#: (ScalingLimited). Of the pool and its work it has nothing new to say.
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


def gated(stage: Stage, namespace: str, name: str, **spec: Any) -> Pool:
    """Apply a pool in whose workers every task lasts until `open_gates`."""
    metadata = {"name": "gated", "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gated.py": HANDLER}}
    probe.apply(stage.cluster, body)
    env = [{"name": Env.HANDLER, "value": "gated:handle"}, {"name": "PYTHONPATH", "value": "/gated"}]
    worker = {
        "name": "worker",
        "env": [*CREDENTIALS, *env],
        "volumeMounts": [{"name": "gated", "mountPath": "/gated"}],
    }
    pod = {"containers": [worker], "volumes": [{"name": "gated", "configMap": {"name": "gated"}}]}
    # Not about time limits: in their first minute twenty new workers share the node with everything else.
    limits = UNHURRIED | {"TimeoutSeconds": 3600}
    return a_pool(stage, namespace, name, task=limits, podTemplate={"spec": pod}, scaling=AT_ONCE, **spec)


def open_gates(pool: Pool) -> None:
    """Let the tasks of all workers end, now and from now on."""
    with ThreadPoolExecutor(4) as hands:
        list(hands.map(lambda pod: pool.kubectl("exec", pod, "--", "touch", GATE), pool.workers()))


@dataclass
class Crew:
    """The twenty. The windows are short: an operator that took silence for idleness would soon send them home."""

    stage: Stage
    namespace: str
    pool: Pool | None = None

    def call(self) -> Pool:
        """Apply the pool with its twenty workers and start a task for each; once."""
        if self.pool is None:
            self.pool = gated(self.stage, self.namespace, "crew", minWorkers=SIZE, maxWorkers=SIZE)
            self.pool.executions.start(SIZE)
        return self.pool

    def gather(self) -> Pool:
        """Wait until all are busy; from then on nothing but their tasks keeps them."""
        pool = self.call()
        if self.stage.pool(self.namespace, "crew")["spec"].get("minWorkers"):
            wait_for(f"{SIZE} workers are busy", self.busy, 480)
            pool.change(minWorkers=0)
            wait_for("the operator knows", lambda: pool.status["observedGeneration"] == 2, 120)
        return pool

    def busy(self) -> bool:
        """Whether the status counts as many busy workers as there are."""
        return self.pool is not None and self.pool.status.get("busyWorkers") == SIZE

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Whatever happens inside, the crew goes on with its tasks, and its pool's status says what it said before."""
        self.gather()
        before, says = self.picture(), self.says()
        with self.story() as told:
            yield
            wait_for("the crew's pool says what it said before", lambda: self.says() == says, 240)
        after = self.picture()
        changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
        assert not changed, changed
        assert set(told) == {f"{SIZE} busy of {SIZE}"}, told

    @contextmanager
    def story(self) -> Iterator[list[str]]:
        """Give what the status told of the crew's number, each time it was written."""
        cluster = self.stage.cluster
        say = r'jsonpath={.status.busyWorkers} busy of {.status.desiredReplicas}{"\n"}'
        words = [f"--kubeconfig={cluster.kubeconfig}", "-n", self.namespace, "get", "apool", "crew", "-w", "-o", say]
        told: list[str] = []
        with subprocess.Popen([cluster.kubectl, *words], stdout=subprocess.PIPE, text=True) as watch:
            try:
                yield told
            finally:
                watch.terminate()
                told.extend(watch.communicate()[0].splitlines())

    def picture(self) -> dict[str, Any]:
        """Return what nobody may touch: pods and Deployments, and what the conditions say since when."""
        pool = self.call()
        pods = json.loads(pool.kubectl("get", "pods", "-l", f"{LABEL_POOL}=crew", "-o", "json"))["items"]
        return {
            "pods": {pod["metadata"]["uid"]: _touchable(pod) for pod in pods},
            "deployments": {d["metadata"]["uid"]: d["metadata"]["generation"] for d in pool.deployments()},
            "decisions": pool.status["decisions"],
            "since": {c["type"]: c["lastTransitionTime"] for c in pool.status["conditions"] if c["type"] in STEADY},
        }

    def says(self) -> dict[str, Any]:
        """Return what the status says now."""
        status = self.call().status
        return {"busy": status["busyWorkers"]} | {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def _touchable(pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": pod["metadata"]["name"],
        "annotations": pod["metadata"].get("annotations", {}),
        "deleted": pod["metadata"].get("deletionTimestamp"),
        "restarts": [container["restartCount"] for container in pod["status"].get("containerStatuses", [])],
    }

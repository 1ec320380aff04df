"""What a pool in trouble has to say, and what may not happen to the workers it has."""

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from activity_worker.contract import Env
from tests.cluster import probe
from tests.e2e.handler import GATE
from tests.e2e.pool import PATIENCE, Pool
from tests.e2e.stage import CREDENTIALS, SYSTEM, Stage, condition_of, wait_for

Status = dict[str, Any]

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
    """A pool, and the row of the fault table that it must show; `says` is a pattern that the message begins with.

    `warns` is the Warning's, where that may be said before what the conditions come to say; "" is the same one.
    """

    pool: Pool
    reason: str
    says: str
    needs_a_person: bool = False
    warns: str = ""

    def shown_by(self, status: Status) -> bool:
        """Whether the conditions say it."""
        ready, stalled = condition_of(status, "Ready"), condition_of(status, "Stalled")
        if (ready["status"], ready["reason"]) != ("False", self.reason) or not re.match(self.says, ready["message"]):
            return False
        said = (stalled["status"], stalled["reason"], stalled["message"])
        return said == (("True", ready["reason"], ready["message"]) if self.needs_a_person else ("", "", ""))

    def warnings(self) -> list[str]:
        """Return the messages of the Warnings that say it."""
        about = f"involvedObject.name={self.pool.name},reason={self.reason},type=Warning"
        found = json.loads(self.pool.kubectl("get", "events", "--field-selector", about, "-o", "json"))["items"]
        return [event["message"] for event in found if re.match(self.warns or self.says, event["message"])]


def term(stage: Stage) -> str:
    """Return which term of leadership it is: a new leader says again what is wrong."""
    return stage.kubectl("get", "lease", "activity-operator", "-n", SYSTEM, "-o=jsonpath={.spec.leaseTransitions}")


def wait_shown(faults: Iterable[Fault], since: str, seconds: float = 480) -> None:
    """Wait until every pool has shown its fault once, and has said it once, as a Warning.

    `since` is the term in which the faults began.
    """
    faults = tuple(faults)
    wait_each("fault", {fault.pool: fault.shown_by for fault in faults}, seconds)
    wait_for("every fault is a Warning", lambda: all(fault.warnings() for fault in faults), PATIENCE)
    repeated = {fault.pool.name: said for fault in faults if len(said := fault.warnings()) > 1}
    assert not repeated or term(faults[0].pool.stage) != since, f"said more than once: {repeated}"


def wait_well(pools: Iterable[Pool], seconds: float = 480) -> None:
    """Wait until every pool was Ready once."""
    wait_each("recovery", dict.fromkeys(pools, is_well), seconds)


def is_well(status: Status) -> bool:
    """Whether the pool is Ready and wants nobody's help."""
    return condition_of(status, "Ready")["status"] == "True" and not condition_of(status, "Stalled")["status"]


def wait_each(what: str, wanted: dict[Pool, Callable[[Status], bool]], seconds: float) -> None:
    """Wait until each pool's status was once as wanted; print how soon it was."""
    began, missing = time.monotonic(), dict(wanted)
    unlike: dict[str, Any] = {}

    def seen() -> bool:
        unlike.clear()
        for namespace in {pool.namespace for pool in missing}:
            some = next(iter(pool for pool in missing if pool.namespace == namespace))
            found = json.loads(some.kubectl("get", "apool", "-o", "json"))["items"]
            statuses = {pool["metadata"]["name"]: pool.get("status", {}) for pool in found}
            for pool in [pool for pool in missing if pool.namespace == namespace]:
                if missing[pool](statuses[pool.name]):
                    del missing[pool]
                    print(f"{what} of {pool.name}: after {time.monotonic() - began:.1f} s")
                else:
                    unlike[pool.name] = statuses[pool.name].get("conditions")
        return not missing

    try:
        wait_for(what, seen, seconds)
    except AssertionError as late:
        raise AssertionError(f"{late}: {json.dumps(unlike, indent=1)}") from late


def busy_pool(stage: Stage, namespace: str, name: str, **spec: Any) -> Pool:
    """Apply a pool of one worker, unless the spec says otherwise, and give it a task that lasts until it is let go."""
    # A machine too busy for a heartbeat in half a minute is another theme.
    executions = stage.machine(f"{name}-{namespace}", HeartbeatSeconds=300)
    return make_busy(Pool(stage, namespace, name, executions), **spec)


def make_busy(pool: Pool, **spec: Any) -> Pool:
    """Apply the pool as `busy_pool` does; returns it."""
    metadata = {"name": "gate", "namespace": pool.namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gated.py": HANDLER}}
    probe.apply(pool.stage.cluster, body)
    pool.apply(**{"minWorkers": 1, "maxWorkers": 1, "podTemplate": worker_with(), **spec})
    pool.executions.start(1, gated=True)
    return pool


@dataclass(frozen=True)
class AtWork:
    """Workers that have a task, by pool: their pods' names and when they started."""

    pods: dict[Pool, set[str]]

    def assert_untouched(self) -> None:
        """The very same containers are still there, and their tasks run."""
        for pool, before in self.pods.items():
            assert before <= _started(pool), f"the workers of {pool.name} were touched"
            assert pool.executions.running() == 1, f"the task of {pool.name} does not run"

    def let_go(self) -> None:
        """Let the tasks end."""
        for pool, started in self.pods.items():
            pool.let_go({container.partition(" ")[0] for container in started})


def at_work(pools: Iterable[Pool]) -> AtWork:
    """Wait until each pool has its workers and its task runs."""
    pools = tuple(pools)
    # Of a task that runs the history says who polled for it, which may have been the operator.
    wait_each("work", dict.fromkeys(pools, lambda status: status.get("busyWorkers") == 1), 480)
    # A worker reports its task before the kubelet says that its container runs.
    wait_for("the kubelet tells of every worker's container", lambda: all(map(_started, pools)), PATIENCE)
    return AtWork({pool: _started(pool) for pool in pools})


def _started(pool: Pool) -> set[str]:
    """Return pod and start of each container that runs for the pool, those that are going left out."""
    return {
        f"{pod['metadata']['name']} {container['state']['running']['startedAt']}"
        for pod in pool.stage.workers(pool.namespace, pool.name)
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

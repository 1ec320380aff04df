"""A node becomes unreachable while its workers work: it returns in time, or after Kubernetes has evicted its pods.

The kubelet is cut off from the API server; the workers run on, and reach the operator and the task service.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from activity_worker.contract import WorkerState
from tests.eventually import eventually
from tests.faults import audit
from tests.faults.api import Raw
from tests.faults.campaign import Played
from tests.faults.fault_cluster import fault_cluster
from tests.faults.harness import FaultHarness, harness
from tests.faults.matrix import Job
from tests.faults.nodes import MISSED_SECONDS, WatchedNode, tolerating, watched_nodes
from tests.faults.replicas import HASTENED, fork_server
from tests.faults.runs import judged
from tests.faults.scenarios import leads, pool_of, ready
from tests.faults.worker import PlayedWorker
from tests.readiness import is_ready

PART = "node"
#: The names of the controllers in the audit log; the one that evicts uses its former name.
REPLICA_SETS, EVICTION = "replicaset-controller", "node-controller"
#: The reason that Kubernetes gives in the condition of a pod that it evicts.
BY_EVICTION = "DeletionByTaintManager"
WORKERS = 4
NEW_IMAGE = "registry.invalid/handler:2"
#: Seconds for which busy workers must be left alone: several rounds of everything periodic.
WATCHED_SECONDS = 4.0
#: Kubernetes' default tolerationSeconds for an unreachable node, and the shorter value that some pools here set.
AS_SHIPPED_SECONDS, SHORT_SECONDS = 300, 4


@dataclass
class NodeLossRun:
    """A working pool on two nodes. The node with the most tasks becomes unreachable."""

    harness: FaultHarness
    lost: WatchedNode
    busy: list[str]
    #: The pods of the lost node.
    there: list[str]

    async def miss(self) -> None:
        """Cut the node off and wait until Kubernetes marks it unreachable and its pods are not Ready."""
        self.harness.kubelet.cut_off(self.lost)
        await eventually("the node is unreachable", self.lost.missed)

        async def none_is_ready() -> bool:
            return not {name for name, raw in (await self.pods()).items() if is_ready(raw)} & {*self.there}

        await eventually("its pods are not Ready", none_is_ready)

    async def come_back(self) -> None:
        """Let the node's kubelet reach the API server again."""
        self.harness.kubelet.rejoin(self.lost)
        await eventually("the node is Ready", self.lost.well)

    async def pods(self) -> dict[str, Raw]:
        """Return the pool's pods that are not being deleted, by name."""
        return {
            raw["metadata"]["name"]: raw
            for raw in await self.harness.pods()
            if "deletionTimestamp" not in raw["metadata"]
        }


def _workers(made: FaultHarness, names: Collection[str]) -> list[PlayedWorker]:
    """Return the workers in these pods."""
    kubelet = made.kubelet
    return [worker for uid, worker in kubelet.workers.items() if kubelet._pods[uid] in names]


def _deleters(made: FaultHarness) -> dict[str, set[str]]:
    """Return the users that deleted each pod, by the pod's name, without the kubelet's removal of ended pods."""
    writes = audit.writers(made.cluster.folder, (made.namespace,))
    found: dict[str, set[str]] = {}
    for one in writes:
        if one.verb.startswith("delete") and one.resource == "pods" and one.code < 300 and one.user != "test":
            found.setdefault(one.name, set()).add(one.agent if one.user == "controllers" else one.user)
    return found


def same(what: str, found: object, wanted: object) -> None:
    """Raise AssertionError with `what` in its message unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted}, found {found}")


async def _at_work(made: FaultHarness, nodes: Sequence[WatchedNode], tasks: int, pool: Raw) -> NodeLossRun:
    await leads(made)
    await pool_of(made, WORKERS, minWorkers=WORKERS, maxWorkers=WORKERS, **pool)
    same("workers of each node", {len(made.kubelet.on(node)) for node in nodes}, {WORKERS // 2})
    made.execute(tasks, gated=True)

    async def all_run() -> bool:
        status = ((await made.pool()) or {}).get("status") or {}
        busy = made.kubelet.busy()
        return sum(made.ran.values()) == tasks and status.get("busyWorkers") == len(busy)

    await eventually("all tasks run, and the operator knows", all_run)

    def tasks_on(node: WatchedNode) -> int:
        return sum(worker.running for worker in _workers(made, made.kubelet.on(node)))

    lost = max(nodes, key=tasks_on)
    return NodeLossRun(made, lost, made.kubelet.busy(), made.kubelet.on(lost))


async def _in_hand(made: FaultHarness, nodes: Sequence[WatchedNode], tasks: int, pool: Raw) -> NodeLossRun:
    """Have the operator hold tasks for a pod whose node is cut off before the pod can start."""
    await leads(made)
    await made.create_pool(**pool)
    await eventually("the operator polls for the pool", lambda: made.open_polls() > 0)
    nodes[0].doomed = True
    made.execute(tasks)
    await eventually("a pod is bound to a node that is cut off", lambda: not nodes[0].reachable.is_set())
    return NodeLossRun(made, nodes[0], [], [raw["metadata"]["name"] for raw in await made.pods()])


async def _in_time(loss: NodeLossRun) -> None:
    """While the node is unreachable the pool shrinks, grows, and concludes tasks; then the node comes back."""
    made = loss.harness
    (template,) = [raw["spec"]["template"]["spec"] for raw in await made.deployments()]
    same("the operator's own tolerations", template.get("tolerations"), None)
    before = await loss.pods()
    stays = {one["tolerationSeconds"] for raw in before.values() for one in raw["spec"]["tolerations"]}
    same("seconds that Kubernetes adds", stays, {AS_SHIPPED_SECONDS})
    await loss.miss()

    # A ReplicaSet removes pods that are not Ready first, and these are busy: an idle pod must be removed instead.
    await made.change_pool(minWorkers=1, maxWorkers=len(loss.busy))
    await eventually("the free worker has left", lambda: _are(loss, loss.busy))
    made.execute(2, gated=True)
    await made.change_pool(minWorkers=5, maxWorkers=5)
    await eventually("five workers are busy", lambda: len(made.kubelet.busy()) == 5)
    same("pods of the unreachable node", made.kubelet.on(loss.lost), loss.there)
    same("whether the node is still unreachable", await loss.lost.missed(), True)
    made.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())
    await loss.come_back()
    await eventually("all workers are ready again", lambda: ready(made, 5))
    after = await loss.pods()
    same("busy pods that still exist", {*before} & {*after}, {*loss.busy})
    free = {*before} - {*loss.busy}
    same("who deleted which pod", _deleters(made), {name: {REPLICA_SETS} for name in free})


async def _are(loss: NodeLossRun, names: list[str]) -> bool:
    return sorted(await loss.pods()) == sorted(names)


async def _too_late(loss: NodeLossRun) -> None:
    """Kubernetes evicts the node's pods; their workers finish their tasks, and other workers take new tasks."""
    made, workers = loss.harness, _workers(loss.harness, loss.there)
    await loss.miss()
    await _replaced(loss)
    why = {one.get("reason") for raw in await made.pods() for one in raw["status"]["conditions"]}
    same("whether the pods' conditions show the eviction", BY_EVICTION in why, True)

    def none_asks_for_more() -> bool:
        drained = all(worker.state in {WorkerState.DRAINING, WorkerState.DRAINED} for worker in workers)
        return drained and not any(worker.asks for worker in workers)

    await eventually("the workers of the node drain", none_asks_for_more)
    ran = [list(worker.ran) for worker in workers]
    made.execute(3)
    await eventually("new tasks are done", lambda: list(made.outcomes().values()).count("SUCCEEDED") == 3)
    same("tasks of the evicted workers", [worker.ran for worker in workers], ran)
    await _told_to_end(loss)
    same("who deleted which pod", _deleters(made), {name: {EVICTION} for name in loss.there})


async def _cut_off(loss: NodeLossRun) -> None:
    """The node's reports do not arrive either: after the deadline the operator deletes its pods, gracefully."""
    made, workers = loss.harness, _workers(loss.harness, loss.there)
    for worker in workers:
        worker.heard = False
    await loss.miss()
    await _replaced(loss)
    for worker in workers:
        worker.heard = True
    await _told_to_end(loss)
    (leader,) = (replica.name for replica in made.replicas)
    same("who deleted which pod", _deleters(made), {name: {leader} for name in loss.there})


async def _rolled_out(loss: NodeLossRun) -> None:
    """The image changes while the node is unreachable: busy workers are left alone until they are done."""
    made = loss.harness
    await loss.miss()
    await made.change_pool(handlerImage=NEW_IMAGE)

    async def new_ones_serve() -> bool:
        pods = [raw for raw in (await loss.pods()).values() if raw["spec"]["containers"][0]["image"] == NEW_IMAGE]
        return any(map(is_ready, pods)) and len(await loss.pods()) - len(pods) == len(loss.busy)

    await eventually("a new worker serves, and only busy old workers are left", new_ones_serve)
    await asyncio.sleep(WATCHED_SECONDS)
    same("busy workers whose pods were deleted", {*_deleters(made)} & {*loss.busy}, set())
    same("busy workers", made.kubelet.busy(), loss.busy)
    made.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())
    await loss.come_back()

    async def old_ones_are_gone() -> bool:
        return len(await made.deployments()) == 1 and len(await made.pods()) == WORKERS

    await eventually("the old Deployment is gone", old_ones_are_gone)
    await eventually("the pool has all its workers", lambda: ready(made, WORKERS))
    same("who deleted pods", set().union(*_deleters(made).values()), {REPLICA_SETS})


async def _replaced(loss: NodeLossRun) -> None:
    """Wait until the node's pods are being deleted and have been replaced; its workers work on."""
    made = loss.harness
    same("busy workers", made.kubelet.busy(), loss.busy)

    async def gone() -> bool:
        return not {*await loss.pods()} & {*loss.there}

    await eventually("its pods are being deleted", gone)
    await eventually("new pods replace them", lambda: ready(made, WORKERS))
    same("pods of the unreachable node", made.kubelet.on(loss.lost), loss.there)
    same("busy workers", made.kubelet.busy(), loss.busy)


async def _told_to_end(loss: NodeLossRun) -> None:
    """Let the node come back: its kubelet learns that its pods are deleted, and their workers finish their tasks."""
    made = loss.harness
    at_work = {*loss.busy} & {*loss.there}
    await loss.come_back()
    await eventually("its kubelet has sent them SIGTERM", lambda: len(made.kubelet.interrupted) == len(at_work))
    same("busy workers", made.kubelet.busy(), loss.busy)
    made.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())

    async def gone() -> bool:
        return len(await made.pods()) == WORKERS

    await eventually("the pods of the node are gone", gone)
    await eventually("the pool has all its workers", lambda: ready(made, WORKERS))
    messages = [one["message"] for one in ((await made.pool()) or {})["status"].get("events") or ()]
    same("workers reported as lost", [word for word in messages if "its pod went" in word], [])
    # Each worker was ended while it worked, as expected here, and stopped when its task was done.
    made.kubelet.interrupted.clear()


async def _elsewhere(loss: NodeLossRun) -> None:
    """The pod is evicted before it started; another pod takes the task that the operator holds."""
    made = loss.harness
    await eventually("the node is unreachable", loss.lost.missed)
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())
    await loss.come_back()
    await eventually("one worker is left", lambda: ready(made, 1))

    async def gone() -> bool:
        return len(await made.pods()) == 1

    await eventually("the evicted pod is gone", gone)
    same("who deleted which pod", _deleters(made), {name: {EVICTION} for name in loss.there})


Prelude = Callable[[FaultHarness, Sequence[WatchedNode], int, Raw], Awaitable[NodeLossRun]]
Act = Callable[[NodeLossRun], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """One scenario: how many tasks exist when the node is lost, what happens, and the pool's special settings."""

    name: str
    tasks: int
    act: Act
    pool: Raw = field(default_factory=dict)
    prelude: Prelude = _at_work


NODE_LOSSES = {
    one.name: one
    for one in (
        NodeLoss("in time", 3, _in_time),
        NodeLoss("too late", 4, _too_late, {"slotsPerWorker": 2, "podTemplate": tolerating(SHORT_SECONDS)}),
        NodeLoss("rollout", 3, _rolled_out),
        NodeLoss("cut off", 3, _cut_off, {"reports": {"timeoutSeconds": 5}, "stalled": {"deadlineSeconds": 12}}),
        NodeLoss("before its start", 1, _elsewhere, {"podTemplate": tolerating(SHORT_SECONDS)}, _in_hand),
    )
}


async def play(name: str) -> Played:
    """Play a scenario on its own control plane, whose controllers monitor two nodes."""
    scenario = NODE_LOSSES[name]
    async with (
        fault_cluster(missed_seconds=MISSED_SECONDS) as place,
        fork_server(place.folder) as processes,
        harness(place, processes, "nodes", 1, **HASTENED) as made,
        watched_nodes(made.api, made.kubelet) as nodes,
    ):
        began, wrong = time.monotonic(), []
        try:
            loss = await scenario.prelude(made, nodes, scenario.tasks, scenario.pool)
            began = time.monotonic()
            await scenario.act(loss)
        except (AssertionError, TimeoutError) as error:
            wrong += [str(error), f"pods were deleted by {_deleters(made)}"]
        if len(made.tasks()) != len(made.executions):
            wrong.append("a task took more than one attempt")
        return Played(Job(PART, name, ()), judged(made, name, wrong, time.monotonic() - began))

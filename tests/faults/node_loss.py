"""A node is missed while its workers work: it comes back in time, or so late that Kubernetes has evicted its pods.

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
from tests.faults.ground import ground
from tests.faults.matrix import Job
from tests.faults.nodes import MISSED_SECONDS, WatchedNode, tolerating, watched_nodes
from tests.faults.replicas import HASTENED, nursery
from tests.faults.runs import judged
from tests.faults.scenarios import leads, pool_of, ready
from tests.faults.stage import Stage, stage
from tests.faults.worker import PlayedWorker
from tests.readiness import is_ready

PART = "node"
#: What each controller calls itself: the one that evicts goes by its former name.
REPLICA_SETS, EVICTION = "replicaset-controller", "node-controller"
#: What it says in a pod that it evicts.
BY_EVICTION = "DeletionByTaintManager"
WORKERS = 4
NEW_IMAGE = "registry.invalid/handler:2"
#: Seconds for which nothing may happen to those who are busy, several rounds of everything that repeats.
WATCHED_SECONDS = 4.0
#: Seconds for which Kubernetes has a pod stay on a node that is missed, unless it says otherwise; and of one that does.
AS_SHIPPED_SECONDS, SHORT_SECONDS = 300, 4


@dataclass
class Loss:
    """A pool at work on two nodes, one of which will be missed: the one with the most tasks."""

    stage: Stage
    lost: WatchedNode
    busy: list[str]
    #: The pods of the lost node.
    there: list[str]

    async def miss(self) -> None:
        """Cut the node off and wait until Kubernetes misses it, and none of its pods is Ready any more."""
        self.stage.kubelet.cut_off(self.lost)
        await eventually("the node is missed", self.lost.missed)

        async def none_is_ready() -> bool:
            return not {name for name, raw in (await self.pods()).items() if is_ready(raw)} & {*self.there}

        await eventually("none of its pods is ready", none_is_ready)

    async def come_back(self) -> None:
        """Have the node's kubelet reach the API server again."""
        self.stage.kubelet.rejoin(self.lost)
        await eventually("the node is well", self.lost.well)

    async def pods(self) -> dict[str, Raw]:
        """Return the pool's pods that are not leaving, by name."""
        return {
            raw["metadata"]["name"]: raw
            for raw in await self.stage.pods()
            if "deletionTimestamp" not in raw["metadata"]
        }


def _workers(made: Stage, names: Collection[str]) -> list[PlayedWorker]:
    """Return the workers in these pods."""
    kubelet = made.kubelet
    return [worker for uid, worker in kubelet.workers.items() if kubelet._pods[uid] in names]


def _deleters(made: Stage) -> dict[str, set[str]]:
    """Return who deleted pods, by the pod's name; what a kubelet does when a pod has ended is none."""
    writes = audit.writers(made.ground.folder, (made.namespace,))
    found: dict[str, set[str]] = {}
    for one in writes:
        if one.verb.startswith("delete") and one.resource == "pods" and one.code < 300 and one.user != "test":
            found.setdefault(one.name, set()).add(one.agent if one.user == "controllers" else one.user)
    return found


def same(what: str, found: object, wanted: object) -> None:
    """Raise AssertionError, and say what it is about, unless both are equal."""
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted}, found {found}")


async def _at_work(made: Stage, nodes: Sequence[WatchedNode], tasks: int, pool: Raw) -> Loss:
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
    return Loss(made, lost, made.kubelet.busy(), made.kubelet.on(lost))


async def _in_hand(made: Stage, nodes: Sequence[WatchedNode], tasks: int, pool: Raw) -> Loss:
    """Have tasks wait in the operator's hands for a pod whose node is cut off before it can start."""
    await leads(made)
    await made.create_pool(**pool)
    await eventually("the pool is polled for", lambda: made.open_polls() > 0)
    nodes[0].doomed = True
    made.execute(tasks)
    await eventually("a pod is put on a node that is cut off", lambda: not nodes[0].reachable.is_set())
    return Loss(made, nodes[0], [], [raw["metadata"]["name"] for raw in await made.pods()])


async def _in_time(loss: Loss) -> None:
    """While the node is missed the pool shrinks, grows, and concludes; then the node comes back."""
    made = loss.stage
    (template,) = [raw["spec"]["template"]["spec"] for raw in await made.deployments()]
    same("tolerations that we ask for", template.get("tolerations"), None)
    before = await loss.pods()
    stays = {one["tolerationSeconds"] for raw in before.values() for one in raw["spec"]["tolerations"]}
    same("seconds that Kubernetes fills in", stays, {AS_SHIPPED_SECONDS})
    await loss.miss()

    # A ReplicaSet removes the unready first, and these are busy: who has nothing to do must be removed instead.
    await made.change_pool(minWorkers=1, maxWorkers=len(loss.busy))
    await eventually("the free worker has left", lambda: _are(loss, loss.busy))
    made.execute(2, gated=True)
    await made.change_pool(minWorkers=5, maxWorkers=5)
    await eventually("five workers are busy", lambda: len(made.kubelet.busy()) == 5)
    same("pods of the node that is missed", made.kubelet.on(loss.lost), loss.there)
    same("whether it is missed still", await loss.lost.missed(), True)
    made.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())
    await loss.come_back()
    await eventually("all workers are ready again", lambda: ready(made, 5))
    after = await loss.pods()
    same("busy pods that are there still", {*before} & {*after}, {*loss.busy})
    free = {*before} - {*loss.busy}
    same("who deleted which pod", _deleters(made), {name: {REPLICA_SETS} for name in free})


async def _are(loss: Loss, names: list[str]) -> bool:
    return sorted(await loss.pods()) == sorted(names)


async def _too_late(loss: Loss) -> None:
    """Kubernetes evicts the pods of the node; their workers finish what they have, and others take what comes."""
    made, workers = loss.stage, _workers(loss.stage, loss.there)
    await loss.miss()
    await _replaced(loss)
    why = {one.get("reason") for raw in await made.pods() for one in raw["status"]["conditions"]}
    same("whether pods say that they are evicted", BY_EVICTION in why, True)

    def none_asks_for_more() -> bool:
        told = all(worker.state in {WorkerState.DRAINING, WorkerState.DRAINED} for worker in workers)
        return told and not any(worker.asks for worker in workers)

    await eventually("they are told to take nothing more", none_asks_for_more)
    ran = [list(worker.ran) for worker in workers]
    made.execute(3)
    await eventually("what comes is done", lambda: list(made.outcomes().values()).count("SUCCEEDED") == 3)
    same("tasks of the evicted workers", [worker.ran for worker in workers], ran)
    await _told_to_end(loss)
    same("who deleted which pod", _deleters(made), {name: {EVICTION} for name in loss.there})


async def _cut_off(loss: Loss) -> None:
    """No report of the node arrives either: after a while the operator gives its workers up, as gently as can be."""
    made, workers = loss.stage, _workers(loss.stage, loss.there)
    for worker in workers:
        worker.heard = False
    await loss.miss()
    await _replaced(loss)
    for worker in workers:
        worker.heard = True
    await _told_to_end(loss)
    (leader,) = (replica.name for replica in made.replicas)
    same("who deleted which pod", _deleters(made), {name: {leader} for name in loss.there})


async def _rolled_out(loss: Loss) -> None:
    """A new image comes while the node is missed: those who are busy are left alone until they are done."""
    made = loss.stage
    await loss.miss()
    await made.change_pool(handlerImage=NEW_IMAGE)

    async def new_ones_serve() -> bool:
        pods = [raw for raw in (await loss.pods()).values() if raw["spec"]["containers"][0]["image"] == NEW_IMAGE]
        return any(map(is_ready, pods)) and len(await loss.pods()) - len(pods) == len(loss.busy)

    await eventually("a new worker serves, and of the old ones only the busy are left", new_ones_serve)
    await asyncio.sleep(WATCHED_SECONDS)
    same("busy workers that somebody deleted", {*_deleters(made)} & {*loss.busy}, set())
    same("busy workers", made.kubelet.busy(), loss.busy)
    made.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())
    await loss.come_back()

    async def old_ones_are_gone() -> bool:
        return len(await made.deployments()) == 1 and len(await made.pods()) == WORKERS

    await eventually("the old Deployment is gone", old_ones_are_gone)
    await eventually("the pool is whole", lambda: ready(made, WORKERS))
    same("who deleted pods", set().union(*_deleters(made).values()), {REPLICA_SETS})


async def _replaced(loss: Loss) -> None:
    """Wait until the pods of the node are being deleted and others are in their place; its workers work on."""
    made = loss.stage
    same("busy workers", made.kubelet.busy(), loss.busy)

    async def gone() -> bool:
        return not {*await loss.pods()} & {*loss.there}

    await eventually("its pods are being deleted", gone)
    await eventually("others are in their place", lambda: ready(made, WORKERS))
    same("pods of the node that is missed", made.kubelet.on(loss.lost), loss.there)
    same("busy workers", made.kubelet.busy(), loss.busy)


async def _told_to_end(loss: Loss) -> None:
    """Have the node come back: only now its kubelet hears that its pods are to go, and they finish what they have."""
    made = loss.stage
    at_work = {*loss.busy} & {*loss.there}
    await loss.come_back()
    await eventually("its kubelet has told them to end", lambda: len(made.kubelet.interrupted) == len(at_work))
    same("busy workers", made.kubelet.busy(), loss.busy)
    made.gate.set()
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())

    async def gone() -> bool:
        return len(await made.pods()) == WORKERS

    await eventually("the pods of the node are gone", gone)
    await eventually("the pool is whole", lambda: ready(made, WORKERS))
    told = [one["message"] for one in ((await made.pool()) or {})["status"].get("events") or ()]
    same("workers said to have gone before they could end", [word for word in told if "its pod went" in word], [])
    # Each was told to end while it worked, as was to be, and ended when it was done.
    made.kubelet.interrupted.clear()


async def _elsewhere(loss: Loss) -> None:
    """The pod is evicted before it ran; another one takes the task, which has waited in the operator's hands."""
    made = loss.stage
    await eventually("the node is missed", loss.lost.missed)
    await eventually("all executions have ended", lambda: "RUNNING" not in made.outcomes().values())
    await loss.come_back()
    await eventually("one worker is left", lambda: ready(made, 1))

    async def gone() -> bool:
        return len(await made.pods()) == 1

    await eventually("the evicted pod is gone", gone)
    same("who deleted which pod", _deleters(made), {name: {EVICTION} for name in loss.there})


Prelude = Callable[[Stage, Sequence[WatchedNode], int, Raw], Awaitable[Loss]]
Act = Callable[[Loss], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """One scenario: how many tasks there are when the node is lost, what happens, what is special about the pool."""

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
    """Play a scenario on a control plane of its own, whose controllers watch over two nodes."""
    scenario = NODE_LOSSES[name]
    async with (
        ground(missed_seconds=MISSED_SECONDS) as place,
        nursery(place.folder) as processes,
        stage(place, processes, "nodes", 1, **HASTENED) as made,
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

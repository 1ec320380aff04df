"""A simulated node: pods are bound, run a worker, become Ready or not Ready, and end when they are deleted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from activity_worker.config.settings import read_settings
from activity_worker.config.sources import StepFunctionsSettings, SwfSettings
from activity_worker.contract import LABEL_LEADER, LABEL_POOL, TOKEN_AUDIENCE, WorkerState
from activity_worker.sources.opening import open_source
from activity_worker.supervisor.health import READY
from tests.faults.api import Api, GoneError, Raw
from tests.faults.worker import PlayedWorker

LOOK_SECONDS = 0.1
#: Seconds since the container was killed and restarted: long enough that the operator does not count it as a failed
#: start.
LONG_AGO_SECONDS = 120.0
CA_CONFIG_MAP = "activitypool-ca"


class Service(Protocol):
    """The task service, or the proxy before it."""

    @property
    def url(self) -> str:
        """Its URL."""
        ...


class Node:
    """A node for pods.

    While it is not `reachable`, its kubelet has no contact with the API server; its workers run on.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.reachable = asyncio.Event()
        self.reachable.set()
        #: Whether the node is cut off as soon as a pod is bound to it.
        self.doomed = False
        #: How often the node came back. Its pods' status is then written again, because others may have changed it
        #: meanwhile.
        self.returns = 0


class Kubelet:
    """Plays every pod of one namespace, and knows which of the operator's pods have the leader's label.

    Pods are bound to its `nodes` in turn; Node objects need not exist.
    """

    def __init__(
        self, api: Api, namespace: str, system: str, folder: Path, service: Service,
        handler: Callable[[Any], Awaitable[Any]],
    ) -> None:  # fmt: skip
        self._api = api
        self._namespace = namespace
        self._system = system
        self._folder = folder
        #: Where workers find the task service.
        self.service: Service = service
        self._handler = handler
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Event] = {}
        self._pods: dict[str, str] = {}
        self.nodes = [Node("played")]
        self._places: dict[str, Node] = {}
        self._missed: dict[str, tuple[str, Raw]] = {}
        self.workers: dict[str, PlayedWorker] = {}
        self._aged: set[str] = set()
        self.labelled: set[str] = set()
        self.interrupted: list[str] = []
        #: Errors of the simulated node itself: a run with any of them proves nothing.
        self.troubles: list[str] = []
        self.may_start = asyncio.Event()
        self.may_start.set()

    async def run(self) -> None:
        """Play until cancelled."""
        try:
            await self._follow()
        except Exception as error:
            self.troubles.append(f"the node is deaf: {error!r}")
            raise

    async def _follow(self) -> None:
        async for kind, raw in self._api.follow("/api/v1/pods"):
            meta = raw["metadata"]
            if meta["namespace"] == self._system:
                leads = kind != "DELETED" and (meta.get("labels") or {}).get(LABEL_LEADER) == "true"
                (self.labelled.add if leads else self.labelled.discard)(meta["name"])
            elif meta["namespace"] == self._namespace and LABEL_POOL in (meta.get("labels") or {}):
                self._heard(kind, raw)

    async def stop(self) -> None:
        """End every worker at once."""
        for life in self._lives.values():
            life.cancel()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)

    def busy(self) -> list[str]:
        """Return the names of the pods whose workers have a task."""
        return sorted(self._pods[uid] for uid, worker in self.workers.items() if worker.running)

    async def age(self, name: str) -> None:
        """Make a pod's status show a container that was killed once, long ago, and has run since."""
        uid = next(uid for uid, pod in self._pods.items() if pod == name)
        self._aged.add(uid)
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        raw = await self._api.call("GET", path)
        assert raw is not None
        await self._api.call("PATCH", f"{path}/status", self._seen_from_here(raw, _now(), True))

    def on(self, node: Node) -> list[str]:
        """Return the names of the pods whose workers run on a node."""
        return sorted(self._pods[uid] for uid in self.workers if self._places[uid] is node)

    def cut_off(self, node: Node) -> None:
        """Cut a node's kubelet off from the API server."""
        node.reachable.clear()

    def rejoin(self, node: Node) -> None:
        """Reconnect a node's kubelet: it receives the missed events and writes its pods' status again."""
        node.returns += 1
        node.reachable.set()
        missed, self._missed = self._missed, {}
        for kind, raw in missed.values():
            self._heard(kind, raw)

    def _heard(self, kind: str, raw: Raw) -> None:
        meta = raw["metadata"]
        uid = meta["uid"]
        if uid in self._places and not self._places[uid].reachable.is_set():
            self._missed[uid] = (kind, raw)
            return
        if kind == "DELETED":
            if (life := self._lives.get(uid)) is not None:
                self._note_interruption(uid, "vanished")
                life.cancel()
            return
        if uid not in self._lives:
            self._leaving[uid] = asyncio.Event()
            self._pods[uid] = meta["name"]
            self._lives[uid] = asyncio.create_task(self._live(raw))
            self._lives[uid].add_done_callback(self._ended)
        if "deletionTimestamp" in meta and not self._leaving[uid].is_set():
            self._note_interruption(uid, "was deleted")
            self._leaving[uid].set()

    def _ended(self, life: "asyncio.Task[None]") -> None:
        if not life.cancelled() and (error := life.exception()) is not None:
            self.troubles.append(f"a pod ended: {error!r}")

    def _note_interruption(self, uid: str, what: str) -> None:
        worker = self.workers.get(uid)
        if worker is not None and worker.running:
            self.interrupted.append(f"pod {self._pods[uid]} {what} with {worker.running} tasks")

    async def _live(self, raw: Raw) -> None:
        meta = raw["metadata"]
        path = f"/api/v1/namespaces/{self._namespace}/pods/{meta['name']}"
        with suppress(GoneError):
            starting = asyncio.create_task(self.may_start.wait())
            leaving = asyncio.create_task(self._leaving[meta["uid"]].wait())
            try:
                await asyncio.wait({starting, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if self.may_start.is_set() and not self._leaving[meta["uid"]].is_set():
                    node = await self._bind(raw, path)
                    await node.reachable.wait()
                    if not self._leaving[meta["uid"]].is_set():
                        await self._run_worker(raw, path, node, leaving)
            finally:
                starting.cancel()
                leaving.cancel()
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
            await self._api.call("DELETE", path, options, expect=(404, 409))

    async def _run_worker(self, raw: Raw, path: str, node: Node, leaving: "asyncio.Task[bool]") -> None:
        name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
        settings = read_settings({}, await self._environment(raw, path))
        assert isinstance(settings.source, StepFunctionsSettings | SwfSettings)
        source = await open_source(replace(settings.source, endpoint_url=self.service.url))
        worker = PlayedWorker(replace(settings, health_port=None), source, self._handler)
        began, written = _now(), (False, -1)
        ending = asyncio.create_task(worker.run(), name=name)
        self.workers[uid] = worker
        try:
            while not ending.done():
                news = (worker.state in READY, node.returns)
                if news != written and node.reachable.is_set():
                    await self._api.call("PATCH", f"{path}/status", self._seen_from_here(raw, began, news[0]))
                    written = news
                await asyncio.wait({ending, leaving} if not leaving.done() else {ending}, timeout=LOOK_SECONDS)
                if leaving.done() and worker.state is not WorkerState.STOPPED:
                    worker.request_stop()
            ending.result()
            await asyncio.wait({leaving})
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
            await worker.kill()
            del self.workers[uid]
            await source.close()

    def _seen_from_here(self, raw: Raw, began: str, ready: bool) -> Raw:
        status = _status(raw, began, ready)
        if raw["metadata"]["uid"] not in self._aged:
            return status
        aged = restarted(status, 1)
        aged["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = _now(-LONG_AGO_SECONDS)
        return aged

    async def _bind(self, raw: Raw, path: str) -> Node:
        """Bind a pod to the reachable node with the fewest pods."""
        placed = [node for uid, node in self._places.items() if not self._lives[uid].done()]
        node = min((node for node in self.nodes if node.reachable.is_set()), key=placed.count)
        self._places[raw["metadata"]["uid"]] = node
        target = {"apiVersion": "v1", "kind": "Node", "name": node.name}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": raw["metadata"]["name"]}, "target": target}
        await self._api.call("POST", f"{path}/binding", body, expect=(409,))
        if node.doomed:
            self.cut_off(node)
        return node

    async def _environment(self, raw: Raw, path: str) -> dict[str, str]:
        """Return the container's environment; its files are in a folder of this pod's own."""
        meta = raw["metadata"]
        folder = self._folder / meta["uid"]
        folder.mkdir()
        token = await self._api.token(self._namespace, audiences=[TOKEN_AUDIENCE], bound=raw)
        (folder / "token").write_text(token)
        maps = f"/api/v1/namespaces/{self._namespace}/configmaps/{CA_CONFIG_MAP}"
        while (found := await self._api.call("GET", maps, expect=(404,))) is None:  # noqa: ASYNC110 - polled: the kubelet is simulated
            await asyncio.sleep(LOOK_SECONDS)
        (folder / "ca.crt").write_text(found["data"]["ca.crt"])
        fields = {"metadata.namespace": meta["namespace"], "metadata.name": meta["name"], "metadata.uid": meta["uid"]}
        container = raw["spec"]["containers"][0]
        mount = container["volumeMounts"][0]["mountPath"]
        return {
            entry["name"]: _value(entry, fields).replace(mount, str(folder)) for entry in container.get("env") or ()
        }


def _value(entry: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    if "valueFrom" in entry:
        return fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
    return str(entry.get("value", ""))


def _status(raw: Raw, began: str, ready: bool) -> Raw:
    container = {
        "name": raw["spec"]["containers"][0]["name"],
        "image": raw["spec"]["containers"][0]["image"],
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": {"running": {"startedAt": began}},
    }
    word = "True" if ready else "False"
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": began}]
    conditions.append({"type": "Ready", "status": word, "lastTransitionTime": _now()})
    return {
        "status": {
            "phase": "Running", "startTime": began, "conditions": conditions, "containerStatuses": [container],
        }
    }  # fmt: skip


def restarted(status: Raw, restarts: int) -> Raw:
    """Return the status of a pod whose container has been killed and restarted `restarts` times."""
    for container in status["status"]["containerStatuses"]:
        container["restartCount"] = restarts
        if restarts:
            container["lastState"] = {"terminated": {"exitCode": 137, "reason": "Error"}}
    return status


def _now(later_seconds: float = 0.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

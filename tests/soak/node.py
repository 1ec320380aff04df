"""A node whose workers can be killed: the worker sends nothing more, and the container restarts in its pod."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from activity_worker.config.settings import WorkerSettings, read_settings
from activity_worker.config.sources import StepFunctionsSettings
from activity_worker.contract import LeasedTask, WorkerState
from activity_worker.errors import LeaseLostError
from activity_worker.sources.opening import open_source
from activity_worker.sources.protocol import Source
from activity_worker.supervisor.health import READY
from activity_worker.testing import StepFunctionsFake
from tests.faults.api import Api, Raw
from tests.faults.kubelet import LOOK_SECONDS, Kubelet, Node, _now, _status, restarted
from tests.faults.worker import PlayedWorker
from tests.soak.account import Claim, Death, granted_late

#: Seconds until a container starts again.
RESTART_SECONDS = 1.0

Handle = Callable[[str, Any], Awaitable[Any]]


class KillableSource:
    """A source that sends nothing to the service once its process is dead, however its tasks end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.dead = False

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Poll; an answer after the process's death is dropped."""
        task = await self._living().lease(worker_name)
        self._living()
        return task

    async def heartbeat(self, token: str) -> None:
        """Heartbeat."""
        await self._living().heartbeat(token)

    async def succeed(self, token: str, output: str) -> None:
        """Conclude."""
        await self._living().succeed(token, output)

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Conclude."""
        await self._living().fail(token, error, cause)

    async def close(self) -> None:
        """Close."""
        await self._source.close()

    def _living(self) -> Source:
        if self.dead:
            raise LeaseLostError("Killed", "the process is dead")
        return self._source


class KubeletWithKills(Kubelet):
    """A simulated node.

    `handle(holder, request)` runs tasks; a holder is a pod's name and the number of its process.
    """

    def __init__(
        self, api: Api, namespace: str, system: str, folder: Path, service: StepFunctionsFake, handle: Handle
    ) -> None:
        super().__init__(api, namespace, system, folder, service, partial(handle, ""))
        self._handle = handle
        self._killed: dict[str, tuple[asyncio.Event, str]] = {}
        self._sources: dict[str, KillableSource] = {}
        self._holders: dict[str, str] = {}
        #: Pods by UID that a test removed, with the fault's name: these removals are no failure of the operator.
        self.outsiders: dict[str, str] = {}
        self.deaths: list[Death] = []
        #: The owners that lease records got.
        self.claims: list[Claim] = []
        #: When holders were killed, by name.
        self.ends: dict[str, float] = {}
        self.when_interrupted: list[float] = []

    def holding(self) -> list[str]:
        """Return the UIDs of pods whose workers have a task, sorted by pod name, so a seed's choice repeats."""
        found = [uid for uid, worker in self.workers.items() if worker.running]
        return sorted(found or self.workers, key=lambda uid: self._pods[uid])

    def pod(self, uid: str) -> str:
        """Return a pod's name."""
        return self._pods[uid]

    def kill(self, uid: str, fault: str) -> None:
        """Kill the worker in a pod; the container restarts there."""
        self._die(uid, fault)
        self._killed[uid][0].set()

    def _die(self, uid: str, fault: str) -> None:
        """Record the tasks of the worker, and stop it without any further call."""
        source, holder = self._sources[uid], self._holders[uid]
        if not source.dead:
            source.dead = True
            held = frozenset(lease.id for lease in self.workers[uid]._snapshot().leases)
            held |= granted_late(self.claims, uid, time.monotonic())
            self.deaths.append(Death(self._pods[uid], time.monotonic(), fault, held))
            self.ends[holder] = time.monotonic()

    def _note_interruption(self, uid: str, what: str) -> None:
        if uid in self.outsiders:
            return
        before = len(self.interrupted)
        super()._note_interruption(uid, what)
        self.when_interrupted += [time.monotonic()] * (len(self.interrupted) - before)

    async def _run_worker(self, raw: Raw, path: str, node: Node, leaving: "asyncio.Task[bool]") -> None:
        settings = read_settings({}, await self._environment(raw, path))
        restarts = 0
        while await self._run_container(raw, path, leaving, replace(settings, health_port=None), restarts):
            restarts += 1
            await asyncio.wait({leaving}, timeout=RESTART_SECONDS)
            if leaving.done():
                return
        await asyncio.wait({leaving})

    async def _run_container(
        self, raw: Raw, path: str, leaving: "asyncio.Task[bool]", settings: WorkerSettings, restarts: int
    ) -> bool:
        """Run one process of the pod; return whether it was killed."""
        assert isinstance(settings.source, StepFunctionsSettings)
        uid = raw["metadata"]["uid"]
        holder = f"{settings.name}#{restarts}"
        opened = await open_source(replace(settings.source, endpoint_url=self.service.url))
        source = KillableSource(opened)
        worker = PlayedWorker(settings, source, partial(self._handle, holder))
        killed = asyncio.Event()
        began, written = _now(), None
        ending = asyncio.create_task(worker.run(), name=holder)
        dying = asyncio.create_task(killed.wait())
        self.workers[uid], self._sources[uid], self._holders[uid] = worker, source, holder
        self._killed[uid] = (killed, holder)
        try:
            while not ending.done() and not killed.is_set():
                ready = worker.state in READY
                if ready != written:
                    await self._api.call("PATCH", f"{path}/status", restarted(_status(raw, began, ready), restarts))
                    written = ready
                waited = {ending, dying} | (set() if leaving.done() else {leaving})
                await asyncio.wait(waited, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done() and worker.state is not WorkerState.STOPPED:
                    worker.request_stop()
            if killed.is_set():
                await self._api.call("PATCH", f"{path}/status", restarted(_status(raw, began, False), restarts + 1))
                return True
            ending.result()
            return False
        finally:
            if not ending.done():
                self._die(uid, self.outsiders.get(uid, ""))
            ending.cancel()
            dying.cancel()
            await asyncio.gather(ending, dying, return_exceptions=True)
            await worker.kill()
            del self.workers[uid]
            await opened.close()

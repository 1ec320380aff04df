"""Pushes pending tasks to the workers of the worker map.

A task is claimed only for a worker with room. It is then pushed, and the claim is delivered, released or left to
expire. A broker that dies in between leaves a claim that expires: whether the worker has the task is unknown then.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.taskbroker.broker.push_client import PUSH_SECONDS, PushClient, PushOutcome, outcome_of
from activity_worker.taskbroker.broker.push_results import PushResults
from activity_worker.taskbroker.broker.worker_map import CHECK_SECONDS, MAX_ERRORS, PushWorker, Registration, WorkerMap
from activity_worker.taskbroker.protocol.channel import TaskbrokerError
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.claims import Claim, claim_tasks
from activity_worker.taskbroker.store.statements import TaskFilter

log = logging.getLogger(__name__)

#: Seconds until a claim expires: a push, and the write of its end with its tries.
CLAIM_SECONDS: Final = PUSH_SECONDS + 10.0
#: The most pushes at once, and the most tasks in one claim.
MAX_PUSHES: Final = 500
MAX_CLAIMS: Final = 100
#: Seconds between two claims of a queue that was empty: the first, growing up to the last.
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 0.5
#: Seconds between two looks at the worker map without a change.
LOOK_SECONDS: Final = 0.05
#: Seconds for pushes under way when the broker stops.
STOP_SECONDS: Final = 3.0
#: Makes the connection to a worker.
Connect = Callable[[Registration], PushClient]


class PushDispatcher:
    """Pushes the tasks of a store. Make it in a running event loop; `run` goes on until cancelled.

    `pushed` is called with the outcome of each push. `monotonic` returns seconds.
    """

    def __init__(
        self,
        store: BrokerStore,
        connect: Connect,
        pushed: Callable[[PushOutcome], None] = lambda _: None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers = WorkerMap()
        #: Whether `run` has ended.
        self.ended = False
        self._store = store
        self._connect = connect
        self._pushed = pushed
        self._monotonic = monotonic
        self._results = PushResults(store)
        self._clients: dict[str, PushClient] = {}
        self._running: set[asyncio.Task[None]] = set()
        #: The claim under way: a broker that stops meanwhile releases what it brings.
        self._claiming: asyncio.Task[Sequence[Claim]] | None = None
        self._pushes = 0
        #: For a queue that was empty: when it is asked again, and the pause after that.
        self._ask_at: dict[TaskFilter, tuple[float, float]] = {}
        self._changed = asyncio.Event()

    def register(self, registration: Registration) -> bool:
        """Take a worker's registration; return False if there are too many workers."""
        self._changed.set()
        return self.workers.register(registration, self._monotonic())

    def added(self) -> None:
        """Look for pending tasks at once: some were added."""
        self._ask_at.clear()
        self._changed.set()

    def reported(self, task_ids: Sequence[str]) -> None:
        """Note the reports of tasks: their workers have room."""
        for one in task_ids:
            if self.workers.reported(one):
                self._changed.set()

    async def run(self) -> None:
        """Push until cancelled; then wait for the pushes under way, and write how they ended.

        Raises what the writing of results raises unexpectedly: without it every task would be pushed again.
        """
        writing = asyncio.create_task(self._results.run())
        try:
            while True:
                await self._round()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS if self.workers.workers() else 1.0):
                        await self._changed.wait()
                self._changed.clear()
                if writing.done():
                    writing.result()
        finally:
            self.ended = True
            await self._release_claimed()
            if self._running:
                await asyncio.wait(self._running, timeout=STOP_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._results.written()
            for task in (writing, *self._running):
                task.cancel()
            await asyncio.gather(writing, *self._running, return_exceptions=True)
            await asyncio.gather(*(client.close() for client in self._clients.values()))

    async def _round(self) -> None:
        """Check the health of workers that are due, and push to those with room."""
        now = self._monotonic()
        for gone in self.workers.remove_expired(now):
            if (client := self._clients.pop(gone.address, None)) is not None:
                self._spawn(client.close())
        for worker in self.workers.workers():
            client = self._client(worker)
            if worker.healthy and not client.connected:
                worker.healthy = False
            if not worker.healthy and worker.check_at <= now:
                # One check at a time: the next one is due when this one has ended.
                worker.check_at = float("inf")
                self._spawn(self._check(worker, client))
        for wanted, places in self.workers.with_room(now).items():
            ask_at, pause = self._ask_at.get(wanted, (now, 0.0))
            limit = min(len(places), MAX_CLAIMS, MAX_PUSHES - self._pushes)
            if ask_at > now or limit < 1:
                continue
            began = self._monotonic()
            if claims := await self._claim(wanted, limit):
                self._ask_at.pop(wanted, None)
                for worker, claim in zip(places, claims, strict=False):
                    worker.pushing += 1
                    self._pushes += 1
                    self._spawn(self._push(worker, claim, began))
                self._changed.set()
            else:
                pause = min(max(1.5 * pause, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
                self._ask_at[wanted] = (now + pause, pause)

    async def _claim(self, wanted: TaskFilter, limit: int) -> Sequence[Claim]:
        try:
            claiming = self._claiming = asyncio.create_task(claim_tasks(self._store, wanted, limit, CLAIM_SECONDS))
            claims = await asyncio.shield(claiming)
        except (SQLAlchemyError, OSError):
            # Upkeep meets the same store each second, and logs it.
            claims = ()
        self._claiming = None
        return claims

    async def _release_claimed(self) -> None:
        """Release what was being claimed when the broker stopped: no worker has these tasks, and no attempt counts."""
        if self._claiming is None:
            return
        await asyncio.wait((self._claiming,), timeout=STOP_SECONDS)
        if self._claiming.done() and self._claiming.exception() is None:
            for claim in self._claiming.result():
                self._results.refused(claim)
        self._claiming.cancel()

    async def _push(self, worker: PushWorker, claim: Claim, began: float) -> None:
        outcome = PushOutcome.REFUSED
        try:
            if self._monotonic() - began < CLAIM_SECONDS - PUSH_SECONDS:
                # Else this process was frozen, and somebody else may have the task by now. It was not sent: the release
                # is void if the claim has expired, and else costs no attempt.
                outcome = PushOutcome.UNKNOWN
                await self._client(worker).push(claim.data, worker.registration.callback_url)
                outcome = PushOutcome.ACCEPTED
        except TaskbrokerError as error:
            outcome = outcome_of(error)
            if outcome is not PushOutcome.BUSY:
                self._note_failure(worker, error)
        finally:
            worker.pushing -= 1
            self._pushes -= 1
        self._pushed(outcome)
        now = self._monotonic()
        match outcome:
            case PushOutcome.ACCEPTED:
                self.workers.accepted(worker, claim.id, now + claim.deadline_seconds)
                self._results.accepted(claim)
            case PushOutcome.BUSY:
                worker.refused_as_busy(now)
                self._results.refused(claim)
            case PushOutcome.REFUSED:
                self._results.refused(claim)
        self._changed.set()

    async def _check(self, worker: PushWorker, client: PushClient) -> None:
        try:
            worker.healthy = await client.is_serving()
        except TaskbrokerError as error:
            self._note_failure(worker, error)
            return
        worker.check_at = self._monotonic() + CHECK_SECONDS
        self._changed.set()

    def _note_failure(self, worker: PushWorker, error: TaskbrokerError) -> None:
        worker.failed(self._monotonic())
        if worker.errors == MAX_ERRORS:
            facts = {"worker": worker.address, "error": error.code}
            log.warning("the worker is set aside", extra={"facts": facts})

    def _client(self, worker: PushWorker) -> PushClient:
        client = self._clients.get(worker.address)
        if client is None:
            client = self._clients[worker.address] = self._connect(worker.registration)
        return client

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

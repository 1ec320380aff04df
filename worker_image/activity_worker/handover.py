"""Between the slots and their source: leases handed over by the operator, and the account of everything that passes.

A slot that asks for a task is free, and only then: it has neither a task nor an open poll. So here is the place to
claim offered leases for it, to let it wait for the answer, and to give it the granted task as if a poll had brought it.
With nothing offered a slot polls at once. Before the operator has answered the first report (or has been silent for two
seconds) nobody polls, because the operator may hold the very task that the worker was started for.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable

from activity_worker.claims import ClaimBook
from activity_worker.contract import ERROR_WORKER_STOPPED, Grant, lease_id
from activity_worker.errors import InvalidTokenError, LeaseLostError, SourceError
from activity_worker.ledger import Ledger, Outcome
from activity_worker.metrics import WorkerMetrics
from activity_worker.sources.protocol import Source, Task

#: How often a slot that waits for the answer to a claim looks whether its patience is over.
_LOOK_SECONDS = 0.5


class HandoverSource:
    """A `Source` around another one. `on_change` is called whenever a report would read differently."""

    def __init__(
        self,
        inner: Source,
        *,
        claims: ClaimBook,
        ledger: Ledger,
        metrics: WorkerMetrics,
        task_heartbeat_seconds: float,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = inner.name
        self.open_polls = 0
        self.waiting = 0
        self.on_change = on_change
        self._inner = inner
        self._claims = claims
        self._ledger = ledger
        self._metrics = metrics
        self._heartbeat_seconds = task_heartbeat_seconds
        self._granted: deque[Task] = deque()
        self._keeping: dict[str, asyncio.Task[None]] = {}
        self._current: dict[str, str] = {}
        self._polls_allowed = False
        self._shut = False
        self._pulse = asyncio.Event()

    @property
    def settled(self) -> bool:
        """Whether no lease is on its way to this worker: no claim without answer and no grant without a slot."""
        return not self._granted and not self._claims.reserved(self._now())

    def allow_polls(self) -> None:
        """Let slots poll: the operator has answered, or has been silent for too long."""
        self._polls_allowed = True
        self._beat()

    def shut(self, shut: bool = True) -> None:
        """Answer slots that ask without polling (cordoned), except with what was claimed before; False opens again."""
        self._shut = shut
        self._beat()

    def grant(self, grants: Iterable[Grant]) -> None:
        """Take leases that are ours from now on: heartbeated at once, run by the next free slot."""
        for grant in grants:
            task = Task(token=grant.task_token, input=grant.input)
            self._ledger.leased(lease_id(task.token), self._now())
            self._granted.append(task)
            self._keeping[task.token] = asyncio.create_task(self._keep(task.token))
        self._beat()

    async def lease(self, worker_name: str) -> Task | None:
        """Return a granted lease, else what one poll brings (None: nothing)."""
        self._end_of(worker_name)
        task = await self._turn()
        if task is None and not self._shut:
            task = await self._poll(worker_name)
        if task is not None:
            self._current[worker_name] = lease_id(task.token)
        self.on_change()
        return task

    async def heartbeat(self, token: str) -> None:
        """Pass a task heartbeat on and count it."""
        try:
            await self._inner.heartbeat(token)
        except SourceError as error:
            self._ledger.heartbeat_failed()
            self._metrics.heartbeat(accepted=False, at=0.0)
            if isinstance(error, LeaseLostError):
                self._conclude(token, "lost")
            raise
        self._metrics.heartbeat(accepted=True, at=time.time())

    async def succeed(self, token: str, output: str) -> None:
        """Pass the output on; a lease that is lost is concluded too."""
        try:
            await self._inner.succeed(token, output)
        except (LeaseLostError, InvalidTokenError):
            self._conclude(token, "lost")
            raise
        self._conclude(token, "succeeded")

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Pass the failure on; a lease that is lost is concluded too."""
        try:
            await self._inner.fail(token, error, cause)
        except (LeaseLostError, InvalidTokenError):
            self._conclude(token, "lost")
            raise
        self._conclude(token, "failed")

    async def close(self) -> None:
        """Fail granted leases that no slot took, for the state machine's Retry; then close the source."""
        for task in list(self._granted):
            with contextlib.suppress(SourceError):
                await self.fail(task.token, ERROR_WORKER_STOPPED, "the worker stopped before a slot was free")
            self._ended(lease_id(task.token))
        self._granted.clear()
        for keeper in self._keeping.values():
            keeper.cancel()
        await asyncio.gather(*self._keeping.values(), return_exceptions=True)
        await self._inner.close()

    def done(self, token: str) -> None:
        """Say that the handling of a task is over, whatever came of it."""
        self._ended(lease_id(token))

    async def _turn(self) -> Task | None:
        """Wait until this slot may poll (None) or has a granted task."""
        self.waiting += 1
        try:
            while True:
                if self._granted:
                    return self._take()
                if not self._shut and self._claims.claim(self.waiting, self._now()):
                    self.on_change()
                reserved = self._claims.reserved(self._now())
                if (self._polls_allowed or self._shut) and self.waiting > reserved:
                    return None
                await self._wait(_LOOK_SECONDS if reserved else None)
        finally:
            self.waiting -= 1
            self._beat()

    def _take(self) -> Task:
        task = self._granted.popleft()
        keeper = self._keeping.pop(task.token, None)
        if keeper is not None:
            keeper.cancel()
        return task

    async def _poll(self, worker_name: str) -> Task | None:
        self.open_polls += 1
        self.on_change()
        started = self._now()
        try:
            task = await self._inner.lease(worker_name)
        finally:
            self.open_polls -= 1
            self._metrics.polled(self._now() - started)
        if task is None:
            self._ledger.empty_poll()
        else:
            self._ledger.leased(lease_id(task.token), self._now())
        return task

    async def _keep(self, token: str) -> None:
        """Heartbeat a granted lease until a slot takes it; the operator stopped when it granted it."""
        while True:
            with contextlib.suppress(SourceError):
                await self.heartbeat(token)
            await asyncio.sleep(self._heartbeat_seconds)

    def _conclude(self, token: str, outcome: Outcome) -> None:
        lease = lease_id(token)
        self._ledger.concluded(lease, outcome)
        self._claims.concluded(lease)
        self.on_change()

    def _end_of(self, worker_name: str) -> None:
        lease = self._current.pop(worker_name, None)
        if lease is not None:
            self._ended(lease)

    def _ended(self, lease: str) -> None:
        ended = self._ledger.ended(lease, self._now())
        self._claims.concluded(lease)
        if ended is not None:
            self._metrics.task_ended(*ended)
            self.on_change()

    async def _wait(self, timeout_seconds: float | None) -> None:
        pulse = self._pulse
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await pulse.wait()

    def _beat(self) -> None:
        self._pulse.set()
        self._pulse = asyncio.Event()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

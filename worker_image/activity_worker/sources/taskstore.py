"""A store of durable multi-step tasks as a source: a lease is a due instance, taken for a handler's own process.

Here instances are taken and their leases kept; the handler's process, which reaches the same store, makes the calls and
records them. What is concluded here is only whether it could.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.config.sources import TaskStoreSettings
from activity_worker.contract import Env, LeasedTask
from activity_worker.errors import CapabilitiesError
from activity_worker.steps.model.child_protocol import InstanceClaim, methods_of, parse_token
from activity_worker.steps.model.instance import runner_name
from activity_worker.steps.model.methods import Methods
from activity_worker.steps.runner.metrics import StepMetrics
from activity_worker.steps.runner.observer import CallSummary
from activity_worker.steps.runner.runner import SHORTEST_SECONDS, Runner, RunnerOptions
from activity_worker.steps.store import lease_operations
from activity_worker.steps.store.db_errors import translated
from activity_worker.steps.store.notifier import Notifier, announcements
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import TaskStore

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: How long a poll is open.
HOLD_SECONDS: Final = 20.0
#: How often the store is asked in that time, announcements apart. SQLite has none.
POLL_SECONDS: Final = MappingProxyType({"postgresql": 5.0, "sqlite": 1.0})
#: Heartbeats in a lease, so that one may fail, and another.
_BEATS: Final = 3


class TaskStoreSource:
    """The task store that `settings` name. It is opened when it is first asked.

    `set_capabilities` says which tasks there are, before the first poll. `hold_seconds` is how long a poll waits.
    """

    def __init__(
        self,
        settings: TaskStoreSettings,
        *,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = "task-store"
        self._settings = settings
        self._hold_seconds = hold_seconds
        self._clock = clock
        self._capabilities: Mapping[str, Any] | None = None
        self._methods: Methods | None = None
        self._metrics: StepMetrics | None = None
        self._notifier = Notifier()
        self._cordoned = False
        self._opening = asyncio.Lock()
        self._closing = AsyncExitStack()
        self._store: TaskStore | None = None
        self._runner: Runner | None = None

    @property
    def max_heartbeat_seconds(self) -> float:
        """A third of the lease."""
        return self._settings.lease_seconds / _BEATS

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the store is, which a handler's process opens for itself."""
        return {Env.STORE_URL.value: self._settings.url}

    def register(self, registry: "CollectorRegistry") -> None:
        """Count there what becomes of instances."""
        self._metrics = StepMetrics(registry)

    def set_capabilities(self, capabilities: Mapping[str, Any] | None) -> None:
        """Take the tasks and methods of a handler's process; instances of other versions are left to others.

        Raises `CapabilitiesError` for a handler that is no `Tasks` object.
        """
        if capabilities is None:
            raise CapabilitiesError(
                "with a task store the handler is a Tasks object, such as orders:tasks, and not a function"
            )
        if capabilities == self._capabilities:
            return
        try:
            self._methods = methods_of(capabilities)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CapabilitiesError(f"what it says that it can run cannot be read: {type(error).__name__}") from error
        self._capabilities = capabilities
        self._runner = None
        if self._metrics is not None:
            self._metrics.set_tasks(self._methods.tasks)

    def count_call(self, note: Mapping[str, Any]) -> None:
        """Count a call that a handler's process made; what is no note of one is not counted."""
        if self._metrics is not None:
            with contextlib.suppress(ValueError):
                self._metrics.count_call(CallSummary.from_wire(note))

    def cordon(self, on: bool) -> None:
        """End the polls that wait, or (False) let them wait again."""
        self._cordoned = on
        self._notifier.notify()

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Take the instance that has been due longest; None after `hold_seconds` in which none was.

        Raises `SourceError`s.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._hold_seconds
        while not self._cordoned:
            heard = self._notifier.notifications
            with translated():
                runner = await self._ready()
                # A name that no other claim has: what is left over of an earlier one cannot pass for this one.
                held = await runner.take(runner_name(worker_name))
                if held is not None:
                    if (task := await self._task(runner, held)) is not None:
                        return task
                    continue
                idle = await runner.idle_seconds()
            left = until - loop.time()
            if left <= 0:
                break
            await self._notifier.wait(heard, min(max(idle, SHORTEST_SECONDS), left))
        return None

    async def heartbeat(self, token: str) -> None:
        """Renew the lease; raises `LeaseLostError` when another worker has the instance."""
        instance_id, runner = parse_token(token)
        with translated():
            store = await self._opened()
            await lease_operations.renew(store, instance_id, runner, self._clock() + self._settings.lease_seconds)

    async def succeed(self, token: str, output: str) -> None:
        """Do nothing: the handler's process has recorded all there is."""

    async def fail(self, token: str, error: str, cause: str) -> None:  # noqa: ARG002 - recorded or lost in the store
        """Give back what a handler's process has left unfinished; its check is asked soon, here or elsewhere.

        Nothing happens to an instance that has failed, or waits for its time. Raises `SourceError`s.
        """
        instance_id, runner = parse_token(token)
        with translated():
            store = await self._opened()
            await lease_operations.give_back(store, instance_id, runner, self._clock(), self._settings.lease_seconds)

    async def close(self) -> None:
        """Give the store's connections back."""
        self._store = self._runner = None
        with translated():
            await self._closing.aclose()

    async def _opened(self) -> TaskStore:
        async with self._opening:
            if self._store is None:
                async with AsyncExitStack() as stack:
                    store = await TaskStore.open(self._settings.url)
                    stack.push_async_callback(store.close)
                    await stack.enter_async_context(announcements(store.engine, self._notifier))
                    self._closing = stack.pop_all()
                self._store = store
            return self._store

    async def _ready(self) -> Runner:
        store = await self._opened()
        if self._runner is None:
            methods = self._methods
            if methods is None:
                raise CapabilitiesError("no handler has said yet what it can run")
            for definition in methods.tasks.values():
                await store.sync(definition, self._clock())
            options = RunnerOptions(
                self.name,
                lease_seconds=self._settings.lease_seconds,
                poll_seconds=POLL_SECONDS[store.engine.dialect.name],
            )
            self._runner = Runner(store, methods, options, clock=self._clock, observer=self._metrics)
        return self._runner

    async def _task(self, runner: Runner, held: StoredInstance) -> LeasedTask | None:
        """Return what was taken as a task; None if there is no call to make, or if this worker is cordoned."""
        if not held.instance.status.running:
            return None
        if self._cordoned and await self._left(runner, held):
            return None
        claim = InstanceClaim(held.instance.id, held.runner, held.revision, self._settings.lease_seconds)
        return LeasedTask(claim.token, claim.input)

    @staticmethod
    async def _left(runner: Runner, held: StoredInstance) -> bool:
        """Leave what was taken to others. Where the store does not answer, the slot gives it back as a task."""
        try:
            await runner.leave(held)
            await lease_operations.announce(runner.store, held.instance.task_name)
        except (SQLAlchemyError, OSError) as error:
            log.warning("an instance that was taken during a cordon could not be left: %s", type(error).__name__)
            return False
        return True

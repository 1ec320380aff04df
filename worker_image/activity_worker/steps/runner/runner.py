"""Running instances: the longest due first, as many calls of one as are due, each saved before it is made."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from activity_worker.steps.model import new_instance, transitions
from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.errors import StepError, record_of
from activity_worker.steps.model.instance import Instance, Outcome, Raised, Returned
from activity_worker.steps.model.methods import Methods, NewTask
from activity_worker.steps.model.rules import Planned, plan
from activity_worker.steps.runner.context import CURRENT, Current
from activity_worker.steps.runner.invoke import call_method
from activity_worker.steps.runner.lease import record_outcome, renewed_lease
from activity_worker.steps.runner.observer import RunObserver
from activity_worker.steps.store.notifier import Notifier, announcements
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import InstanceLeaseLostError, TaskStore

log = logging.getLogger(__name__)

#: Seconds between two looks at an instance that is due and that another runner is about to take.
SHORTEST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """How a runner works.

    `slots` instances at once; a lease lasts `lease_seconds` and is renewed three times in it while a call runs;
    `poll_seconds` is how often the store is asked when nothing was announced; `versions_seconds` how often for new
    versions of the tasks. Without `renews` somebody else renews the leases.
    """

    name: str
    slots: int = 1
    lease_seconds: float = 60.0
    poll_seconds: float = 1.0
    versions_seconds: float = 10.0
    renews: bool = True

    def __post_init__(self) -> None:
        for name, least in (("slots", 1), ("lease_seconds", 0.1), ("poll_seconds", 0.01), ("versions_seconds", 0.0)):
            if not least <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is at least {least:g}, not {getattr(self, name)!r}")


class Runner:
    """Runs due instances of the tasks whose methods it has; versions that need others are left to other runners."""

    def __init__(
        self,
        store: TaskStore,
        methods: Methods,
        options: RunnerOptions,
        *,
        clock: Callable[[], float] = time.time,
        observer: RunObserver | None = None,
    ) -> None:
        self.store = store
        self.methods = methods
        self.options = options
        self._clock = clock
        self._observer = observer or RunObserver()
        self._stopping = False
        self._notifier = Notifier()
        self._waiting = asyncio.Lock()
        self._versions: frozenset[str] = frozenset()
        self._versions_read = float("-inf")
        self.busy = 0

    def stop(self) -> None:
        """Begin no further call; `run` returns when those that run have ended and are recorded."""
        self._stopping = True
        self._notifier.notify()

    def wake(self) -> None:
        """Look for due instances now."""
        self._notifier.notify()

    async def run(self) -> None:
        """Work until `stop` is called."""
        async with announcements(self.store.engine, self._notifier), asyncio.TaskGroup() as group:
            for _ in range(self.options.slots):
                group.create_task(self._slot())

    async def run_due(self) -> int:
        """Run what is due until nothing is; return how many instances were taken."""
        count = 0
        while not self._stopping and await self.run_one():
            count += 1
        return count

    async def run_instance(self, instance_id: str) -> StoredInstance:
        """Run one instance to its end, waiting for its retries and for another runner's lease; return it.

        After `stop` it is returned as it stands. Raises UnknownInstanceError.
        """
        while True:
            heard = self._notifier.notifications
            stored = await self.store.get(instance_id)
            this = stored.instance
            if this.complete or self._stopping:
                return stored
            if not await self.run_one(only=instance_id):
                due = this.next_run_time if this.next_run_time is not None and not this.paused else float("inf")
                ahead = max(due - self._clock(), SHORTEST_SECONDS)
                await self._notifier.wait(heard, min(ahead, self.options.poll_seconds))

    async def run_one(self, *, only: str | None = None) -> bool:
        """Take the instance that has been due longest and run it as far as it goes; False when none is due.

        `only` names the one to take.
        """
        held = await self.take(self.options.name, only=only)
        if held is None:
            return False
        await self._run_taken(held)
        return True

    async def take(self, name: str, *, only: str | None = None) -> StoredInstance | None:
        """Take the instance that has been due longest, under a runner's name; None when none is due.

        Its next call is saved as running, unless it needs none.
        """
        if self._stopping:
            return None
        versions = await self._known()
        began = time.monotonic()
        taken = await self.store.claim(name, self._clock, versions, self.options.lease_seconds, only=only)
        if taken is None:
            return None
        self._observer.claimed(taken.before, taken.held.instance, taken.held.updated, time.monotonic() - began)
        return await self.leave(taken.held) if self._stopping else taken.held

    async def leave(self, held: StoredInstance) -> StoredInstance:
        """Leave an instance that was taken to others, as due as it was. Raises LeaseLostError."""
        if not held.instance.status.running:
            return held
        now = self._clock()
        return await self.store.record(held, now, lambda _, stored: transitions.left(stored.instance, now))

    async def go_on(self, held: StoredInstance) -> StoredInstance:
        """Make the call that a taken instance stands before, and those after it, as far as it goes; return it then.

        Raises LeaseLostError when another runner has it.
        """
        self.busy += 1
        try:
            while held.instance.status.running:
                held = await self._one_call(held)
            return held
        finally:
            self.busy -= 1

    async def _run_taken(self, held: StoredInstance) -> None:
        try:
            await self.go_on(held)
        except InstanceLeaseLostError as error:
            log.warning("%s: another runner goes on with it", error)

    async def _slot(self) -> None:
        while not self._stopping:
            try:
                if (held := await self._next()) is not None:
                    await self._run_taken(held)
            except Exception:
                log.exception("the task store cannot be used, again in %g s", self.options.poll_seconds)
                await self._notifier.wait(self._notifier.notifications, self.options.poll_seconds)

    async def _next(self) -> StoredInstance | None:
        """Take the next instance; where none is due, one slot waits for all: who takes one wakes the slot behind it."""
        heard = self._notifier.notifications
        held = await self.take(self.options.name)
        if held is not None:
            return held
        async with self._waiting:
            while held is None and not self._stopping:
                await self._notifier.wait(heard, await self.idle_seconds())
                heard = self._notifier.notifications
                held = await self.take(self.options.name)
        return held

    async def idle_seconds(self) -> float:
        """Return how long nothing will be due, as far as the store knows; at most `poll_seconds`."""
        due = await self.store.next_due(await self._known())
        ahead = self.options.poll_seconds if due is None else due - self._clock()
        return min(max(ahead, 0.0), self.options.poll_seconds)

    async def _known(self) -> frozenset[str]:
        """Return the versions that can be run here: each of their methods is there."""
        if self._clock() - self._versions_read >= self.options.versions_seconds:
            found = await self.store.versions(self.methods.tasks)
            self._versions = frozenset(one.id for one in found if self.methods.missing(one) is None)
            self._versions_read = self._clock()
        return self._versions

    async def _one_call(self, held: StoredInstance) -> StoredInstance:
        definition = await self.store.definition(held.instance.definition_id)
        began = time.monotonic()
        outcome = await self._outcome(held, plan(definition, held.instance))
        took = time.monotonic() - began

        def ended(definition: Definition, stored: StoredInstance) -> Instance:
            return transitions.ended(
                definition,
                # The call began on what we hold; a pause that was asked for meanwhile is in the store.
                _with_pause(held.instance, stored.instance),
                outcome,
                self._clock(),
                self.options.lease_seconds,
                canceled=stored.cancel,
                stopping=self._stopping,
            )

        recorded = await record_outcome(self.store, held, ended, self.options.lease_seconds, self._clock)
        self._observer.called(held.instance, outcome, recorded.instance, took)
        return recorded

    async def _outcome(self, held: StoredInstance, planned: Planned) -> Outcome:
        with self._renewed(held):
            method = self.methods.find(held.instance.task_name, planned.call.method)
            if isinstance(method, NewTask):
                return await self._create(held, planned, method.definition)
            if method is None:
                return Raised(record_of(StepError("MethodMissing", f"there is no method {planned.call.method!r}")))
            token = CURRENT.set(_current(held, planned))
            try:
                return await call_method(method, planned)
            finally:
                CURRENT.reset(token)

    def _renewed(self, held: StoredInstance) -> contextlib.AbstractContextManager[None]:
        if not self.options.renews:
            return contextlib.nullcontext()
        return renewed_lease(self.store, held, self.options.lease_seconds, self._clock)

    async def _create(self, held: StoredInstance, planned: Planned, definition: Definition) -> Outcome:
        """A step whose method creates an instance of another task; made again, it finds the one it made."""
        child = new_instance.derived_id(_current(held, planned).key)
        made = new_instance.create_instance(definition, planned.arguments, now=self._clock(), instance_id=child)
        await self.store.sync(definition, self._clock())
        await self.store.create(made, self._clock())
        self._notifier.notify()
        return Returned({"id": made.id} if planned.call.output is not None else None)


def _current(held: StoredInstance, planned: Planned) -> Current:
    this = held.instance
    where = (planned.step_num, planned.sub_step, held.revision, held.runner)
    return Current(this.id, this.task_name, *where, round=this.status.round)


def _with_pause(ours: Instance, stored: Instance) -> Instance:
    return replace(ours, paused=stored.paused)

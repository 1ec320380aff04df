"""Runs due instances: the one that has been due longest comes first.

A call is stored as running before it is made, and its outcome after it. While a call runs, the runner renews the
instance's lease.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.steps.model import transitions
from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.errors import StepError, record_of
from activity_worker.steps.model.instance import (
    MAX_RUNNER_NAME,
    Instance,
    Outcome,
    Raised,
    Returned,
    create_instance,
    derived_id,
)
from activity_worker.steps.model.methods import Methods, NewTask
from activity_worker.steps.model.rules import Planned, plan
from activity_worker.steps.model.storable import NOT_JSON, storable_text
from activity_worker.steps.runner.invoke import CURRENT, Current, call_method
from activity_worker.steps.runner.observer import RunObserver
from activity_worker.steps.store.db_errors import DataRefusedError, refused_data
from activity_worker.steps.store.notifier import Notifier, announcements
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import InstanceLeaseLostError, TaskStore, Transition

log = logging.getLogger(__name__)

#: Least seconds between two counts of the instances that a runner leaves to other runners.
LEFT_SECONDS = 60.0
#: Seconds between two tries to store an outcome while the store fails.
AGAIN_SECONDS = 1.0


@contextlib.contextmanager
def renewed_lease(
    store: TaskStore, held: StoredInstance, lease_seconds: float, clock: Callable[[], float]
) -> Iterator[None]:
    """Renew the lease three times in `lease_seconds` while the body runs.

    When the lease is lost, the body is cancelled and InstanceLeaseLostError is raised.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - a coroutine's
    renewing = asyncio.create_task(_renew(store, held, lease_seconds, clock))
    left, given_up = False, False

    def ended(_: asyncio.Task[None]) -> None:
        nonlocal given_up
        # This runs one turn of the loop after the renewals end: the caller may have left the body meanwhile.
        if not left and _error(renewing) is not None:
            given_up = True
            caller.cancel()

    renewing.add_done_callback(ended)
    try:
        yield
    except asyncio.CancelledError:
        if not given_up:
            raise
    finally:
        left = True
        renewing.cancel()
    if given_up:
        # Also if the method ended although it was cancelled: the outcome is dropped, because the lease is lost.
        caller.uncancel()
        raise InstanceLeaseLostError(str(_error(renewing)))


async def record_outcome(
    store: TaskStore, held: StoredInstance, turn: Transition, lease_seconds: float, clock: Callable[[], float]
) -> StoredInstance:
    """Store the outcome of a call, and try again while the store fails and the lease lasts.

    A try that failed may have been stored. Then the store has the instance that this runner wrote. Raises
    InstanceLeaseLostError, and DataRefusedError if the store can never hold the outcome.
    """
    written: Instance | None = None

    def noted(definition: Definition, stored: StoredInstance) -> Instance:
        nonlocal written
        written = turn(definition, stored)
        return written

    until = asyncio.get_running_loop().time() + lease_seconds
    tried = False
    while True:
        try:
            with refused_data("the data with it"):
                return await store.record(held, clock(), noted)
        except InstanceLeaseLostError:
            stored = await store.get(held.instance.id) if tried else None
            if stored is None or stored.revision != held.revision + 1 or stored.instance != written:
                raise
            return stored
        except (SQLAlchemyError, OSError):
            if asyncio.get_running_loop().time() + AGAIN_SECONDS >= until:
                raise
            tried = True
            log.warning("the outcome of instance %s could not be stored; trying again", held.instance.id, exc_info=True)
            await asyncio.sleep(AGAIN_SECONDS)


async def _renew(store: TaskStore, held: StoredInstance, lease_seconds: float, clock: Callable[[], float]) -> None:
    while True:
        await asyncio.sleep(lease_seconds / 3)
        try:
            await store.renew(held, clock() + lease_seconds)
        except InstanceLeaseLostError:
            raise
        except Exception:
            # The lease has not ended yet. The next renewal, or the write of the outcome, shows whether it lasts.
            log.exception("the lease of instance %s could not be renewed", held.instance.id)


def _error(task: "asyncio.Task[None]") -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


#: Least seconds between two tries to take an instance that is due: another runner may be about to take it.
SHORTEST_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """How a runner works.

    `name`: the runner's name in the store. `slots`: how many instances run at once. `lease_seconds`: how long a lease
    lasts; while a call runs, it is renewed three times in that time. `poll_seconds`: how often the store is asked for
    due instances when it announces none. `versions_seconds`: how often it is asked for new versions of the tasks.
    `renews`: False if the caller renews the leases.
    """

    name: str
    slots: int = 1
    lease_seconds: float = 60.0
    poll_seconds: float = 1.0
    versions_seconds: float = 10.0
    renews: bool = True

    def __post_init__(self) -> None:
        if len(self.name) > MAX_RUNNER_NAME or storable_text(self.name) != self.name:
            raise ValueError(f"name is text of at most {MAX_RUNNER_NAME} characters without NUL, not {self.name!r}")
        for name, least in (("slots", 1), ("lease_seconds", 0.1), ("poll_seconds", 0.01), ("versions_seconds", 0.0)):
            if not least <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is at least {least:g}, not {getattr(self, name)!r}")


class Runner:
    """Runs due instances of the tasks whose methods it has. Other runners run the versions that need other methods."""

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
        self._left = _LeftVersions(store, methods)
        self.busy = 0

    def stop(self) -> None:
        """Begin no further call. `run` returns when the outcomes of the running calls are recorded."""
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
        """Run due instances until none is due; return how many were taken."""
        count = 0
        while not self._stopping and await self.run_one():
            count += 1
        return count

    async def run_instance(self, instance_id: str) -> StoredInstance:
        """Run one instance to its end and return it. Wait for its retries, and while another runner has its lease.

        After `stop` the instance is returned as it is. Raises UnknownInstanceError.
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
        """Take the instance that has been due longest and make its due calls. Returns False when none is due.

        `only` is the id of the one instance to take.
        """
        held = await self.take(self.options.name, only=only)
        if held is None:
            return False
        await self._run_taken(held)
        return True

    async def take(self, name: str, *, only: str | None = None) -> StoredInstance | None:
        """Claim the instance that has been due longest, for the runner `name`; None when none is due.

        If the instance has a call to make, that call is stored as running.
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
        """Give back an instance that was taken: it is due at once, for any runner. Raises InstanceLeaseLostError."""
        if not held.instance.status.running:
            return held
        now = self._clock()
        return await self.store.record(held, now, lambda _, stored: transitions.left(stored.instance, now))

    async def go_on(self, held: StoredInstance) -> StoredInstance:
        """Make the next call of a taken instance and the calls that are due after it; return the instance then.

        Raises InstanceLeaseLostError when another runner has the instance.
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
        """Take the next instance. If none is due, one slot waits; when it takes an instance, the next slot waits."""
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
        """Return the seconds until the store's next instance is due, at most `poll_seconds`."""
        due = await self.store.next_due(await self._known())
        ahead = self.options.poll_seconds if due is None else due - self._clock()
        return min(max(ahead, 0.0), self.options.poll_seconds)

    async def _known(self) -> frozenset[str]:
        """Return the ids of the versions that this runner can run: it has each of their methods."""
        if self._clock() - self._versions_read >= self.options.versions_seconds:
            found = await self.store.versions(self.methods.tasks)
            left = [one for one in found if self.methods.missing(one) is not None]
            self._versions = frozenset(one.id for one in found) - {one.id for one in left}
            self._versions_read = self._clock()
            await self._left.report(left)
        return self._versions

    async def _one_call(self, held: StoredInstance) -> StoredInstance:
        definition = await self.store.definition(held.instance.definition_id)
        planned = plan(definition, held.instance)
        began = time.monotonic()
        outcome = await self._outcome(held, planned)
        took = time.monotonic() - began
        try:
            recorded = await self._record(held, outcome)
        except DataRefusedError as error:
            outcome = _without_data(planned.call.method, outcome, error)
            recorded = await self._record(held, outcome)
        self._observer.called(held.instance, outcome, recorded.instance, took)
        return recorded

    async def _record(self, held: StoredInstance, outcome: Outcome) -> StoredInstance:
        def ended(definition: Definition, stored: StoredInstance) -> Instance:
            return transitions.ended(
                definition,
                # The call began with our copy of the instance; a pause that was asked for meanwhile is in the store.
                _with_pause(held.instance, stored.instance),
                outcome,
                self._clock(),
                self.options.lease_seconds,
                canceled=stored.cancel,
                stopping=self._stopping,
            )

        return await record_outcome(self.store, held, ended, self.options.lease_seconds, self._clock)

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
        """Create an instance of another task. A repeated call finds the instance that the first call created."""
        child = derived_id(_current(held, planned).key)
        try:
            made = create_instance(definition, planned.arguments, now=self._clock(), instance_id=child)
            await self.store.sync(definition, self._clock())
            with refused_data("the new instance's data"):
                await self.store.create(made, self._clock())
        except ValueError as error:
            return Raised(record_of(error))
        self._notifier.notify()
        return Returned({"id": made.id} if planned.call.output is not None else None)


class _LeftVersions:
    """Logs, once for each version, the instances that a runner leaves to others because it lacks their methods."""

    def __init__(self, store: TaskStore, methods: Methods) -> None:
        self._store = store
        self._methods = methods
        self._reported: set[str] = set()
        self._next_report = float("-inf")

    async def report(self, left: Sequence[Definition]) -> None:
        """Log which instances of these versions wait; at most once in LEFT_SECONDS, because it counts them."""
        new = {one.id: one for one in left if one.id not in self._reported}
        if not new or time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + LEFT_SECONDS
        for version, count in (await self._store.count_by_version(new)).items():
            self._reported.add(version)
            gap = self._methods.describe_missing(new[version])
            facts = {"version": version, "instances": count, "missing": gap}
            log.warning("instances are left to other runners", extra={"facts": facts})


def _current(held: StoredInstance, planned: Planned) -> Current:
    this = held.instance
    where = (planned.step_num, planned.sub_step, held.revision, held.runner)
    return Current(this.id, this.task_name, *where, round=this.status.round)


def _without_data(method: str, outcome: Outcome, refused: DataRefusedError) -> Outcome:
    """Return what is recorded in place of an outcome that the store refuses."""
    if isinstance(outcome, Raised):
        return Raised(replace(outcome.error, data=None))
    return Raised(record_of(StepError(NOT_JSON, f"what {method} returned cannot be stored: {refused}")))


def _with_pause(ours: Instance, stored: Instance) -> Instance:
    return replace(ours, paused=stored.paused)

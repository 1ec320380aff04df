"""Running instances: the longest due first, as many calls of one as are due, each saved before it is made."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from activity_worker.steps import creating, turns
from activity_worker.steps.advance import Planned, plan
from activity_worker.steps.announce import announcements
from activity_worker.steps.calling import call
from activity_worker.steps.definition import Definition
from activity_worker.steps.errors import StepError, record_of
from activity_worker.steps.instance import Instance
from activity_worker.steps.methods import Methods, NewTask
from activity_worker.steps.outcome import Outcome, Raised, Returned
from activity_worker.steps.store import LeaseLostError, Stored, TaskStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """How a runner works.

    `slots` instances at once; a lease lasts `lease_seconds` and is renewed three times in it while a call runs;
    `poll_seconds` is how often the store is asked when nothing was announced; `versions_seconds` how often for new
    versions of the tasks.
    """

    name: str
    slots: int = 1
    lease_seconds: float = 60.0
    poll_seconds: float = 1.0
    versions_seconds: float = 10.0


class Runner:
    """Runs due instances of the tasks whose methods it has; versions that need others are left to other runners."""

    def __init__(
        self, store: TaskStore, methods: Methods, options: RunnerOptions, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.methods = methods
        self.options = options
        self._clock = clock
        self._stopping = False
        self._wake = asyncio.Event()
        self._versions: frozenset[str] = frozenset()
        self._versions_read = float("-inf")
        self.busy = 0

    def stop(self) -> None:
        """Begin no further call; `run` returns when those that run have ended and are recorded."""
        self._stopping = True
        self._wake.set()

    def wake(self) -> None:
        """Look for due instances now."""
        self._wake.set()

    async def run(self) -> None:
        """Work until `stop` is called."""
        async with announcements(self.store.engine, self._wake), asyncio.TaskGroup() as group:
            for _ in range(self.options.slots):
                group.create_task(self._slot())

    async def run_due(self) -> int:
        """Run what is due until nothing is; return how many instances were taken."""
        count = 0
        while not self._stopping and await self.run_one():
            count += 1
        return count

    async def run_one(self) -> bool:
        """Take the instance that has been due longest and run it as far as it goes; False when none is due."""
        versions = await self._known()
        held = await self.store.claim(self.options.name, self._clock(), versions, self._taken)
        if held is None:
            return False
        self.busy += 1
        try:
            while held.instance.status.running:
                held = await self._one_call(held)
        except LeaseLostError as error:
            log.warning("%s: another runner goes on with it", error)
        finally:
            self.busy -= 1
        return True

    async def _slot(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                if await self.run_one():
                    continue
                wait = await self._idle_seconds()
            except Exception:
                log.exception("the task store cannot be used, again in %g s", self.options.poll_seconds)
                wait = self.options.poll_seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()

    async def _idle_seconds(self) -> float:
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

    def _taken(self, definition: Definition, stored: Stored) -> Instance | None:
        if self._stopping:
            return None
        lease = self.options.lease_seconds
        return turns.taken(definition, stored.instance, self._clock(), lease, canceled=stored.cancel)

    async def _one_call(self, held: Stored) -> Stored:
        definition = await self.store.definition(held.instance.definition_id)
        outcome = await self._outcome(held, plan(definition, held.instance))

        def ended(definition: Definition, stored: Stored) -> Instance:
            return turns.ended(
                definition,
                # The call began on what we hold; a pause that was asked for meanwhile is in the store.
                _with_pause(held.instance, stored.instance),
                outcome,
                self._clock(),
                self.options.lease_seconds,
                canceled=stored.cancel,
                stopping=self._stopping,
            )

        return await self.store.record(held, self._clock(), ended)

    async def _outcome(self, held: Stored, planned: Planned) -> Outcome:
        with self._renewing(held):
            method = self.methods.find(held.instance.task_name, planned.call.method)
            if isinstance(method, NewTask):
                return await self._create(held, planned, method.definition)
            if method is None:
                return Raised(record_of(StepError("MethodMissing", f"there is no method {planned.call.method!r}")))
            return await call(method, planned)

    async def _create(self, held: Stored, planned: Planned, definition: Definition) -> Outcome:
        """A step whose method creates an instance of another task; made again, it finds the one it made."""
        child = creating.child_id(held.instance.id, planned.step_num, planned.sub_step)
        made = creating.instance(definition, planned.arguments, now=self._clock(), instance_id=child)
        await self.store.sync(definition, self._clock())
        await self.store.create(made, self._clock())
        self._wake.set()
        return Returned({"id": made.id} if planned.call.output is not None else None)

    @contextlib.contextmanager
    def _renewing(self, held: Stored) -> Iterator[None]:
        """Renew the lease while the call runs; when it is lost, the call is given up."""
        caller = asyncio.current_task()
        renewing = asyncio.create_task(self._renew(held))

        def lost(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None and caller is not None:
                caller.cancel()

        renewing.add_done_callback(lost)
        try:
            yield
        except asyncio.CancelledError:
            if renewing.done() and not renewing.cancelled() and (error := renewing.exception()) is not None:
                if caller is not None:
                    caller.uncancel()
                raise LeaseLostError(str(error)) from None
            raise
        finally:
            renewing.cancel()

    async def _renew(self, held: Stored) -> None:
        while True:
            await asyncio.sleep(self.options.lease_seconds / 3)
            try:
                await self.store.renew(held, self._clock() + self.options.lease_seconds)
            except LeaseLostError:
                raise
            except Exception:
                # The lease still runs; the next renewal or the record itself says whether it was kept.
                log.exception("the lease of instance %s could not be renewed", held.instance.id)


def _with_pause(ours: Instance, stored: Instance) -> Instance:
    return replace(ours, paused=stored.paused)

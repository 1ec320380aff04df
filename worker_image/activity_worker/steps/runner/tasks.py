"""Tasks put together: what runs them, what creates them, what looks at them."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from activity_worker.steps.model import transitions
from activity_worker.steps.model.definition_parser import DefinitionError
from activity_worker.steps.model.instance import Instance, create_instance
from activity_worker.steps.model.methods import Methods
from activity_worker.steps.model.task import Task
from activity_worker.steps.runner.observer import RunObserver
from activity_worker.steps.runner.runner import Runner, RunnerOptions
from activity_worker.steps.store.db_errors import refused_data
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import TaskStore

if TYPE_CHECKING:
    from activity_worker.handlers.registry import Activities


class UnknownTaskError(LookupError):
    """There is no task of this name."""


class InstanceConflictError(ValueError):
    """An instance of this id exists, and it is of another task or was created with other arguments."""


@dataclass(frozen=True, slots=True)
class Created:
    """An instance that was asked for. `is_new` is False if it had been created before."""

    instance_id: str
    is_new: bool


class Tasks:
    """Some tasks, the modules that their methods are in, and a store.

    `modules` maps names to maps or objects: `module.email.send` is `modules["email"].send`. `registry` has the
    middleware, resources and hooks of a worker's processes, and no handler: the worker runs each instance inside of its
    middleware. `clock` returns Unix seconds; a test that sets it need not wait for retries.

    Raises DefinitionError at once when a step names a method that is not there, or a method is no function, and
    ValueError for a registry with a handler.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        modules: Mapping[str, Any] | None = None,
        registry: "Activities | None" = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if registry is not None and len(registry):
            handler = next(iter(registry)).name
            raise ValueError(f"registry: has the handler {handler!r}; give Tasks a registry without handlers")
        self.registry = registry
        self._clock = clock
        self.methods = Methods(modules=dict(modules or {}))
        for task in tasks:
            if task.name in self.methods.tasks:
                raise DefinitionError(task.name, "name", "there is a task of this name already")
            for name, method in task.methods.items():
                if not callable(method):
                    raise DefinitionError(
                        task.name, f"methods.{name}", f"is a function that takes the call's arguments, not {method!r}"
                    )
            self.methods.own[task.name] = dict(task.methods)
            self.methods.tasks[task.name] = task.definition
        for definition in self.methods.tasks.values():
            self.methods.require(definition)

    def now(self) -> float:
        """Return the present time, in Unix seconds."""
        return self._clock()

    async def sync(self, store: TaskStore) -> None:
        """Keep the present versions in the store."""
        for definition in self.methods.tasks.values():
            await store.sync(definition, self._clock())

    async def new(
        self,
        store: TaskStore,
        task: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        session: Any = None,
        at: float | None = None,
        instance_id: str | None = None,
    ) -> str:
        """Create an instance and return its id.

        `session` is passed to every call and no method changes it. `at` (Unix seconds) schedules the instance; default:
        at once. With an `instance_id` of the caller's, creating it again changes nothing. Raises UnknownTaskError;
        InstanceConflictError if the id belongs to another task, or to an instance with other arguments or session;
        ValueError for arguments, a session, an id or a time that cannot be stored.
        """
        created = await self.create(store, task, arguments, session=session, at=at, instance_id=instance_id)
        return created.instance_id

    async def create(
        self,
        store: TaskStore,
        task: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        session: Any = None,
        at: float | None = None,
        instance_id: str | None = None,
    ) -> Created:
        """Do the same as `new`, and say whether the instance is new."""
        definition = self.methods.tasks.get(task)
        if definition is None:
            raise UnknownTaskError(f"there is no task {task!r}; there are {', '.join(sorted(self.methods.tasks))}")
        await store.sync(definition, self._clock())
        given = {} if arguments is None else arguments
        made = create_instance(definition, given, now=self._clock(), session=session, at=at, instance_id=instance_id)
        with refused_data("the instance's data"):
            is_new = await store.create(made, self._clock())
        if not is_new:
            await _require_same(store, made, given, session)
        return Created(made.id, is_new)

    def runner(self, store: TaskStore, options: RunnerOptions, observer: RunObserver | None = None) -> Runner:
        """Return a runner of these tasks, whose calls `observer` hears of; `sync` first."""
        return Runner(store, self.methods, options, clock=self._clock, observer=observer)


async def _require_same(store: TaskStore, made: Instance, arguments: Mapping[str, Any], session: Any) -> None:
    """Raise InstanceConflictError if the instance that has the id was created as another one."""
    there = (await store.get(made.id)).instance
    if there.task_name != made.task_name:
        raise InstanceConflictError(
            f"instance {made.id} belongs to task {there.task_name!r}, not {made.task_name!r}: choose another id"
        )
    # Its version's defaults, not those of the present version.
    definition = await store.definition(there.definition_id)
    same = create_instance(definition, arguments, now=0.0, session=session, instance_id=made.id)
    if same.data != await store.created_data(made.id):
        raise InstanceConflictError(
            f"instance {made.id} was created with other arguments or another session: choose another id"
        )


async def cancel(store: TaskStore, instance_id: str, *, now: float | None = None) -> StoredInstance:
    """Ask for an instance to be canceled: completed steps are reversed, at once or when the running call ends.

    `now` is in Unix seconds; default: this machine's clock. Returns the instance, whose `cancel` says whether a running
    call has to end first. Raises UnknownInstanceError and InstanceCompleteError.
    """
    at = _time(now)
    return await store.change(
        instance_id,
        at,
        lambda definition, stored: transitions.asked_to_cancel(definition, stored.instance, at),
        cancel=True,
    )


async def retry(store: TaskStore, instance_id: str, *, now: float | None = None) -> StoredInstance:
    """Start a failed or canceled instance again from its first step that is not done, and return it.

    `now` as for `cancel`. Raises UnknownInstanceError, and CannotRetryError when it has not failed.
    """
    at = _time(now)
    return await store.change(
        instance_id, at, lambda definition, stored: transitions.asked_to_retry(definition, stored.instance, at)
    )


async def pause(store: TaskStore, instance_id: str, *, now: float | None = None) -> StoredInstance:
    """Let an instance stand still at its next sub-step, and return it; a call that runs is not interrupted.

    `now` as for `cancel`. Raises UnknownInstanceError and InstanceCompleteError.
    """
    return await store.change(
        instance_id, _time(now), lambda _, stored: transitions.paused(stored.instance, paused=True)
    )


async def resume(store: TaskStore, instance_id: str, *, now: float | None = None) -> StoredInstance:
    """Let a paused instance go on, and return it. Nothing changes for one that is not paused.

    `now` as for `cancel`. Raises UnknownInstanceError and InstanceCompleteError.
    """
    return await store.change(
        instance_id, _time(now), lambda _, stored: transitions.paused(stored.instance, paused=False)
    )


def _time(now: float | None) -> float:
    return time.time() if now is None else now

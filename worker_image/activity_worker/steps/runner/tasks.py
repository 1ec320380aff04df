"""Tasks put together: what runs them, what creates them, what looks at them."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from activity_worker.steps.model import transitions
from activity_worker.steps.model.definition_parser import DefinitionError
from activity_worker.steps.model.instance import create_instance
from activity_worker.steps.model.methods import Methods
from activity_worker.steps.model.task import Task
from activity_worker.steps.runner.observer import RunObserver
from activity_worker.steps.runner.runner import Runner, RunnerOptions
from activity_worker.steps.store.db_errors import refused_data
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import TaskStore


class UnknownTaskError(LookupError):
    """There is no task of this name."""


class Tasks:
    """Some tasks, the modules that their methods are in, and a store.

    `modules` maps names to maps or objects: `module.email.send` is `modules["email"].send`. Raises DefinitionError at
    once when a step names a method that is not there, or a method is no function.
    """

    def __init__(
        self,
        tasks: Iterable[Task],
        *,
        modules: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
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
        """Create an instance and return its id; `at` (Unix seconds) schedules it.

        With an `instance_id` of the caller's, creating it again changes nothing. Raises UnknownTaskError, and
        ValueError for arguments, a session, an id or a time that cannot be stored.
        """
        definition = self.methods.tasks.get(task)
        if definition is None:
            raise UnknownTaskError(f"there is no task {task!r}; there are {', '.join(sorted(self.methods.tasks))}")
        await store.sync(definition, self._clock())
        made = create_instance(
            definition, arguments or {}, now=self._clock(), session=session, at=at, instance_id=instance_id
        )
        with refused_data("the instance's data"):
            await store.create(made, self._clock())
        return made.id

    def runner(self, store: TaskStore, options: RunnerOptions, observer: RunObserver | None = None) -> Runner:
        """Return a runner of these tasks, whose calls `observer` hears of; `sync` first."""
        return Runner(store, self.methods, options, clock=self._clock, observer=observer)


async def cancel(store: TaskStore, instance_id: str, now: float) -> StoredInstance:
    """Ask for an instance to be canceled: completed steps are reversed, at once or when the running call ends."""
    return await store.change(
        instance_id,
        now,
        lambda definition, stored: transitions.asked_to_cancel(definition, stored.instance, now),
        cancel=True,
    )


async def retry(store: TaskStore, instance_id: str, now: float) -> StoredInstance:
    """Start a failed instance again from its failed step. Raises CannotRetryError when it has not failed."""
    return await store.change(
        instance_id, now, lambda definition, stored: transitions.asked_to_retry(definition, stored.instance, now)
    )


async def pause(store: TaskStore, instance_id: str, now: float, *, paused: bool = True) -> StoredInstance:
    """Let an instance stand still at the next sub-step, or go on."""
    return await store.change(instance_id, now, lambda _, stored: transitions.paused(stored.instance, paused=paused))

"""A multi-step task as the handler of an activity: begun by one worker, finished by whichever has the task last."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from activity_worker.errors import TaskFailed
from activity_worker.steps.model import paths, transitions
from activity_worker.steps.model.definition_parser import SESSION
from activity_worker.steps.model.instance import derived_id, runner_name
from activity_worker.steps.runner.runner import RunnerOptions
from activity_worker.steps.runner.tasks import InstanceConflictError, Tasks, retry
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import TaskStore
from activity_worker.task import TaskRequest

#: The default options of a handler's runner. A task that comes to another worker waits for the end of the lease.
OPTIONS = RunnerOptions("", lease_seconds=15.0)


def task_handler(
    tasks: Tasks,
    task: str,
    *,
    store_url: str,
    key: str,
    retry_failed: bool = False,
    options: RunnerOptions = OPTIONS,
) -> Callable[[TaskRequest], Awaitable[Any]]:
    """Return a handler that runs an instance of a task to its end and answers with the task's data.

    `key` is the path in the input of what names the piece of work, such as the execution's id (`"id.$":
    "$$.Execution.Id"` in the state's Parameters): a task with the same key goes on with the same instance, at the step
    where it was left. An instance that failed fails the task again, under its error's code, or is started again
    from the failed step with `retry_failed`. A missing key fails the task as `Steps.NoKey`.

    The worker's own heartbeats go out meanwhile; the state's TimeoutSeconds has to cover the retries of the steps.
    """

    async def handle(request: TaskRequest) -> Any:
        store = await TaskStore.open(store_url)
        try:
            name = runner_name(request.worker.worker_name)
            runner = tasks.runner(store, replace(options, name=options.name or name))
            await tasks.sync(store)
            instance_id = derived_id(f"{task}/{_key(request.input, key)}")
            with contextlib.suppress(InstanceConflictError):
                # The key alone names the work: the input of a task that comes again may differ.
                await tasks.new(store, task, request.input, instance_id=instance_id)
            stored = await store.get(instance_id)
            tasks.methods.require(await store.definition(stored.instance.definition_id))
            if retry_failed and stored.instance.complete and not stored.instance.success:
                await _again(tasks, store, instance_id)
            return _answer(await runner.run_instance(instance_id))
        finally:
            await store.close()

    return handle


async def _again(tasks: Tasks, store: TaskStore, instance_id: str) -> None:
    try:
        await retry(store, instance_id, now=tasks.now())
    except transitions.CannotRetryError:
        # Somebody else was first: it is on its way.
        return


def _key(value: Any, path: str) -> str:
    found = paths.get(value, path)
    if found is paths.MISSING or isinstance(found, dict | list) or found in {None, ""}:
        raise TaskFailed("Steps.NoKey", f"the input has no text or number at {path!r} to know this piece of work by")
    return str(found)


def _answer(stored: StoredInstance) -> dict[str, Any]:
    instance = stored.instance
    if not instance.success:
        first = instance.status.failures[0]
        where = f"task {instance.task_name}, step {first.step_num}, instance {instance.id}"
        raise TaskFailed(first.error.code, f"{first.error.message} ({where})")
    return {name: value for name, value in instance.data.items() if name != SESSION}

"""One call of a method: an async one is awaited, a plain one runs in a thread of its own, both within their time.

A method can ask which call it is (`current`), for keys that make an effect happen once, and for logs.
"""

import asyncio
import contextvars
import inspect
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from activity_worker.steps.model.definition import CHECKED, SubStep
from activity_worker.steps.model.errors import StepError, record_of
from activity_worker.steps.model.instance import Outcome, Raised, Returned
from activity_worker.steps.model.methods import Method
from activity_worker.steps.model.rules import Planned
from activity_worker.steps.model.storable import NOT_JSON, as_stored


@dataclass(frozen=True, slots=True)
class Current:
    """The call that a runner makes now; `round` counts how often the instance was started again after it failed."""

    instance_id: str
    task_name: str
    step_num: int
    sub_step: SubStep
    revision: int
    runner: str
    round: int = 0

    @property
    def key(self) -> str:
        """An idempotency key: the same at every try of a call and in its check, another for every other call."""
        return f"{self.instance_id}/{self.round}/{self.step_num}/{CHECKED.get(self.sub_step, self.sub_step)}"


CURRENT: ContextVar[Current] = ContextVar("activity_worker_steps_current")


def current() -> Current:
    """Return the call that the calling method was made by. Raises LookupError outside of one."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("no method of a task is being called here") from None


_LOOK_SECONDS = 0.05
_running: set[threading.Thread] = set()


async def run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns in a thread of its own, or raise what it raises. Cancelled, it leaves it alone."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def work() -> None:
        value, raised = None, None
        try:
            value = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            raised = error
        finally:
            _running.discard(threading.current_thread())
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, raised)

    thread = threading.Thread(target=work, name="task-method", daemon=True)
    _running.add(thread)
    thread.start()
    value, error = await ended
    if error is not None:
        raise error
    return value


async def wait_for_threads() -> None:
    """Wait until every function has ended, those that were given up included."""
    while _running:  # noqa: ASYNC110 - what ends them is other threads; this is rare, and short
        await asyncio.sleep(_LOOK_SECONDS)


async def call_method(method: Method, planned: Planned) -> Outcome:
    """Call a method with arguments of its own and return how it ended; only cancellation from outside is raised.

    Whatever the method raises is its outcome, so that it ends neither its runner nor the calls of other slots.
    A sync method that exceeds its time goes on in its thread, and its result is dropped.
    """
    limit = planned.call.timeout_seconds
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(limit) as timeout:
            value = await _called(method, _copied(planned.arguments))
        return Returned(_stored(planned.call.method, value))
    except asyncio.CancelledError as error:
        if task is None or task.cancelling():
            raise
        # This task was not cancelled: the method raised the error, itself or from a task of its own.
        return Raised(record_of(error))
    except BaseException as error:
        if isinstance(error, GeneratorExit) and not _is_current(task):
            # Python closes this coroutine, at the end of its event loop.
            raise
        if isinstance(error, TimeoutError) and timeout.expired():
            error = StepError("Timeout", f"{planned.call.method} took longer than {limit:g} s")
        return Raised(record_of(error))


async def _called(method: Method, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(arguments)
    value = await run_in_thread(method, arguments)
    return await value if inspect.isawaitable(value) else value


def _is_current(task: "asyncio.Task[Any] | None") -> bool:
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no loop runs
        return False


def _copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a copy that a method may change. By way of JSON, because copy.deepcopy fails at 490 levels."""
    copied: dict[str, Any] = json.loads(json.dumps(arguments))
    return copied


def _stored(name: str, value: Any) -> Any:
    try:
        return as_stored(value)
    except ValueError as error:
        raise StepError(NOT_JSON, f"what {name} returned cannot be stored as JSON: {error}") from None

"""Making one call: sync methods in a thread, async ones awaited, both within their time."""

import asyncio
import copy
import inspect
from typing import Any

from activity_worker.steps.model.errors import StepError, record_of
from activity_worker.steps.model.instance import Outcome, Raised, Returned
from activity_worker.steps.model.methods import Method
from activity_worker.steps.model.rules import Planned
from activity_worker.steps.model.storable import as_stored
from activity_worker.steps.runner.threads import run_in_thread


async def call_method(method: Method, planned: Planned) -> Outcome:
    """Call a method with arguments of its own and return how it ended; only cancellation from outside is raised.

    A sync method that exceeds its time goes on in its thread, unheard.
    """
    limit = planned.call.timeout_seconds
    task = asyncio.current_task()
    try:
        async with asyncio.timeout(limit) as timeout:
            value = await _called(method, copy.deepcopy(planned.arguments))
        return Returned(_stored(planned.call.method, value))
    except asyncio.CancelledError as error:
        if task is None or task.cancelling():
            raise
        # This task was not cancelled: the method raised the error, itself or from a task of its own.
        return Raised(record_of(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a method raises is an outcome
        if isinstance(error, TimeoutError) and timeout.expired():
            error = StepError("Timeout", f"{planned.call.method} took longer than {limit:g} s")
        return Raised(record_of(error))


async def _called(method: Method, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(method):
        return await method(arguments)
    value = await run_in_thread(method, arguments)
    return await value if inspect.isawaitable(value) else value


def _stored(name: str, value: Any) -> Any:
    try:
        return as_stored(value)
    except ValueError as error:
        raise StepError("ReturnNotJson", f"what {name} returned cannot be stored as JSON: {error}") from None

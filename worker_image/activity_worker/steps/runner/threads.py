"""A thread for each call of a plain function: none waits for another, and none keeps the process from ending."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

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

"""A handler's call inside of the registry's middleware: async generators that yield once, where the call happens."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from activity_worker.errors import ActivityError


class MiddlewareError(ActivityError):
    """A middleware does not yield once. The message names it."""


async def call_through(
    middlewares: Sequence[tuple[str, AsyncGenerator[None, Any]]], call: Callable[[], Awaitable[Any]]
) -> Any:
    """Return what `call` returns, with the first middleware as the outermost; raises what it or a middleware raises.

    A middleware that swallows an exception changes nothing: the task has failed, and has to say why.
    """
    if not middlewares:
        return await call()
    (name, generator), *rest = middlewares
    try:
        await anext(generator)
    except StopAsyncIteration:
        raise MiddlewareError(f"the middleware {name} does not yield: the call happens at its yield") from None
    try:
        output = await call_through(rest, call)
    except BaseException as error:  # noqa: BLE001 - it is raised again below
        # The frames of the middleware say nothing about the handler.
        trace = error.__traceback__
        try:
            await generator.athrow(error)
        except StopAsyncIteration:
            pass
        except BaseException as raised:
            if raised is not error:
                raise
        else:
            raise _twice(name) from error
        raise error.with_traceback(trace)  # noqa: B904 - the same exception, with the traceback it had
    try:
        await generator.asend(output)
    except StopAsyncIteration:
        return output
    raise _twice(name)


def _twice(name: str) -> MiddlewareError:
    return MiddlewareError(f"the middleware {name} yields more than once: the call happens once")

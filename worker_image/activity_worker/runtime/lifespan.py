"""What lives as long as a slot's process: resources and hooks of a registry.

Resources are opened in their order, then the start hooks run. At the end the stop hooks run, and the resources are
closed in the opposite order. A plain generator or hook runs in the thread of the plain handlers if the registry has
such handlers, else in the event loop: a connection that belongs to the thread that made it is used by that thread.
"""

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from activity_worker.errors import ActivityError
from activity_worker.handlers.table import CompiledFunction, HandlerTable

_log = logging.getLogger(__name__)


class ResourceError(ActivityError):
    """A resource or a start hook failed, so the process can take no task. The message names it and the reason."""


class InThread(Protocol):
    """Calls a plain function where plain handlers run."""

    async def __call__(self, function: Callable[[], Any]) -> Any:
        """Return what `function` returns, or raise what it raises."""
        ...


class Lifespan:
    """Opens and closes the resources of a table. `resources` has their values by name while they are open."""

    def __init__(self, table: HandlerTable, in_thread: InThread) -> None:
        self._table = table
        self._in_thread = in_thread
        self._open: list[tuple[str, Any]] = []
        self.resources: Mapping[str, Any] | None = None

    async def open(self) -> None:
        """Open the resources and run the start hooks; raises `ResourceError` after it has closed what is open."""
        values: dict[str, Any] = {}
        try:
            for one in self._table.resources:
                values[one.name] = await self._open_one(one, values)
            for hook in self._table.start_hooks:
                with _named("the start hook", hook.name):
                    await self._call(hook, values)
        except ResourceError:
            await self._close_all()
            raise
        self.resources = values

    async def close(self) -> None:
        """Run the stop hooks and close the resources. What one of them raises is logged, and the others go on."""
        values, self.resources = self.resources, None
        if values is None:
            return
        for hook in self._table.stop_hooks:
            try:
                await self._call(hook, values)
            except Exception:  # noqa: BLE001 - the others still have to run
                _log.exception("the stop hook %s failed", hook.name)
        await self._close_all()

    async def _open_one(self, one: CompiledFunction, values: Mapping[str, Any]) -> Any:
        with _named("the resource", one.name):
            generator = one.call(values)
            try:
                value = await self._advance(generator)
            except (StopIteration, StopAsyncIteration, _Ended):
                raise ResourceError(f"the resource {one.name}: it yields nothing; let it yield the resource") from None
            self._open.append((one.name, generator))
            return value

    async def _close_all(self) -> None:
        while self._open:
            name, generator = self._open.pop()
            try:
                await self._advance(generator)
            except (StopAsyncIteration, _Ended):
                continue
            except Exception:  # noqa: BLE001 - the others still have to be closed
                _log.exception("the resource %s could not be closed", name)
            else:
                _log.error("the resource %s yields twice; what follows its second yield does not run", name)

    async def _advance(self, generator: Any) -> Any:
        if inspect.isasyncgen(generator):
            return await anext(generator)
        return await self._in_thread(lambda: _next(generator))

    async def _call(self, hook: CompiledFunction, values: Mapping[str, Any]) -> None:
        if inspect.iscoroutinefunction(hook.function):
            await hook.call(values)
        else:
            await self._in_thread(lambda: hook.call(values))


class _Ended(Exception):  # noqa: N818 - no error: a plain generator has ended (StopIteration cannot leave a coroutine)
    """A plain generator has ended."""


def _next(generator: Any) -> Any:
    try:
        return next(generator)
    except StopIteration:
        raise _Ended from None


class _named:  # noqa: N801 - reads as a statement
    """Turns what a user's function raises into a `ResourceError` that names the function."""

    def __init__(self, kind: str, name: str) -> None:
        self._words = f"{kind} {name}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ResourceError):
            raise ResourceError(f"{self._words}: {type(error).__name__}: {error}") from error

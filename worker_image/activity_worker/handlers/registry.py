"""The handlers of a worker: `Activities`, a registry of functions by the name of the activity that each one handles.

    app = Activities()

    @app.activity(name="resize")
    def resize(job: Resize) -> Resized: ...

    @app.resource
    def database() -> Iterator[Connection]:
        with connect() as connection:
            yield connection

One registry serves every source. A task names its activity: on Step Functions by the ARN, on SWF by the type's name and
version, on a broker by the task's name, on Redis by the queue. A plain function is a registry of one, which takes every
task.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from activity_worker.handlers.retry import Retry
from activity_worker.handlers.signature import Handler

_Function = TypeVar("_Function", bound=Handler)


@dataclass(frozen=True, slots=True)
class Activity:
    """A function and the activity that it handles.

    `name` is an activity's name, a task's name or a queue; `version` (SWF) "" takes every version; `arn` takes the
    tasks of that Step Functions activity, whatever its name; `default` takes the tasks that no other function takes.
    `namespace` (taskbroker) "" takes every namespace; `retry` (taskbroker) is how a failed task is tried again, None
    for any exception and as often as the task says.
    """

    name: str
    function: Handler = field(repr=False)
    version: str = ""
    arn: str = ""
    default: bool = False
    namespace: str = ""
    retry: Retry | None = None


class Activities:
    """A registry of handlers. Declare it in a module and give it to the worker as `module:app`."""

    def __init__(self) -> None:
        self._activities: list[Activity] = []
        #: Generators of resources by name, hooks and middleware, in the order in which they were added.
        self.resources: dict[str, Handler] = {}
        self.start_hooks: list[Handler] = []
        self.stop_hooks: list[Handler] = []
        self.middlewares: list[Handler] = []

    @overload
    def activity(self, function: _Function, /) -> _Function: ...
    @overload
    def activity(
        self,
        *,
        name: str = "",
        version: str = "",
        arn: str = "",
        default: bool = False,
        namespace: str = "",
        retry: Retry | None = None,
    ) -> Callable[[_Function], _Function]: ...

    def activity(
        self,
        function: Any = None,
        *,
        name: str = "",
        version: str = "",
        arn: str = "",
        default: bool = False,
        namespace: str = "",
        retry: Retry | None = None,
    ) -> Any:
        """Register a function, which stays as it is; `name` is the function's own unless given.

        Raises `ValueError` for a name with its version and namespace, or an ARN, that another function has already, and
        for a second default.
        """

        def add(decorated: Any) -> Any:
            own = name or getattr(decorated, "__name__", "")
            self._add(Activity(own, decorated, version, arn, default, namespace, retry))
            return decorated

        return add if function is None else add(function)

    @overload
    def resource(self, generator: _Function, /) -> _Function: ...
    @overload
    def resource(self, *, name: str) -> Callable[[_Function], _Function]: ...

    def resource(self, generator: Any = None, *, name: str = "") -> Any:
        """Register a sync or async generator function that yields once: a resource of each slot's process.

        It is opened before the process takes tasks, and closed after its last one. A handler, a hook, a middleware or a
        later resource gets it as the parameter of its name, or of the annotated type that it yields. Raises
        `ValueError` for any other kind of function, and for a name that is taken.
        """
        if generator is None:
            return lambda decorated: self._add_resource(decorated, name)
        return self._add_resource(generator, name)

    def on_start(self, function: _Function) -> _Function:
        """Call a function, sync or async, in each slot's process when its resources are open."""
        self.start_hooks.append(function)
        return function

    def on_stop(self, function: _Function) -> _Function:
        """Call a function, sync or async, in each slot's process before its resources are closed."""
        self.stop_hooks.append(function)
        return function

    def middleware(self, generator: _Function) -> _Function:
        """Run an async generator function around each call; the first one that is added is the outermost.

        It yields once, and the call happens there. The `yield` returns the output, or raises what the call raised. The
        generator cannot suppress that exception; it can raise another one instead. Raises `ValueError` for any other
        kind of function.
        """
        if not inspect.isasyncgenfunction(generator):
            raise ValueError(
                f"middleware: {generator!r}: expected an async generator function: async def, with a yield"
            )
        self.middlewares.append(generator)
        return generator

    def __iter__(self) -> Iterator[Activity]:
        return iter(self._activities)

    def __len__(self) -> int:
        return len(self._activities)

    def _add_resource(self, generator: _Function, name: str) -> _Function:
        if not (inspect.isgeneratorfunction(generator) or inspect.isasyncgenfunction(generator)):
            raise ValueError(f"resource: {generator!r}: expected a generator function, which yields the resource")
        name = name or generator.__name__
        if name in self.resources:
            raise ValueError(f"resource: name={name!r}: registered already")
        self.resources[name] = generator
        return generator

    def _add(self, added: Activity) -> None:
        if not added.name:
            raise ValueError("activity: the function has no name; give one: @app.activity(name=...)")
        for known in self._activities:
            if _key(known) == _key(added):
                namespace = f", namespace={added.namespace!r}" if added.namespace else ""
                raise ValueError(
                    f"activity: name={added.name!r}, version={added.version!r}{namespace}: registered already"
                )
            if added.default and known.default:
                raise ValueError(f"activity: default=True: {known.name!r} is the default already")
            if added.arn and known.arn == added.arn:
                raise ValueError(f"activity: arn={added.arn!r}: registered already for {known.name!r}")
        self._activities.append(added)


def _key(activity: Activity) -> tuple[str, str, str, str]:
    return activity.name, activity.version, activity.namespace, activity.arn

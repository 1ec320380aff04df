"""The handlers of a worker: `Activities`, a registry of functions by the name of the activity that each one handles.

    app = Activities()

    @app.activity(name="resize")
    def resize(job: Resize) -> Resized: ...

One registry serves every source. A task names its activity: on Step Functions by the ARN, on SWF by the type's name and
version, on a broker by the task's name, on Redis by the queue. A plain function is a registry of one, which takes every
task.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, overload

from activity_worker.errors import HandlerSignatureError, UnknownActivityError
from activity_worker.handlers.signature import Handler, Resources, Role, Signature, read_signature
from activity_worker.task import activity_name

_Function = TypeVar("_Function", bound=Handler)


@dataclass(frozen=True, slots=True)
class Activity:
    """A function and the activity that it handles.

    `name` is an activity's name, a task's name or a queue; `version` (SWF) "" takes every version; `arn` takes the
    tasks of that Step Functions activity, whatever its name.
    """

    name: str
    function: Handler = field(repr=False)
    version: str = ""
    arn: str = ""


class Activities:
    """A registry of handlers. Declare it in a module and give it to the worker as `module:app`."""

    def __init__(self) -> None:
        self._activities: list[Activity] = []

    @overload
    def activity(self, function: _Function, /) -> _Function: ...
    @overload
    def activity(self, *, name: str = "", version: str = "", arn: str = "") -> Callable[[_Function], _Function]: ...

    def activity(self, function: Any = None, *, name: str = "", version: str = "", arn: str = "") -> Any:
        """Register a function, which stays as it is; `name` is the function's own unless given.

        Raises `ValueError` for a name and version, or an ARN, that another function has already.
        """
        if function is None:
            return lambda decorated: self._add(decorated, name, version, arn)
        return self._add(function, name, version, arn)

    def __iter__(self) -> Iterator[Activity]:
        return iter(self._activities)

    def __len__(self) -> int:
        return len(self._activities)

    def _add(self, function: _Function, name: str, version: str, arn: str) -> _Function:
        added = Activity(name or getattr(function, "__name__", ""), function, version, arn)
        if not added.name:
            raise ValueError("activity: the function has no name; give one: @app.activity(name=...)")
        for known in self._activities:
            if (known.name, known.version) == (added.name, added.version) and (known.arn == added.arn):
                raise ValueError(f"activity: name={added.name!r}, version={version!r}: registered already")
            if arn and known.arn == arn:
                raise ValueError(f"activity: arn={arn!r}: registered already for {known.name!r}")
        self._activities.append(added)
        return function


@dataclass(frozen=True, slots=True)
class CompiledHandler:
    """A function and how it is called."""

    activity: Activity
    signature: Signature

    @property
    def function(self) -> Handler:
        """The user's function."""
        return self.activity.function

    def prepare(self, request: Any, respond: Any, context: Any, resources: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the call with its arguments; raises `InputInvalidError` for an input that does not fit."""
        positional, keywords = [], {}
        for argument in self.signature.arguments:
            match argument.role:
                case Role.REQUEST:
                    value = request
                case Role.INPUT:
                    convert = argument.convert
                    value = request.input if convert is None else convert(request.input, request.input_text)
                case Role.TOOLKIT:
                    value = respond
                case Role.CONTEXT:
                    value = context
                case Role.RESOURCE:
                    value = resources[argument.resource]
            if argument.keyword:
                keywords[argument.keyword] = value
            else:
                positional.append(value)
        function = self.activity.function
        return lambda: function(*positional, **keywords)


class HandlerTable:
    """The handlers of a registry, checked and ready to be called; finds the one of each task."""

    def __init__(self, registry: "Activities | Handler") -> None:
        """Read every signature; raises `HandlerSignatureError`."""
        self._takes_all = not isinstance(registry, Activities)
        activities = list(registry) if isinstance(registry, Activities) else [_only(registry)]
        if not activities:
            raise HandlerSignatureError("the registry has no activity: add one with @app.activity")
        known = Resources()
        self._handlers = [CompiledHandler(one, read_signature(one.function, known)) for one in activities]
        self._found: dict[tuple[str, str, str], CompiledHandler] = {}

    def __iter__(self) -> Iterator[CompiledHandler]:
        return iter(self._handlers)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the activities, as `name` or `name@version`."""
        return tuple(
            f"{one.activity.name}@{one.activity.version}" if one.activity.version else one.activity.name
            for one in self._handlers
        )

    def find(self, polled: str, name: str = "", version: str = "") -> CompiledHandler:
        """Return the handler of a task; raises `UnknownActivityError`.

        `polled` is the source's name: an activity's ARN, or a queue. `name` and `version` are the task's own, where its
        source has tasks of several activities.
        """
        key = (polled, name, version)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(*key)
        return found

    def _search(self, polled: str, name: str, version: str) -> CompiledHandler:
        if self._takes_all:
            return self._handlers[0]
        own = name or activity_name(polled)
        if not name:
            for one in self._handlers:
                if one.activity.arn == polled:
                    return one
        named = [one for one in self._handlers if one.activity.name == own and (name or not one.activity.arn)]
        for one in named:
            if one.activity.version == version:
                return one
        for one in named:
            if not one.activity.version:
                return one
        only = self._handlers[0].activity
        if not name and len(self._handlers) == 1 and not only.arn:
            # The activities of stages and copies have other names: resize-dev, resize-prod.
            return self._handlers[0]
        asked = f"{own!r}" + (f", version {version!r}" if version else "")
        raise UnknownActivityError(f"no handler for the activity {asked}; the registry has {', '.join(self.names)}")


#: What `HandlerTable.prepare` takes where a handler asks for no resource.
NO_RESOURCES: Mapping[str, Any] = MappingProxyType({})


def _only(function: Handler) -> Activity:
    return Activity(getattr(function, "__name__", "handler"), function)

"""What a registry comes to once its functions are read: how each is called, and which handler takes which task."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from activity_worker.errors import HandlerSignatureError, UnknownActivityError
from activity_worker.handlers.registry import Activities, Activity
from activity_worker.handlers.signature import (
    Argument,
    Handler,
    Resources,
    Role,
    Signature,
    read_parameters,
    read_signature,
    yielded_type,
)
from activity_worker.task import activity_name

#: What is passed where no function asks for a resource.
NO_RESOURCES: Final[Mapping[str, Any]] = MappingProxyType({})
_OF_HOOKS: Final = frozenset({Role.RESOURCE})
_OF_MIDDLEWARE: Final = frozenset({Role.RESOURCE, Role.CONTEXT, Role.REQUEST})


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A resource's generator, a hook or a middleware, and its arguments."""

    name: str
    function: Handler
    arguments: tuple[Argument, ...]

    def call(self, resources: Mapping[str, Any], context: Any = None) -> Any:
        """Call the function."""
        request = None if context is None else context.request
        positional, keywords = fill_in(self.arguments, request, None, context, resources)
        return self.function(*positional, **keywords)


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
        positional, keywords = fill_in(self.signature.arguments, request, respond, context, resources)
        function = self.activity.function
        return lambda: function(*positional, **keywords)


def fill_in(
    arguments: tuple[Argument, ...], request: Any, respond: Any, context: Any, resources: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments of one call; raises `InputInvalidError`."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument in arguments:
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
    return positional, keywords


class HandlerTable:
    """The handlers of a registry, checked and ready to be called; finds the one of each task."""

    def __init__(self, registry: "Activities | Handler") -> None:
        """Read every signature; raises `HandlerSignatureError`."""
        self._takes_all = not isinstance(registry, Activities)
        activities = list(registry) if isinstance(registry, Activities) else [_only(registry)]
        if not activities:
            raise HandlerSignatureError("the registry has no activity: add one with @app.activity")
        app = registry if isinstance(registry, Activities) else Activities()
        known: dict[str, Any] = {}
        #: Resources in the order in which they are opened: each may ask for those before it.
        self.resources: list[CompiledFunction] = []
        for name, generator in app.resources.items():
            arguments = read_parameters(generator, Resources(known), _OF_HOOKS, "the resource")
            self.resources.append(CompiledFunction(name, generator, arguments))
            known = {**known, name: yielded_type(generator)}
        self._known = Resources(known)
        self.start_hooks = self._read(app.start_hooks, _OF_HOOKS, "the start hook")
        self.stop_hooks = self._read(app.stop_hooks, _OF_HOOKS, "the stop hook")
        self.middlewares = self._read(app.middlewares, _OF_MIDDLEWARE, "the middleware")
        self._handlers = [CompiledHandler(one, read_signature(one.function, self._known)) for one in activities]
        self._found: dict[tuple[str, str, str, str], CompiledHandler] = {}

    def _read(self, functions: list[Handler], roles: frozenset[Role], what: str) -> list[CompiledFunction]:
        return [
            CompiledFunction(
                getattr(function, "__name__", what), function, read_parameters(function, self._known, roles, what)
            )
            for function in functions
        ]

    def __iter__(self) -> Iterator[CompiledHandler]:
        return iter(self._handlers)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the activities, as `name` or `name@version`."""
        return tuple(
            f"{one.activity.name}@{one.activity.version}" if one.activity.version else one.activity.name
            for one in self._handlers
        )

    @property
    def named(self) -> tuple[Activity, ...]:
        """The activities of a registry; none for a plain function, which takes every task."""
        return () if self._takes_all else tuple(one.activity for one in self._handlers)

    def find(self, polled: str, name: str = "", version: str = "", namespace: str = "") -> CompiledHandler:
        """Return the handler of a task; raises `UnknownActivityError`.

        `polled` is the source's name: an activity's ARN, or a queue. `name`, `version` and `namespace` are the task's
        own, where its source has tasks of several activities.
        """
        key = (polled, name, version, namespace)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(*key)
        return found

    def _search(self, polled: str, name: str, version: str, namespace: str) -> CompiledHandler:
        if self._takes_all:
            return self._handlers[0]
        own = name or activity_name(polled)
        if not name:
            for one in self._handlers:
                if one.activity.arn == polled:
                    return one
        named = [
            one
            for wanted in dict.fromkeys((namespace, ""))
            for one in self._handlers
            if one.activity.name == own and one.activity.namespace == wanted and (name or not one.activity.arn)
        ]
        for one in named:
            if one.activity.version == version:
                return one
        for one in named:
            if not one.activity.version:
                return one
        fallback = self._fallback(name)
        if fallback is not None:
            return fallback
        more = (("version", version), ("namespace", namespace))
        asked = f"{own!r}" + "".join(f", {what} {value!r}" for what, value in more if value)
        raise UnknownActivityError(f"no handler for the activity {asked}; the registry has {', '.join(self.names)}")

    def _fallback(self, name: str) -> CompiledHandler | None:
        """Return the handler of a task that no activity of the registry names."""
        for one in self._handlers:
            if one.activity.default:
                return one
        if not name and len(self._handlers) == 1 and not self._handlers[0].activity.arn:
            # The activities of stages and copies have other names: resize-dev, resize-prod.
            return self._handlers[0]
        return None


def _only(function: Handler) -> Activity:
    return Activity(getattr(function, "__name__", "handler"), function)

"""The form of a handler: which arguments it takes, found once, from the annotations and names of its parameters.

An annotation decides. A parameter without one is known by its name; a first one of another name is the input. The
classes that a parameter may ask for by annotation carry `__activity_role__`, so that this module imports none of them.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NoReturn

from activity_worker.errors import HandlerSignatureError
from activity_worker.handlers.inputs import InputConverter, input_converter

FORMS: Final = """a handler has one of these forms, sync or async:
  def handle(job: Job) -> Result          Job, Result: dataclass, TypedDict, pydantic model or built-in type
  def handle(job: Job, ctx: Context)      with activity_worker.Context: heartbeats, cancellation, ids
  def handle(event, context)              the input as it is
  def handle(request: TaskRequest)        request.input, request.lease_id
  def handle(request, respond)            answers by respond.success(output) or respond.failure(error, cause)"""


#: Anything that can be called in one of the forms.
Handler = Callable[..., Any]


class Role(StrEnum):
    """What a parameter of a handler gets."""

    INPUT = "input"
    REQUEST = "request"
    TOOLKIT = "toolkit"
    CONTEXT = "context"
    RESOURCE = "resource"


_NAMES: Final[Mapping[str, Role]] = types.MappingProxyType(
    {
        "request": Role.REQUEST,
        "req": Role.REQUEST,
        "respond": Role.TOOLKIT,
        "response": Role.TOOLKIT,
        "res": Role.TOOLKIT,
        "toolkit": Role.TOOLKIT,
        "h": Role.TOOLKIT,
        "context": Role.CONTEXT,
        "ctx": Role.CONTEXT,
    }
)
_CLASS_NAMES: Final[Mapping[str, Role]] = types.MappingProxyType(
    {
        "TaskRequest": Role.REQUEST,
        "TaskResponseToolkit": Role.TOOLKIT,
        "BlockingToolkit": Role.TOOLKIT,
        "Context": Role.CONTEXT,
    }
)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call. `resource` names a resource, `convert` reads an input (None: as it is)."""

    role: Role
    keyword: str = ""
    resource: str = ""
    convert: InputConverter | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """How a handler is called: its positional arguments, then its keyword ones."""

    arguments: tuple[Argument, ...] = ()
    #: Whether the handler answers through the toolkit, instead of by returning its output.
    responds: bool = False
    is_async: bool = False


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources that a function may ask for: the type that each yields by its name, `Any` where it is not known."""

    types: Mapping[str, Any] = field(default_factory=dict)

    def find(self, name: str, annotation: Any) -> str | None:
        """Return the name of the resource that a parameter asks for, or None: by its name, else by its annotation."""
        if name in self.types and (annotation is Any or self.types[name] in (Any, annotation)):
            return name if _role_of_class(annotation) is None else None
        if annotation is Any:
            return None
        return next((known for known, kind in self.types.items() if kind == annotation), None)


def read_signature(handler: Any, resources: Resources | None = None, *, name: str = "") -> Signature:
    """Return how to call `handler`; raises `HandlerSignatureError`, whose message shows the forms."""
    where = name or getattr(handler, "__qualname__", repr(handler))
    if not callable(handler):
        _refuse(where, "expected a function")
    seen = _undecorated(handler, where)
    if inspect.isgeneratorfunction(seen) or inspect.isasyncgenfunction(seen):
        _refuse(where, "expected a function or a coroutine function, found a generator")
    try:
        parameters = list(inspect.signature(seen).parameters.values())
    except (ValueError, TypeError):
        _refuse(where, "its parameters cannot be read; wrap it in a function")
    reader = _Reader(where, _annotations(seen, where), resources or Resources())
    reader.refusal = FORMS
    arguments = tuple(argument for one in parameters if (argument := reader.argument(one)) is not None)
    if not arguments:
        _refuse(where, "it takes no parameter")
    roles = [argument.role for argument in arguments]
    if roles.count(Role.INPUT) + roles.count(Role.REQUEST) > 1:
        _refuse(where, "it takes the input twice; one parameter is the input, the others need an annotation")
    return Signature(arguments, Role.TOOLKIT in roles, is_async(handler))


def read_parameters(function: Any, resources: Resources, roles: frozenset[Role], what: str) -> tuple[Argument, ...]:
    """Return the arguments of a resource, a hook or a middleware, which may have `roles`.

    Raises `HandlerSignatureError`. `what` says which function it is, for messages.
    """
    where = f"{what} {getattr(function, '__qualname__', repr(function))}"
    reader = _Reader(where, _annotations(function, where), resources, roles)
    reader.refusal = f"its parameters can be: {', '.join(sorted(roles))}"
    found = (reader.argument(one) for one in inspect.signature(function).parameters.values())
    return tuple(argument for argument in found if argument is not None)


def yielded_type(function: Any) -> Any:
    """Return T of a generator that is annotated `-> Iterator[T]`, or of another kind of generator; else `Any`."""
    try:
        returned = _annotations(function, "").get("return", Any)
    except HandlerSignatureError:
        return Any
    args = typing.get_args(returned)
    return args[0] if args and not isinstance(args[0], typing.TypeVar) else Any


def is_async(handler: Any) -> bool:
    """Tell whether calling the handler gives a coroutine."""
    if isinstance(handler, functools.partial):
        return is_async(handler.func)
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class _Reader:
    """Reads the parameters of one handler in their order."""

    def __init__(
        self,
        where: str,
        annotations: Mapping[str, Any],
        resources: Resources,
        roles: frozenset[Role] = frozenset(Role),
    ) -> None:
        self.refusal = ""
        self._roles = roles
        self._where = where
        self._annotations = annotations
        self._resources = resources
        self._has_input = False
        self._skips = False

    def argument(self, parameter: inspect.Parameter) -> Argument | None:
        """Return what a parameter gets, or None for one that keeps its default."""
        if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            return None
        annotation = self._annotations.get(parameter.name, Any)
        optional = parameter.default is not inspect.Parameter.empty
        # After a parameter that keeps its default, the next ones are passed by name.
        keyword = parameter.name if self._skips or parameter.kind not in _POSITIONAL else ""
        resource = self._resources.find(parameter.name, annotation)
        if resource is not None:
            return Argument(Role.RESOURCE, keyword, resource)
        role = self._role(parameter, annotation, optional)
        if role is not None and role not in self._roles and not optional:
            self._refuse_parameter(parameter, annotation)
        if role is None or role not in self._roles:
            self._skips = True
            return None
        self._has_input = self._has_input or role in {Role.INPUT, Role.REQUEST}
        convert = None
        if role is Role.INPUT and annotation is not Any and annotation is not object:
            convert = input_converter(annotation, f"{self._where}, parameter {parameter.name!r}")
        return Argument(role, keyword, convert=convert)

    def _role(self, parameter: inspect.Parameter, annotation: Any, optional: bool) -> Role | None:
        annotated = _role_of_class(annotation)
        if annotated is not None:
            return annotated
        name = parameter.name.strip("_").lower()
        first = not self._has_input and parameter.kind in _POSITIONAL and Role.INPUT in self._roles
        if annotation is not Any:
            if first:
                return Role.INPUT
        elif name in _NAMES and (not first or _NAMES[name] is Role.REQUEST):
            return _NAMES[name]
        elif first:
            return Role.INPUT
        elif not name:
            return Role.CONTEXT
        if not optional:
            self._refuse_parameter(parameter, annotation)
        return None

    def _refuse_parameter(self, parameter: inspect.Parameter, annotation: Any) -> NoReturn:
        has = f"annotated with {_text(annotation)}" if annotation is not Any else "without annotation"
        raise HandlerSignatureError(
            f"{self._where}: the parameter {parameter.name!r}, {has}, is neither a resource nor of a known form;"
            f" {self.refusal}"
        )


def _role_of_class(annotation: Any) -> Role | None:
    if isinstance(annotation, _Unresolved):
        return _CLASS_NAMES.get(annotation.text.rpartition(".")[2])
    members = typing.get_args(annotation) if typing.get_origin(annotation) in {typing.Union, types.UnionType} else ()
    for one in (annotation, *members):
        role = getattr(one, "__activity_role__", None) if isinstance(one, type) else None
        if role is not None:
            return Role(role)
    return None


@dataclass(frozen=True, slots=True)
class _Unresolved:
    """An annotation that cannot be evaluated, such as one of a name that only the type checker imports."""

    text: str


def _annotations(function: Any, where: str) -> Mapping[str, Any]:
    target = function.func if isinstance(function, functools.partial) else function
    if not (inspect.isroutine(target) or inspect.isclass(target)):
        target = type(target).__call__
    target = inspect.unwrap(target)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - each annotation is tried by itself below
        return {
            name: _evaluated(value, target, name, where)
            for name, value in getattr(target, "__annotations__", {}).items()
            if name != "return"
        }


def _evaluated(value: Any, function: Any, name: str, where: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        scope = getattr(function, "__globals__", {})
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={name: value}), scope, include_extras=True)[
            name
        ]
    except Exception as error:
        unresolved = _Unresolved(value)
        if _role_of_class(unresolved) is None:
            raise HandlerSignatureError(
                f"{where}: the annotation {value!r} of {name!r} cannot be read: {error}; import it outside of"
                " TYPE_CHECKING, at the top of the module"
            ) from error
        return unresolved


def _undecorated(handler: Any, where: str) -> Any:
    """Return the function whose parameters count.

    A decorator without `functools.wraps` shows `(*args, **kwargs)`. If the wrapper holds exactly one other function,
    that one is what it decorates.
    """
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (ValueError, TypeError):
        return handler
    if any(parameter.kind in _POSITIONAL for parameter in parameters):
        return handler
    if not any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return handler
    held = list({id(one): one for one in _held_by(handler) if callable(one) and not inspect.isclass(one)}.values())
    if len(held) != 1:
        _refuse(
            where,
            "its parameters are *args, so its form cannot be seen: put @functools.wraps(function) on the wrapper of its"
            " decorator",
        )
    return _undecorated(held[0], where)


def _held_by(handler: Any) -> list[Any]:
    if inspect.ismethod(handler):
        handler = handler.__func__
    closure = getattr(handler, "__closure__", None) or ()
    cells = [cell.cell_contents for cell in closure if _filled(cell)]
    return cells if inspect.isfunction(handler) else [*cells, *getattr(handler, "__dict__", {}).values()]


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _text(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _refuse(where: str, why: str) -> NoReturn:
    raise HandlerSignatureError(f"{where}: {why}; {FORMS}")

"""The form of a handler: annotations decide, then names; what cannot be called is refused with the forms."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from activity_worker import Context, TaskRequest, TaskResponseToolkit
from activity_worker.activity import BlockingToolkit
from activity_worker.errors import HandlerSignatureError
from activity_worker.handlers.signature import Role, read_signature

if TYPE_CHECKING:
    from activity_worker.nowhere import Context as Unseen  # type: ignore[import-not-found]


@dataclass
class Job:
    """An input."""

    width: int


def plain(*names: str) -> Callable[..., Any]:
    """Return a function with parameters of these names, without annotations."""
    found: dict[str, Any] = {}
    exec(f"def handle({', '.join(names)}): ...", found)
    return found["handle"]  # type: ignore[no-any-return]


def roles(handler: Any) -> list[str]:
    return [argument.role.value for argument in read_signature(handler).arguments]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["request"], ["request"]),
        (["req", "h"], ["request", "toolkit"]),
        (["request", "respond"], ["request", "toolkit"]),
        (["_request", "_respond"], ["request", "toolkit"]),
        (["event", "context"], ["input", "context"]),
        (["event", "_"], ["input", "context"]),
        (["job", "ctx"], ["input", "context"]),
        (["job"], ["input"]),
        (["_"], ["input"]),
        (["job", "respond"], ["input", "toolkit"]),
        (["job", "scale=2"], ["input"]),
        (["job=None"], ["input"]),
    ],
)
def test_names_tell_the_form_without_annotations(names: list[str], expected: list[str]) -> None:
    assert roles(plain(*names)) == expected


def typed(job: Job) -> None: ...
def typed_with_context(job: Job, anything: Context) -> None: ...
def context_first(anything: Context, job: Job) -> None: ...
def only_context(anything: Context) -> None: ...
def request_typed(anything: TaskRequest) -> None: ...
def toolkit(anything: TaskRequest, other: TaskResponseToolkit) -> None: ...
def blocking(job: Job, other: BlockingToolkit) -> None: ...
def optional_context(job: Job, other: Context | None = None) -> None: ...
def named_request_but_typed(request: dict[str, Any]) -> None: ...
def named_request_of_any_type(request: Any) -> None: ...
def context_by_keyword(job: Job, *, ctx: Context) -> None: ...
def strings(job: "Job", ctx: "Context") -> None: ...
def type_checker_only(job: Job, ctx: "Unseen.Context") -> None: ...


class Handlers:
    """Handlers of an object."""

    def method(self, job: Job, ctx: Context) -> None: ...

    async def __call__(self, job: Job) -> None: ...


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (typed, ["input"]),
        (typed_with_context, ["input", "context"]),
        (context_first, ["context", "input"]),
        (only_context, ["context"]),
        (request_typed, ["request"]),
        (toolkit, ["request", "toolkit"]),
        (blocking, ["input", "toolkit"]),
        (optional_context, ["input", "context"]),
        (named_request_but_typed, ["input"]),
        (named_request_of_any_type, ["request"]),
        (context_by_keyword, ["input", "context"]),
        (strings, ["input", "context"]),
        (type_checker_only, ["input", "context"]),
        (Handlers().method, ["input", "context"]),
        (Handlers(), ["input"]),
        (functools.partial(toolkit), ["request", "toolkit"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_annotations_tell_the_form(handler: Any, expected: list[str]) -> None:
    assert roles(handler) == expected


def test_typed_input_is_converted_and_untyped_input_is_not() -> None:
    convert = read_signature(typed).arguments[0].convert

    assert convert is not None
    assert convert({"width": 3}, None) == Job(3)
    assert read_signature(plain("event", "context")).arguments[0].convert is None


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (lambda: 1, "it takes no parameter"),
        (plain("a", "b"), "the parameter 'b', without annotation, is neither a resource nor of a known form"),
        (plain("a", "*", "key"), "the parameter 'key', without annotation, is neither"),
        (lambda a, ctx, c: 1, "the parameter 'c', without annotation, is neither"),
        (7, "expected a function"),
        (list.append, "the parameter 'object'"),
    ],
    ids=["none", "two", "keyword", "three", "no function", "builtin"],
)
def test_handler_without_a_form_is_refused_with_the_forms(handler: Any, why: str) -> None:
    with pytest.raises(HandlerSignatureError) as caught:
        read_signature(handler)

    assert why in str(caught.value)
    assert "def handle(job: Job, ctx: Context)" in str(caught.value)


def test_two_typed_parameters_are_refused() -> None:
    def handle(job: Job, other: Job) -> None: ...

    with pytest.raises(HandlerSignatureError, match="the parameter 'other', annotated with Job, is neither a resource"):
        read_signature(handle)


def test_request_and_input_together_are_refused() -> None:
    def handle(request: TaskRequest, *, job: TaskRequest) -> None: ...

    with pytest.raises(HandlerSignatureError, match="it takes the input twice"):
        read_signature(handle)


@pytest.mark.parametrize("generator", ["def handle(job): yield 1", "async def handle(job): yield 1"])
def test_generator_is_no_handler(generator: str) -> None:
    found: dict[str, Any] = {}
    exec(generator, found)

    with pytest.raises(HandlerSignatureError, match="found a generator"):
        read_signature(found["handle"])


def test_annotation_that_cannot_be_read_says_what_helps() -> None:
    def handle(job: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        HandlerSignatureError, match=r"the annotation 'Nowhere' of 'job' cannot be read: .*TYPE_CHECKING"
    ):
        read_signature(handle)


def test_return_annotation_that_cannot_be_read_does_no_harm() -> None:
    def handle(job: Job) -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821

    assert roles(handle) == ["input"]


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator as people write it, without `functools.wraps`."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.wraps(function)(timed(function))


class Timed:
    """A decorator that is a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@pytest.mark.parametrize("decorator", [timed, Timed, lambda function: timed(Timed(function)), wrapped])
def test_decorator_without_wraps_keeps_the_form(decorator: Callable[[Any], Any]) -> None:
    assert roles(decorator(typed_with_context)) == ["input", "context"]
    assert read_signature(decorator(toolkit)).responds is True


def test_decorator_that_holds_two_functions_has_to_say_which() -> None:
    def decorate(function: Callable[..., Any], after: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            after(function(*args))

        return wrapper

    with pytest.raises(HandlerSignatureError, match=r"put @functools.wraps\(function\) on the wrapper"):
        read_signature(decorate(typed, timed))


def test_signature_tells_how_the_handler_answers_and_runs() -> None:
    async def asynchronous(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await asyncio.sleep(0)

    found = read_signature(asynchronous)

    assert (found.responds, found.is_async) == (True, True)
    assert (read_signature(typed).responds, read_signature(typed).is_async) == (False, False)
    assert [argument.role for argument in found.arguments] == [Role.REQUEST, Role.TOOLKIT]

"""The registry of a worker's handlers: which one takes which task."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from activity_worker import Activities, TaskRequest
from activity_worker.errors import HandlerSignatureError, UnknownActivityError
from activity_worker.handlers.table import NO_RESOURCES, HandlerTable

ARN = "arn:aws:states:us-east-1:123456789012:activity:"
app = Activities()


@app.activity
def resize(job: dict[str, Any]) -> str:
    return "resize"


@app.activity(name="rotate", version="1")
def rotate_once(job: dict[str, Any]) -> str:
    return "rotate 1"


@app.activity(name="rotate", version="2")
def rotate_twice(job: dict[str, Any]) -> str:
    return "rotate 2"


@app.activity(name="crop", arn=f"{ARN}crop-prod")
async def crop(request: TaskRequest) -> str:
    return "crop"


def named(found: Any) -> str:
    return str(found.function.__name__)


@pytest.mark.parametrize(
    ("polled", "name", "version", "expected"),
    [
        (f"{ARN}resize", "", "", "resize"),
        (f"{ARN}crop-prod", "", "", "crop"),
        ("queue:resize:waiting", "", "", "resize"),
        ("any-list", "resize", "", "resize"),
        ("any-list", "resize", "7", "resize"),
        ("any-list", "rotate", "1", "rotate_once"),
        ("any-list", "rotate", "2", "rotate_twice"),
        ("any-list", "crop", "1", "crop"),
    ],
)
def test_task_finds_its_handler(polled: str, name: str, version: str, expected: str) -> None:
    table = HandlerTable(app)

    assert named(table.find(polled, name, version)) == expected
    assert table.find(polled, name, version) is table.find(polled, name, version)


@pytest.mark.parametrize(
    ("polled", "name", "version", "asked"),
    [
        (f"{ARN}nowhere", "", "", "'nowhere'"),
        (f"{ARN}crop", "", "", "'crop'"),
        ("any-list", "rotate", "3", "'rotate', version '3'"),
        ("any-list", "nowhere", "", "'nowhere'"),
    ],
)
def test_task_without_a_handler_is_told_what_there_is(polled: str, name: str, version: str, asked: str) -> None:
    with pytest.raises(UnknownActivityError) as caught:
        HandlerTable(app).find(polled, name, version)

    assert f"no handler for the activity {asked}; the registry has resize, rotate@1, rotate@2, crop" in str(
        caught.value
    )


def test_only_handler_serves_the_activity_of_any_stage() -> None:
    one = Activities()
    one.activity(name="resize")(resize)

    assert named(HandlerTable(one).find(f"{ARN}resize-prod")) == "resize"
    with pytest.raises(UnknownActivityError):
        HandlerTable(one).find("any-list", "rotate", "1")


def test_plain_function_takes_every_task() -> None:
    table = HandlerTable(resize)

    assert named(table.find(f"{ARN}any")) == named(table.find("any-list", "rotate", "1")) == "resize"


def test_decorated_function_stays_as_it_is() -> None:
    assert resize({}) == "resize"


def test_same_activity_twice_is_refused() -> None:
    double = Activities()
    double.activity(name="resize", arn=f"{ARN}a")(resize)

    with pytest.raises(ValueError, match="name='resize', version='': registered already"):
        double.activity(name="resize", arn=f"{ARN}a")(crop)
    with pytest.raises(ValueError, match="registered already for 'resize'"):
        double.activity(name="other", arn=f"{ARN}a")(crop)
    with pytest.raises(ValueError, match="the function has no name"):
        double.activity(functools.partial(resize))


def test_empty_registry_is_refused() -> None:
    with pytest.raises(HandlerSignatureError, match=r"the registry has no activity: add one with @app.activity"):
        HandlerTable(Activities())


def test_every_handler_is_checked_at_once() -> None:
    broken = Activities()
    broken.activity(resize)

    @broken.activity
    def two(a, b):  # type: ignore[no-untyped-def]
        ...

    with pytest.raises(HandlerSignatureError, match="two: the parameter 'b'"):
        HandlerTable(broken)


def test_call_has_its_arguments_in_their_places() -> None:
    def handle(job: int, scale: int = 2, *, ctx: Any = None, respond: Any) -> Any:
        return job, scale, ctx, respond

    request: Any = SimpleNamespace(input=3, input_text="3")
    [handler] = HandlerTable(handle)

    assert handler.prepare(request, "toolkit", "context", NO_RESOURCES)() == (3, 2, "context", "toolkit")

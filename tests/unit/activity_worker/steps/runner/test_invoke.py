"""One call: what a method may do, and the outcome."""

import asyncio
import threading
from typing import Any

import pytest

from activity_worker.steps.model.definition import Call
from activity_worker.steps.model.errors import StepError
from activity_worker.steps.model.instance import Raised, Returned
from activity_worker.steps.model.methods import Method
from activity_worker.steps.model.rules import Planned
from activity_worker.steps.runner.invoke import call_method, current


def planned(**arguments: Any) -> Planned:
    return Planned(0, "method", Call("m"), arguments)


async def outcome(method: Method) -> str:
    made = await call_method(method, planned())
    return made.error.code if isinstance(made, Raised) else repr(made)


async def test_method_that_exits_or_cancels_itself_is_a_failed_call() -> None:
    async def cancels_itself(_: dict[str, Any]) -> None:
        raise asyncio.CancelledError

    async def exits(_: dict[str, Any]) -> None:
        raise SystemExit(3)

    def exits_in_its_thread(_: dict[str, Any]) -> None:
        raise SystemExit(3)

    assert await outcome(cancels_itself) == "CancelledError"
    assert await outcome(exits) == "SystemExit"
    assert await outcome(exits_in_its_thread) == "SystemExit"


async def test_cancelled_call_raises_cancelled_error() -> None:
    inside = asyncio.Event()

    async def waits(_: dict[str, Any]) -> None:
        inside.set()
        await asyncio.Event().wait()

    calling = asyncio.create_task(call_method(waits, planned()))
    await inside.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


@pytest.mark.parametrize("value", [float("nan"), {"x": "a\x00b"}, ["\ud800"], {1, 2}])
async def test_return_value_that_cannot_be_stored_is_an_error(value: object) -> None:
    assert await outcome(lambda _: value) == "ReturnNotJson"


class UnreadableError(Exception):
    """An exception of which nothing can be read."""

    @property
    def code(self) -> str:
        """Fail."""
        raise RuntimeError("no code")

    @property
    def data(self) -> str:
        """Fail."""
        raise RuntimeError("no data")


async def test_error_that_cannot_be_read_is_recorded_under_its_class() -> None:
    async def raises(_: dict[str, Any]) -> None:
        raise UnreadableError

    assert await outcome(raises) == "UnreadableError"


async def test_code_of_an_error_is_kept_up_to_256_characters() -> None:
    def raises(_: dict[str, Any]) -> None:
        raise StepError("c" * 1000, "long")

    assert await outcome(raises) == "c" * 256


async def test_escaped_backslash_can_be_returned() -> None:
    assert await call_method(lambda _: r"\u0000", planned()) == Returned(r"\u0000")


async def test_error_is_stored_without_invalid_characters() -> None:
    def raises(_: dict[str, Any]) -> None:
        error = ValueError("a\x00b\ud800")
        error.data = {"x": "\x00"}  # type: ignore[attr-defined]
        raise error

    made = await call_method(raises, planned())
    assert isinstance(made, Raised)
    assert (made.error.message, made.error.data) == ("a�b�", None)
    assert "\x00" not in made.error.stack


def sells(_: dict[str, Any]) -> None:
    raise ValueError("sold out")


async def sells_later(_: dict[str, Any]) -> None:
    raise ValueError("sold out")


@pytest.mark.parametrize("method", [sells, sells_later])
async def test_stack_begins_in_the_method(method: Method) -> None:
    made = await call_method(method, planned())

    assert isinstance(made, Raised)
    first, place, *_, last = made.error.stack.splitlines()
    assert first == "Traceback (most recent call last):"
    assert "test_invoke.py" in place
    assert place.endswith(f"in {method.__name__}")
    assert last == "ValueError: sold out"


async def test_stack_of_the_runtimes_own_error_has_its_message_alone() -> None:
    made = await call_method(lambda _: {1, 2}, planned())

    assert isinstance(made, Raised)
    (line,) = made.error.stack.splitlines()
    assert line.startswith("activity_worker.steps.model.errors.StepError: what m returned cannot be stored as JSON")


async def test_40_synchronous_methods_run_in_parallel() -> None:
    together = threading.Barrier(40, timeout=20)
    made = await asyncio.gather(*(call_method(lambda _: together.wait() >= 0, planned()) for _ in range(40)))

    assert made == [Returned(True)] * 40


async def test_current_call_outside_a_method_is_an_error() -> None:
    with pytest.raises(LookupError, match="no method of a task is being called here"):
        current()

"""What is said about an exception: a message, and a traceback that begins in the user's code."""

import asyncio

import pytest

from activity_worker.errors import OutputTooLargeError, TaskFailed, WorkerStoppedError
from activity_worker.runtime.encoding import MAX_CAUSE_BYTES
from activity_worker.runtime.failure import Failure, failure_of
from activity_worker.task import TaskRequest

from .recorded_worker import RecordedWorker


def inner() -> None:
    raise KeyError("missing part")


def raises_from(request: TaskRequest) -> None:
    try:
        inner()
    except KeyError as error:
        raise ValueError("no such picture") from error


def raises_meanwhile(request: TaskRequest) -> None:
    try:
        inner()
    except KeyError:
        raise ValueError("no such picture")  # noqa: B904 - the point: the first exception is its context


def raises_group(request: TaskRequest) -> None:
    raise ExceptionGroup("two parts", [KeyError("a"), ValueError("b")])


async def test_cause_of_the_runtimes_own_error_has_no_traceback() -> None:
    """A worker that stops cancels its own wait for the handler: the frames are those of asyncio and ours."""
    waiting = asyncio.ensure_future(asyncio.wait([asyncio.get_running_loop().create_future()]))
    await asyncio.sleep(0)
    waiting.cancel()
    error = WorkerStoppedError("the worker stopped before the handler had finished")
    try:
        await waiting
    except asyncio.CancelledError as cancelled:
        # Without this function's own frame, which stands for a user's here.
        error.__cause__ = cancelled.with_traceback(cancelled.__traceback__ and cancelled.__traceback__.tb_next)

    assert failure_of(error).cause == "the worker stopped before the handler had finished"


async def cause(handler: object) -> str:
    recorded = RecordedWorker(handler)  # type: ignore[arg-type]  # of each form
    return recorded.source.conclusions[await recorded.one()].cause


@pytest.mark.parametrize(
    ("handler", "link"),
    [(raises_from, "was the direct cause of"), (raises_meanwhile, "During handling of the above exception")],
)
async def test_cause_has_the_exception_it_was_raised_from(handler: object, link: str) -> None:
    text = await cause(handler)
    first, second = text.split("Traceback (most recent call last):\n")[1:]

    assert text.startswith("no such picture\n\nTraceback")
    assert "test_failure.py" in first.splitlines()[0]
    assert "in inner" in first
    assert "KeyError: 'missing part'" in first
    assert link in first
    assert "test_failure.py" in second.splitlines()[0]
    assert "activity_worker/runtime/" not in text.replace("tests/unit/activity_worker", "tests")


async def test_cause_of_a_group_has_its_members() -> None:
    text = await cause(raises_group)

    assert text.startswith("two parts (2 sub-exceptions)")
    assert "KeyError: 'a'" in text
    assert "ValueError: b" in text


def test_error_of_the_runtime_has_no_traceback() -> None:
    assert failure_of(OutputTooLargeError("too large")) == Failure("ActivityPool.OutputTooLarge", "too large")
    assert failure_of(TaskFailed("Shop.SoldOut", "none left")) == Failure("Shop.SoldOut", "none left")


def test_exception_that_cannot_say_what_it_is_has_its_name() -> None:
    class Mute(Exception):  # noqa: N818 - a name of a user's
        """An exception with a broken text."""

        def __str__(self) -> str:
            raise RuntimeError

    assert failure_of(Mute()).message == "Mute"


def test_long_causes_are_cut_to_what_the_service_takes() -> None:
    try:
        raise ValueError("ä" * 100_000)
    except ValueError as error:
        text = failure_of(error).cause

    assert len(text.encode()) <= MAX_CAUSE_BYTES
    assert "test_failure.py" in text

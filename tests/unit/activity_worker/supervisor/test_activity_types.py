"""A worker registers the types of its registry when it starts, if it is asked to."""

import asyncio
from typing import Any

import pytest

from activity_worker.config.settings import WorkerSettings, read_settings
from activity_worker.sources.memory import MemorySource
from activity_worker.sources.protocol import Source
from activity_worker.sources.swf import SwfSource
from activity_worker.subprocess.process import HandlerUnusableError
from activity_worker.supervisor.activity_types import (
    REGISTER_FOR_SECONDS,
    default_timeouts,
    register_activity_types,
)
from activity_worker.wire.errors import WireError
from activity_worker.wire.swf import ActivityDefaults, SwfClient

TYPES = [("refund", ""), ("charge", "2"), ("charge", "1")]
THROTTLED = WireError("ThrottlingException", "Rate exceeded", 400)
DENIED = WireError("OperationNotPermittedFault", "not authorized", 400)
EXISTS = WireError("TypeAlreadyExistsFault", "charge", 400)


class Caller:
    """Answers each call with the next of these errors, and then with success."""

    def __init__(self, *errors: WireError | None) -> None:
        self._errors = list(errors)
        self.registered: list[tuple[str, str]] = []
        self.parameters: list[dict[str, Any]] = []

    async def call(self, operation: str, parameters: dict[str, Any], **_: Any) -> dict[str, Any]:
        assert operation == "RegisterActivityType"
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        self.registered.append((parameters["name"], parameters["version"]))
        self.parameters.append(parameters)
        return {}


def settings(**flags: str) -> WorkerSettings:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return read_settings({"swf-domain": "shop", "swf-task-list": "charges", "handler": "app:app"} | named, {})


def source_of(caller: Caller) -> Source:
    return SwfSource(SwfClient(caller), "shop", "charges")  # type: ignore[arg-type]  # it is called like one


REGISTERS = {"swf_register_activity_types": "true"}


async def test_types_with_a_version_are_registered_in_order() -> None:
    caller = Caller()

    await register_activity_types(settings(**REGISTERS), source_of(caller), TYPES)

    assert caller.registered == [("charge", "1"), ("charge", "2")]
    assert caller.parameters[0]["defaultTaskList"] == {"name": "charges"}


async def test_nothing_is_registered_unless_it_is_asked_for() -> None:
    caller = Caller()

    await register_activity_types(settings(), source_of(caller), TYPES)
    await register_activity_types(settings(**REGISTERS), MemorySource(), TYPES)

    assert caller.registered == []


async def test_types_that_exist_stay_as_they_are() -> None:
    caller = Caller(EXISTS)

    await register_activity_types(settings(**REGISTERS), source_of(caller), TYPES)

    assert caller.registered == [("charge", "2")]


async def test_throttled_registration_is_tried_again() -> None:
    caller = Caller(None, THROTTLED, THROTTLED)

    await register_activity_types(settings(**REGISTERS), source_of(caller), TYPES)

    assert set(caller.registered) == {("charge", "1"), ("charge", "2")}


async def test_denied_registration_ends_the_worker_after_a_minute() -> None:
    began = asyncio.get_running_loop().time()

    with pytest.raises(HandlerUnusableError, match="cannot be registered: OperationNotPermittedFault"):
        await register_activity_types(settings(**REGISTERS), source_of(Caller(*[DENIED] * 1000)), TYPES)

    assert asyncio.get_running_loop().time() - began <= REGISTER_FOR_SECONDS


async def test_registry_without_a_version_is_refused_with_the_fix() -> None:
    with pytest.raises(HandlerUnusableError, match=r'write @app.activity\(name="...", version="..."\)'):
        await register_activity_types(settings(**REGISTERS), source_of(Caller()), [("refund", "")])


def test_default_time_outs_follow_the_workers_settings() -> None:
    with_deadline = settings(task_deadline_seconds="90.4", task_heartbeat_seconds="5")

    assert default_timeouts(with_deadline, "charges") == ActivityDefaults(
        schedule_to_start_seconds=None,
        start_to_close_seconds=90,
        schedule_to_close_seconds=None,
        heartbeat_seconds=15,
        task_list="charges",
    )
    assert default_timeouts(settings(), "charges").start_to_close_seconds is None

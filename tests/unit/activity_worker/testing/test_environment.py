"""Handlers tested without a worker, translation of wire errors, and the cost of imports."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from activity_worker import activity
from activity_worker.activity import TaskRequest, TaskResponseToolkit
from activity_worker.errors import (
    DeniedError,
    InvalidTokenError,
    LeaseLostError,
    MissingError,
    SourceError,
    TaskCancelledError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.runtime.cancellation import CancelReason
from activity_worker.runtime.options import TaskOptions
from activity_worker.sources.stepfunctions import StepFunctionsSource, translate
from activity_worker.testing.environment import ActivityEnvironment
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from tests.eventually import eventually_sync
from tests.unit.activity_worker.runtime.recorded_worker import double


async def test_handler_runs_without_worker_and_service() -> None:
    environment = ActivityEnvironment()
    assert await environment.run(double, {"n": 4}) == 8
    assert environment.events[-2:] == ["task:success", "task:done"]


async def test_error_of_a_handler_is_raised() -> None:
    async def handler(request: TaskRequest) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await ActivityEnvironment().run(handler)


async def test_environment_has_the_response_and_progress_of_a_handler() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        await respond.heartbeat(1)
        await respond.heartbeat(2)
        await respond.failure("No", "because")

    environment = ActivityEnvironment()
    assert await environment.run(handler) is None
    assert environment.progress == [1, 2]
    assert environment.response is not None
    assert (environment.response.error, environment.response.cause) == ("No", "because")


async def test_handler_can_be_cancelled() -> None:
    async def handler(request: TaskRequest, respond: TaskResponseToolkit) -> None:
        assert await respond.signal.wait() is CancelReason.WORKER_STOPPED
        await asyncio.sleep(1)

    environment = ActivityEnvironment()
    environment.cancel_soon(0.05)
    with pytest.raises(TaskCancelledError, match="the test cancelled it"):
        await environment.run(handler)
    with pytest.raises(RuntimeError, match="no handler runs"):
        environment.cancel()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WireError("TaskTimedOut", "", 400), LeaseLostError),
        (WireError("TaskDoesNotExist", "", 400), LeaseLostError),
        (WireError("InvalidToken", "", 400), InvalidTokenError),
        (WireError("ActivityWorkerLimitExceeded", "", 400), ThrottledError),
        (WireError("ThrottlingException", "", 400), ThrottledError),
        (WireError("AccessDeniedException", "", 400), DeniedError),
        (CredentialsMissingError("NoCredentials", ""), DeniedError),
        (EndpointUnreachableError("ReadTimeout", ""), UnreachableError),
        (WireError("InternalError", "", 500), UnreachableError),
        (WireError("InvalidOutput", "", 400), SourceError),
        (WireError("ActivityDoesNotExist", "", 400), MissingError),
    ],
    ids=lambda value: getattr(value, "code", getattr(value, "__name__", "")),
)
def test_wire_errors_become_source_errors(error: WireError, kind: type[SourceError]) -> None:
    assert type(translate(error)) is kind
    assert translate(error).code == error.code


async def test_source_calls_the_client_and_translates_its_errors() -> None:
    class Client:
        closed = False

        async def get_activity_task(self, arn: str, worker: str) -> Any:
            class Found:
                token, input = f"{arn}|{worker}", "1"

            return Found() if worker == "w" else None

        async def send_task_success(self, token: str, output: str) -> None:
            raise WireError("TaskTimedOut", "over", 400)

        async def close(self) -> None:
            self.closed = True

    client = Client()
    source = StepFunctionsSource(client, "arn", owns_client=True)  # type: ignore[arg-type]
    task = await source.lease("w")
    assert task is not None
    assert (task.token, task.input) == ("arn|w", "1")
    assert await source.lease("other") is None
    with pytest.raises(LeaseLostError, match="over"):
        await source.succeed("t", "1")
    await source.close()
    assert client.closed


@pytest.mark.parametrize("module", ["activity_worker.contract", "activity_worker"])
def test_import_of_the_contract_loads_no_client_and_no_runtime(module: str) -> None:
    heavy = "aiohttp botocore prometheus_client asyncio activity_worker.runtime.slot"
    program = f"import sys, {module}; print([m for m in {heavy.split()} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_every_exported_name_exists() -> None:
    import activity_worker

    for name in activity_worker.__all__:
        assert getattr(activity_worker, name) is not None
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = activity_worker.nothing_such


def test_plain_test_function_runs_a_handler() -> None:
    environment = ActivityEnvironment()

    assert environment.run_sync(lambda request: request.input["n"] + 1, {"n": 1}) == 2


def test_cancellation_at_a_heartbeat_is_seen_by_a_plain_function() -> None:
    def handle(_: TaskRequest) -> None:
        activity.heartbeat({"page": 1})
        eventually_sync("the handler is cancelled", activity.cancelled)

    environment = ActivityEnvironment(TaskOptions(heartbeat_seconds=0.01))
    environment.cancel_at_heartbeat()

    with pytest.raises(TaskCancelledError):
        environment.run_sync(handle)
    assert environment.cancelled is CancelReason.WORKER_STOPPED
    assert environment.progress == [{"page": 1}]


def test_handler_that_is_not_cancelled_has_no_reason() -> None:
    environment = ActivityEnvironment()
    environment.cancel_soon(60.0)

    environment.run_sync(lambda request: None)

    assert environment.cancelled is None

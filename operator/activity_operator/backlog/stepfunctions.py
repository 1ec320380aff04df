"""Step Functions as a task service: one client for each region, endpoint and role, and its errors in our words."""

import asyncio
import re
from collections.abc import Callable
from typing import Any, Protocol

from activity_operator.backlog.protocol import (
    LeasedTask,
    PollTarget,
    SourceProblemError,
    TaskOverError,
    TokenRefusedError,
)
from activity_worker.wire.errors import EndpointUnreachableError, WireError
from activity_worker.wire.stepfunctions import MAX_CAUSE_LENGTH, MAX_ERROR_LENGTH, StepFunctionsClient

#: The service allows 80 characters; the pod's name is what tells two replicas apart, so its end is what is cut.
MAX_WORKER_NAME = 80
_OVER = frozenset({"TaskTimedOut", "TaskDoesNotExist"})
#: Answers to a malformed or foreign ARN; the spec's own rules let none of them pass, a wrong endpoint may still say it.
_WRONG_ARN = frozenset({"InvalidArn", "ValidationException"})
_MAX_SERVICE_WORDS = 300
#: What differs between two answers of the same kind and would make a new condition of each.
_REQUEST_ID = re.compile(r"\s*\(?(?:request ?id:?\s*)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\)?", re.IGNORECASE)


class Client(Protocol):
    """The calls of `StepFunctionsClient` that the operator makes."""

    async def get_activity_task(self, activity_arn: str, worker_name: str) -> Any:
        """Poll once."""
        ...

    async def send_task_heartbeat(self, task_token: str) -> None:
        """Say that a task is alive."""
        ...

    async def send_task_failure(self, task_token: str, error: str = "", cause: str = "") -> None:
        """Fail a task."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def open_client(target: PollTarget) -> Client:
    """Open a client for the target's region, endpoint and role; blocks for about 0.1 s."""
    return StepFunctionsClient.open(
        region=target.region or None,
        endpoint_url=target.endpoint_url or None,
        role_arn=target.role_arn or None,
        external_id=target.external_id or None,
    )


class StepFunctions:
    """The operator's own calls to Step Functions. `pod_name` goes into the worker's name of its polls."""

    def __init__(self, pod_name: str, open_client: Callable[[PollTarget], Client] = open_client) -> None:
        self.worker_name = f"activitypool-operator/{pod_name}"[:MAX_WORKER_NAME]
        self._open = open_client
        self._clients: dict[tuple[str, ...], asyncio.Task[Client]] = {}

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        """Poll once, for up to a minute."""
        try:
            client = await self._client(target)
            task = await client.get_activity_task(target.arn, self.worker_name)
        except WireError as error:
            raise problem(error, target, "states:GetActivityTask") from error
        return None if task is None else LeasedTask(task.task_token, task.input)

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        """Send one task heartbeat."""
        try:
            client = await self._client(target)
            await client.send_task_heartbeat(token)
        except WireError as error:
            raise _about_a_task(error, target, "states:SendTaskHeartbeat") from error

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        """Fail a task."""
        try:
            client = await self._client(target)
            await client.send_task_failure(token, error[:MAX_ERROR_LENGTH], cause[:MAX_CAUSE_LENGTH])
        except WireError as refusal:
            raise _about_a_task(refusal, target, "states:SendTaskFailure") from refusal

    async def close(self) -> None:
        """Close all connections; await open polls first."""
        opened = await asyncio.gather(*self._clients.values(), return_exceptions=True)
        self._clients.clear()
        for client in opened:
            if not isinstance(client, BaseException):
                await client.close()

    async def _client(self, target: PollTarget) -> Client:
        """Return the client that all pools of one region, endpoint and role share; opened once, outside the loop."""
        where = (target.region or _region_of(target.arn), target.endpoint_url, target.role_arn, target.external_id)
        opening = self._clients.get(where)
        if opening is None:
            there = PollTarget(target.arn, *where)
            opening = asyncio.get_running_loop().create_task(asyncio.to_thread(self._open, there))
            self._clients[where] = opening
        try:
            return await asyncio.shield(opening)
        except WireError:
            self._forget(where, opening)
            raise
        except Exception as error:
            self._forget(where, opening)
            raise SourceProblemError("BackendUnreachable", f"no client for {_place(target)}: {error}") from error

    def _forget(self, where: tuple[str, ...], opening: asyncio.Task[Client]) -> None:
        if self._clients.get(where) is opening:
            del self._clients[where]


def problem(error: WireError, target: PollTarget, action: str) -> SourceProblemError:
    """Return the error in a condition's words: a stable reason, and what to do."""
    said = f"{error.code}: {_words(error)}"
    if error.throttled:
        return SourceProblemError("Throttled", _throttled(error, target, action), throttled=True)
    if error.denied:
        who = f"the role {target.role_arn}" if target.role_arn else "the operator's own identity"
        return SourceProblemError(
            "AccessDenied", f"allow {action} on {target.arn} to {who}, or correct its credentials ({said})"
        )
    if error.missing or error.code in _WRONG_ARN:
        return SourceProblemError(
            "ActivityNotFound",
            f"the activity {target.arn} does not exist in {_place(target)}: create it, or correct spec.activityArn, "
            f"spec.aws.region or spec.aws.endpointUrl ({said})",
        )
    if isinstance(error, EndpointUnreachableError):
        return SourceProblemError(
            "BackendUnreachable",
            f"no answer from {_place(target)}: check spec.aws.endpointUrl, spec.aws.region and the network's rules "
            f"({said})",
        )
    return SourceProblemError("BackendUnreachable", f"{action} fails at {_place(target)}: {said}")


def _throttled(error: WireError, target: PollTarget, action: str) -> str:
    if error.code == "ActivityWorkerLimitExceeded":
        return (
            f"the activity {target.arn} has as many open polls as the service allows: lower maxWorkers x slotsPerWorker"
        )
    return f"{action} is throttled in {_place(target)} ({error.code}): ask for a higher quota, or use fewer pools there"


def _about_a_task(error: WireError, target: PollTarget, action: str) -> Exception:
    if error.code in _OVER:
        return TaskOverError(error.code)
    if error.code == "InvalidToken":
        return TokenRefusedError(error.code)
    return problem(error, target, action)


def _words(error: WireError) -> str:
    return _REQUEST_ID.sub("", error.message)[:_MAX_SERVICE_WORDS]


def _place(target: PollTarget) -> str:
    region = target.region or _region_of(target.arn)
    return f"{region} at {target.endpoint_url}" if target.endpoint_url else region


def _region_of(arn: str) -> str:
    parts = arn.split(":")
    return parts[3] if len(parts) > 3 else ""

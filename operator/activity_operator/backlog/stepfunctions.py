"""Step Functions as a task service: a client per region, endpoint and role; its errors become source problems."""

from collections.abc import Callable
from typing import Protocol

from activity_operator.backlog import messages
from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_call
from activity_operator.backlog.clients import Clients
from activity_operator.backlog.protocol import PollTarget, SourceProblemError, TaskOverError, TokenRefusedError
from activity_worker.contract import LeasedTask
from activity_worker.wire.endpoint import UNKNOWN_REGION, region_of
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from activity_worker.wire.session import shared_session
from activity_worker.wire.stepfunctions import MAX_CAUSE_LENGTH, MAX_ERROR_LENGTH, StepFunctionsClient

#: The service's limit of a worker's name in characters; a longer name loses its end.
MAX_WORKER_NAME = 80
_OVER = frozenset({"TaskTimedOut", "TaskDoesNotExist"})
#: Errors for a malformed ARN. The rules of the spec exclude such an ARN, but a wrong endpoint may still return them.
_WRONG_ARN = frozenset({"InvalidArn", "ValidationException"})


class Client(Protocol):
    """The methods of `StepFunctionsClient` that the operator uses."""

    async def get_activity_task(self, activity_arn: str, worker_name: str) -> LeasedTask | None:
        """Poll once."""
        ...

    async def describe_activity(self, activity_arn: str) -> None:
        """Return if the activity exists and the caller may describe it."""
        ...

    async def send_task_heartbeat(self, task_token: str) -> None:
        """Send a task heartbeat."""
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
        session=shared_session(),
    )


class StepFunctions:
    """The operator's own calls to Step Functions. `pod_name` becomes part of the worker name in its polls.

    `observed` is called after each call and may be replaced later.
    """

    def __init__(
        self,
        pod_name: str,
        open_client: Callable[[PollTarget], Client] = open_client,
        observed: CallObserver = ignore_call,
    ) -> None:
        self.worker_name = f"activitypool-operator/{pod_name}"[:MAX_WORKER_NAME]
        self.observed = observed
        self._clients = Clients(open_client)

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        """Poll once, for up to a minute. Raises SourceProblemError."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, "GetActivityTask"):
                    task = await client.get_activity_task(target.arn, self.worker_name)
        except WireError as error:
            raise problem(error, target, "states:GetActivityTask") from error
        return task

    async def describe(self, target: PollTarget) -> None:
        """Return if the activity exists and the operator may use it; else raise SourceProblemError."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, "DescribeActivity"):
                    await client.describe_activity(target.arn)
        except WireError as error:
            raise problem(error, target, "states:DescribeActivity") from error

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        """Send one task heartbeat. Raises TaskOverError, TokenRefusedError or SourceProblemError."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, "SendTaskHeartbeat"):
                    await client.send_task_heartbeat(token)
        except WireError as error:
            raise _about_a_task(error, target, "states:SendTaskHeartbeat") from error

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        """Fail a task. Raises TaskOverError, TokenRefusedError or SourceProblemError."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, "SendTaskFailure"):
                    await client.send_task_failure(token, error[:MAX_ERROR_LENGTH], cause[:MAX_CAUSE_LENGTH])
        except WireError as refusal:
            raise _about_a_task(refusal, target, "states:SendTaskFailure") from refusal

    async def close(self) -> None:
        """Close all connections; the caller awaits the open polls first."""
        await self._clients.close()


def problem(error: WireError, target: PollTarget, action: str) -> SourceProblemError:
    """Return the error as a source problem: a stable reason, and a message that names the fix."""
    message, place = messages.service_message(error), messages.shown_place(target)
    if error.throttled:
        return SourceProblemError("Throttled", _throttled(error, target, action), throttled=True)
    if error.denied:
        return _denied(error, target, action)
    if error.missing or error.code in _WRONG_ARN:
        return _missing(target, message)
    if error.code == UNKNOWN_REGION:
        return messages.unknown_region(target)
    if isinstance(error, EndpointUnreachableError):
        return SourceProblemError(
            "BackendUnreachable",
            f"no answer from {place}: check spec.aws.endpointUrl, spec.aws.region and the network's rules ({message})",
        )
    return SourceProblemError("BackendUnreachable", f"{action} fails at {place}: {message}")


def _denied(error: WireError, target: PollTarget, action: str) -> SourceProblemError:
    message, caller = messages.service_message(error), messages.caller(target)
    account, expected = messages.caller_account(error, target), messages.account_of(target.arn)
    if account and account != expected and not isinstance(error, CredentialsMissingError):
        text = (
            f"{caller} is of account {account}, and the activity {target.arn} of account {expected}: name a role of "
            f"that account in spec.aws.roleArn, or correct activityArn ({message})"
        )
        return SourceProblemError("WrongAccount", text)
    text = f"allow {action} on {target.arn} to {caller}, or correct its credentials ({message})"
    return SourceProblemError("AccessDenied", text)


def _missing(target: PollTarget, message: str) -> SourceProblemError:
    place, region = messages.shown_place(target), messages.place_of(target).region
    if region != (expected := region_of(target.arn)):
        text = (
            f"the activity {target.arn} is of region {expected} and does not exist in {place}: correct spec.aws.region "
            f"or activityArn ({message})"
        )
        return SourceProblemError("WrongRegion", text)
    text = (
        f"the activity {target.arn} does not exist in {place}: create it, or correct activityArn, spec.aws.region or "
        f"spec.aws.endpointUrl ({message})"
    )
    return SourceProblemError("ActivityNotFound", text)


def _throttled(error: WireError, target: PollTarget, action: str) -> str:
    if error.code == "ActivityWorkerLimitExceeded":
        return (
            f"the activity {target.arn} has as many open polls as the service allows: lower maxWorkers x slotsPerWorker"
        )
    place = messages.shown_place(target)
    return f"{action} is throttled in {place} ({error.code}): ask for a higher quota, or use fewer pools there"


def _about_a_task(error: WireError, target: PollTarget, action: str) -> Exception:
    if error.code in _OVER:
        return TaskOverError(error.code)
    if error.code == "InvalidToken":
        return TokenRefusedError(error.code)
    return problem(error, target, action)

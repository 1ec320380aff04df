"""Amazon SWF as a source that can be counted: a client per region, endpoint and role; its errors become problems."""

from collections.abc import Callable
from typing import Protocol

from activity_operator.api.conditions import Reason
from activity_operator.backlog import messages
from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_call
from activity_operator.backlog.clients import Clients
from activity_operator.backlog.protocol import PollTarget, SourceProblemError, TaskOverError
from activity_worker.contract import LeasedTask
from activity_worker.wire.endpoint import UNKNOWN_REGION
from activity_worker.wire.errors import CredentialsMissingError, EndpointUnreachableError, WireError
from activity_worker.wire.session import shared_session
from activity_worker.wire.swf import (
    MAX_DETAILS_LENGTH,
    MAX_IDENTITY_LENGTH,
    MAX_REASON_LENGTH,
    UNKNOWN_RESOURCE,
    PendingCount,
    SwfClient,
)

_COUNT = "CountPendingActivityTasks"
_DESCRIBE = "DescribeDomain"
_POLL = "PollForActivityTask"
_HEARTBEAT = "RecordActivityTaskHeartbeat"
_FAIL = "RespondActivityTaskFailed"


class Client(Protocol):
    """The methods of `SwfClient` that the operator uses."""

    async def count_pending_activity_tasks(self, domain: str, task_list: str) -> PendingCount:
        """Count a task list."""
        ...

    async def describe_domain(self, domain: str) -> str:
        """Return the domain's status."""
        ...

    async def poll_for_activity_task(self, domain: str, task_list: str, identity: str = "") -> LeasedTask | None:
        """Poll once."""
        ...

    async def record_heartbeat(self, task_token: str, details: str = "") -> bool:
        """Send a task heartbeat."""
        ...

    async def respond_failed(self, task_token: str, reason: str = "", details: str = "") -> None:
        """Fail a task."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def open_client(target: PollTarget) -> Client:
    """Open a client for the target's region, endpoint and role; blocks for about 0.1 s."""
    return SwfClient.open(
        region=target.region or None,
        endpoint_url=target.endpoint_url or None,
        role_arn=target.role_arn or None,
        external_id=target.external_id or None,
        session=shared_session(),
    )


class Swf:
    """The operator's own calls to Amazon SWF. `pod_name` becomes part of the identity in its polls.

    `observed` is called after each call and may be replaced later.
    """

    def __init__(
        self,
        open_client: Callable[[PollTarget], Client] = open_client,
        observed: CallObserver = ignore_call,
        pod_name: str = "process",
    ) -> None:
        self.identity = f"activitypool-operator/{pod_name}"[:MAX_IDENTITY_LENGTH]
        self.observed = observed
        self._clients = Clients(open_client)

    async def count(self, target: PollTarget) -> PendingCount:
        """Return how many tasks wait in the target's task list; raises SourceProblemError."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, _COUNT):
                    return await client.count_pending_activity_tasks(target.domain, target.task_list)
        except WireError as error:
            raise problem(error, target, f"swf:{_COUNT}") from error

    async def describe(self, target: PollTarget) -> None:
        """Return if the target's domain exists and the operator may use it; else raise SourceProblemError.

        A deprecated domain is one: its open executions still schedule tasks.
        """
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, _DESCRIBE):
                    await client.describe_domain(target.domain)
        except WireError as error:
            raise problem(error, target, f"swf:{_DESCRIBE}") from error

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        """Poll the target's task list once, for up to a minute."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, _POLL):
                    return await client.poll_for_activity_task(target.domain, target.task_list, self.identity)
        except WireError as error:
            raise problem(error, target, f"swf:{_POLL}") from error

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        """Send one task heartbeat. A requested cancellation is the worker's, whose next heartbeat gets it."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, _HEARTBEAT):
                    await client.record_heartbeat(token)
        except WireError as error:
            raise _about_a_task(error, target, _HEARTBEAT) from error

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        """Fail a task: its reason is the error, and its details the cause."""
        try:
            async with self._clients.open(target) as client:
                with observe_call(self.observed, _FAIL):
                    await client.respond_failed(token, error[:MAX_REASON_LENGTH], cause[:MAX_DETAILS_LENGTH])
        except WireError as refusal:
            raise _about_a_task(refusal, target, _FAIL) from refusal

    async def close(self) -> None:
        """Close all connections; the caller awaits the open polls first."""
        await self._clients.close()


def problem(error: WireError, target: PollTarget, action: str) -> SourceProblemError:
    """Return the error as a source problem: a stable reason, and a message that names the fix."""
    message, place = messages.service_message(error), messages.shown_place(target)
    if error.throttled:
        text = f"{action} is throttled in {place} ({error.code}): ask for a higher quota, or lower swfCountsPerSecond"
        return SourceProblemError(Reason.THROTTLED, text, throttled=True)
    if error.denied:
        return _denied(error, target, action)
    if error.missing:
        text = (
            f"the domain {target.domain} does not exist in {place}: register it, or correct spec.source.swf.domain, "
            f"spec.aws.region or spec.aws.endpointUrl ({message})"
        )
        return SourceProblemError(Reason.DOMAIN_NOT_FOUND, text)
    if error.code == UNKNOWN_REGION:
        return messages.unknown_region(target)
    if isinstance(error, EndpointUnreachableError):
        text = (
            f"no answer from {place}: check spec.aws.endpointUrl, spec.aws.region and the network's rules ({message})"
        )
        return SourceProblemError(Reason.BACKEND_UNREACHABLE, text)
    return SourceProblemError(Reason.BACKEND_UNREACHABLE, f"{action} fails at {place}: {message}")


def _about_a_task(error: WireError, target: PollTarget, operation: str) -> Exception:
    if error.code == UNKNOWN_RESOURCE:
        return TaskOverError(error.code)
    return problem(error, target, f"swf:{operation}")


def _denied(error: WireError, target: PollTarget, action: str) -> SourceProblemError:
    message, caller = messages.service_message(error), messages.caller(target)
    if isinstance(error, CredentialsMissingError):
        text = f"{caller} has no usable credentials for {action}: correct them ({message})"
    else:
        text = f"allow {action} on the domain {target.domain} to {caller}, or correct its credentials ({message})"
    return SourceProblemError(Reason.ACCESS_DENIED, text)

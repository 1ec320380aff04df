"""Reads activity metrics from CloudWatch, many activities per call, and turns its errors into source problems.

botocore resolves the endpoint and the credentials. The call itself uses the transport of the Step Functions client and
the JSON protocol of botocore's service model. This module takes no task and sees no payload.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from activity_operator.backlog import messages, metric_data
from activity_operator.backlog.call_metrics import CallObserver, ignore_call, observe_call
from activity_operator.backlog.clients import Clients
from activity_operator.backlog.protocol import PollTarget, SourceProblemError, TimeRange
from activity_operator.core.observation import MetricPeriod
from activity_worker.wire.aws import AwsJsonCaller
from activity_worker.wire.credentials import CredentialsProvider, chain
from activity_worker.wire.endpoint import UNKNOWN_REGION, resolve
from activity_worker.wire.errors import EndpointUnreachableError, WireError
from activity_worker.wire.session import shared_session

#: The operation's name in botocore's service model; a test compares the two.
TARGET_PREFIX = "GraniteServiceVersion20100801"
OPERATION = "GetMetricData"
ACTION = "cloudwatch:GetMetricData"
CALL_TIMEOUT_SECONDS = 20.0
#: Pages of one answer: 250 activities have at most 168 data points twice each, and a page holds 100,800.
MAX_PAGES = 10


class Caller(Protocol):
    """The methods of `AwsJsonCaller` that this module uses."""

    async def call(self, operation: str, parameters: dict[str, Any], *, timeout_seconds: float) -> dict[str, Any]:
        """Return the operation's output; raises WireError."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def open_caller(target: PollTarget) -> Caller:
    """Open a caller for the target's region, endpoint and role; blocks for about 0.1 s."""
    region, url = target.region or None, target.endpoint_url or None
    session = shared_session()
    endpoint = resolve(session, "cloudwatch", region=region, endpoint_url=url)
    role, external = target.role_arn or None, target.external_id or None
    load = chain(session, region=endpoint.region, role_arn=role, external_id=external)
    return AwsJsonCaller(endpoint, CredentialsProvider(load), target_prefix=TARGET_PREFIX)


class CloudWatchReader:
    """Reads activity metrics. `observed` is called after each call and may be replaced later."""

    def __init__(
        self, open_caller: Callable[[PollTarget], Caller] = open_caller, observed: CallObserver = ignore_call
    ) -> None:
        self.observed = observed
        self._callers = Clients(open_caller)

    async def read(
        self, target: PollTarget, arns: Sequence[str], span: TimeRange
    ) -> Mapping[str, tuple[MetricPeriod, ...] | SourceProblemError]:
        """Read as `MetricReader` specifies: one call after another, because they share quotas."""
        found: dict[str, tuple[MetricPeriod, ...] | SourceProblemError] = {}
        try:
            async with self._callers.open(target) as caller:
                for batch in metric_data.batches(arns):
                    found |= await self._read(caller, batch, span)
        except WireError as error:
            raise problem(error, target) from error
        return found

    async def _read(
        self, caller: Caller, arns: Sequence[str], span: TimeRange
    ) -> dict[str, tuple[MetricPeriod, ...] | SourceProblemError]:
        pages = metric_data.Pages(arns, span)
        token = ""
        for _ in range(MAX_PAGES):
            request = metric_data.request(arns, span, token)
            with observe_call(self.observed, OPERATION):
                output = await caller.call(OPERATION, request, timeout_seconds=CALL_TIMEOUT_SECONDS)
            token = pages.take(output)
            if not token:
                break
        # 250 busy activities have 60,000 data points, which take 50 ms or more: too long for the event loop.
        return await asyncio.to_thread(pages.flows)

    async def close(self) -> None:
        """Close all connections; a running read fails."""
        await self._callers.close()


def problem(error: WireError, target: PollTarget) -> SourceProblemError:
    """Return the error as a source problem: a reason of the task service's, and a message that names the fix."""
    message, place = messages.service_message(error), messages.shown_place(target)
    if error.throttled:
        text = f"{ACTION} is throttled in {place} ({error.code}): ask for a higher quota, or use fewer pools there"
        return SourceProblemError("Throttled", text, throttled=True)
    if error.denied:
        text = f"allow {ACTION} on * to {messages.caller(target)}, or correct its credentials ({message})"
        return SourceProblemError("AccessDenied", text)
    if error.code == UNKNOWN_REGION:
        return messages.unknown_region(target)
    if isinstance(error, EndpointUnreachableError):
        text = (
            f"no answer from CloudWatch in {place}: check spec.aws.cloudWatchEndpointUrl, spec.aws.region and the "
            f"network's rules ({message})"
        )
        return SourceProblemError("BackendUnreachable", text)
    return SourceProblemError("BackendUnreachable", f"{ACTION} fails at {place}: {message}")

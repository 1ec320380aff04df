"""What the two deliveries of a taskbroker have in common: a lease is an activation, until its processing deadline.

The protocol has no heartbeat and nothing by which a broker takes a task back: the worker's own clock ends a lease.
"""

import abc
import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from activity_worker.config.sources import TaskbrokerSettings
from activity_worker.contract import LeasedTask, ScheduledActivity
from activity_worker.errors import (
    DeniedError,
    LeaseLostError,
    MissingError,
    SourceError,
    ThrottledError,
    UnreachableError,
)
from activity_worker.task import RetryRequest
from activity_worker.taskbroker.consumer import COMPLETED, GivenTask
from activity_worker.taskbroker.lifecycle.attempts import FailureReport, report_of_failure
from activity_worker.taskbroker.lifecycle.inflight import DEFAULT_DEADLINE_SECONDS
from activity_worker.taskbroker.protocol.activation import Activation
from activity_worker.taskbroker.protocol.arguments import to_json
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerError
from activity_worker.taskbroker.protocol.parameters import ParametersError, decode_parameters
from activity_worker.taskbroker.protocol.trace_headers import trace_of_headers

log = logging.getLogger(__name__)

#: How long a poll is open.
HOLD_SECONDS: Final = 20.0
#: Seconds beyond a task's deadline in which its outcome is still reported: as long as a broker of this project lets no
#: deadline pass after its start, and its grace.
LATE_REPORT_SECONDS: Final = 63.0
#: The longest arguments in characters of JSON that a handler's process gets.
MAX_INPUT_LENGTH: Final = 16 * 1024 * 1024
#: Seconds beyond a task's deadline after which its broker gives it to another worker.
GRACE_SECONDS: Final = 3.0
#: Longest name of a task and of its namespace that a handler's process reads.
_MAX_NAME_LENGTH: Final = 256

_KINDS: Final[dict[str, type[SourceError]]] = {
    "UNAVAILABLE": UnreachableError,
    "DEADLINE_EXCEEDED": UnreachableError,
    "CANCELLED": UnreachableError,
    "ABORTED": UnreachableError,
    "INTERNAL": UnreachableError,
    "UNKNOWN": UnreachableError,
    "RESOURCE_EXHAUSTED": ThrottledError,
    "UNAUTHENTICATED": DeniedError,
    "PERMISSION_DENIED": DeniedError,
    "UNIMPLEMENTED": MissingError,
}
_FIXES: Final = {
    "UNAUTHENTICATED": "give the worker a secret that the broker has, and start it again",
    "PERMISSION_DENIED": "a broker that pushes its tasks gives none out: set its delivery to pull",
    "UNIMPLEMENTED": "is the address that of a taskbroker?",
}


@dataclass(slots=True)
class _Lease:
    given: GivenTask
    ends_at: float
    fetches: bool = False
    reporting: bool = False


class TaskbrokerLeases(abc.ABC):
    """The tasks that this worker has of its brokers, and their conclusions.

    `clock` is in seconds, and never goes back.
    """

    def __init__(self, settings: TaskbrokerSettings, clock: Callable[[], float] | None = None) -> None:
        self.name = "/".join((settings.application or "*", settings.namespace or "*"))
        self._clock = clock or asyncio.get_running_loop().time
        self._numbers = itertools.count(1)
        self._leases: dict[str, _Lease] = {}
        #: Tasks that came with the answer to a report, by the token of the reported one.
        self._next: dict[str, LeasedTask] = {}

    @abc.abstractmethod
    async def _send(self, given: GivenTask, report: FailureReport, *, fetch: bool) -> GivenTask | None:
        """Report a task; return the next one if the answer brings it. Raises TaskbrokerError."""

    async def heartbeat(self, token: str) -> None:
        """Look at the clock: brokers hear nothing. Raises `LeaseLostError` beyond the processing deadline.

        A task whose outcome is being reported is not lost yet.
        """
        lease = self._lease(token)
        if not lease.reporting and self._clock() >= lease.ends_at + GRACE_SECONDS:
            self._abandon(token)
            raise _lost()

    async def succeed(self, token: str, output: str) -> None:  # noqa: ARG002 - the protocol has no outputs
        """Report that the task is complete."""
        await self._report(token, COMPLETED)

    async def fail(self, token: str, error: str, cause: str) -> None:  # noqa: ARG002 - the protocol has no errors
        """Report that the task has failed, and is not tried again."""
        await self._report(token, report_of_failure(None, RetryRequest(wanted=False)))

    async def fail_with_retry(self, token: str, error: str, cause: str, retry: RetryRequest) -> None:  # noqa: ARG002 - as above
        """Report that the task has failed, or is to be tried again.

        Nothing is reported of a task whose handler was interrupted: its broker gives it out again after its deadline,
        and no retry is consumed.
        """
        if retry.interrupted:
            self._abandon(token)
            log.warning("task %s was interrupted (%s): it is left to its broker", self._id(token), error)
            return
        lease = self._lease(token)
        await self._report(token, report_of_failure(lease.given.activation.retry, retry))

    def _leased(self, given: GivenTask, came_at: float | None = None) -> LeasedTask:
        """Return the lease of a task that came now, or at `came_at`."""
        activation = given.activation
        token = f"{given.broker}/{activation.id}/{next(self._numbers)}"
        now = self._clock()
        ends_at = (now if came_at is None else came_at) + deadline_seconds_of(activation)
        self._leases[token] = _Lease(given, ends_at)
        return LeasedTask(token, _input(activation), _scheduled(activation), ends_at - now)

    async def _report(self, token: str, report: FailureReport) -> None:
        lease = self._lease(token)
        lease.reporting = True
        if self._clock() >= lease.ends_at + LATE_REPORT_SECONDS:
            self._abandon(token)
            raise _lost()
        try:
            following = await self._send(lease.given, report, fetch=lease.fetches)
        except TaskbrokerError as error:
            raise translate(error) from error
        self._forget(token)
        if following is not None:
            self._next[token] = self._leased(following)

    def _lease(self, token: str) -> _Lease:
        lease = self._leases.get(token)
        if lease is None:
            raise LeaseLostError("NotLeased", "the task is not this worker's, or was reported already")
        return lease

    def _forget(self, token: str) -> None:
        self._leases.pop(token, None)

    def _abandon(self, token: str) -> None:
        """Forget a task without a report."""
        self._forget(token)

    @staticmethod
    def _id(token: str) -> str:
        return token.split("/")[-2]


def channels_of(settings: TaskbrokerSettings) -> list[ChannelSettings]:
    """Return how the brokers of the settings are called."""
    root = settings.ca if settings.tls else None
    return [ChannelSettings(address, settings.secrets, root) for address in settings.addresses]


def deadline_seconds_of(activation: Activation) -> float:
    """Return how long one try of a task may take."""
    return float(activation.processing_deadline_duration or DEFAULT_DEADLINE_SECONDS)


def translate(error: TaskbrokerError) -> SourceError:
    """Return the runtime's error for one of a broker."""
    _, _, message = str(error).partition(": ")
    return _KINDS.get(error.code, SourceError)(error.code, message, fix=_FIXES.get(error.code, ""))


def _lost() -> LeaseLostError:
    return LeaseLostError("ProcessingDeadlineExceeded", "the broker may have given the task to another worker")


def _input(activation: Activation) -> str:
    """Return the arguments as JSON text; "" for arguments that cannot be read, which fails the task."""
    try:
        found = decode_parameters(activation.parameters, activation.headers, activation.parameters_json)
        text = to_json(found.args, found.kwargs)
    except (ParametersError, ValueError, RecursionError) as error:
        log.warning("task %s: %s", activation.id, error)
        return ""
    if len(text) > MAX_INPUT_LENGTH or not _has_names(activation):
        log.warning("task %s: its arguments, its name or its namespace are too long", activation.id)
        return ""
    return text


def _has_names(activation: Activation) -> bool:
    return all(0 < len(name) <= _MAX_NAME_LENGTH for name in (activation.namespace, activation.taskname))


def _scheduled(activation: Activation) -> ScheduledActivity:
    traceparent, tracestate = trace_of_headers(activation.headers)
    return ScheduledActivity(
        name=activation.taskname[:_MAX_NAME_LENGTH],
        version="",
        id=activation.id[:_MAX_NAME_LENGTH],
        namespace=activation.namespace[:_MAX_NAME_LENGTH] or "?",
        traceparent=traceparent,
        tracestate=tracestate,
    )

"""Brokers that speak the protocol of taskbroker as a source: a lease is an activation, until its processing deadline.

The protocol has no heartbeat and nothing by which a broker takes a task back: the worker's own clock ends a lease. The
answer to a report may bring the next task, which saves a call for each task.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
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
from activity_worker.taskbroker.consumer import COMPLETED, GivenTask, TaskConsumer
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
#: Seconds between two questions of a worker to brokers without a task: the first, growing up to the last.
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0
_PAUSE_GROWTH: Final = 1.5
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


class TaskbrokerSource:
    """The brokers that `settings` name. Make it in a running event loop; `hold_seconds` is how long a poll waits.

    `clock` is in seconds, and never goes back.
    """

    def __init__(
        self,
        settings: TaskbrokerSettings,
        *,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = "/".join((settings.application or "*", settings.namespace or "*"))
        self._clock = clock or asyncio.get_running_loop().time
        root = settings.ca if settings.tls else None
        channels = [ChannelSettings(address, settings.secrets, root) for address in settings.addresses]
        wanted = {"namespace": settings.namespace, "application": settings.application}
        self._consumer = TaskConsumer(channels, **wanted, clock=self._clock, unclaimed=self._keep)
        self._hold_seconds = hold_seconds
        self._numbers = itertools.count(1)
        self._leases: dict[str, _Lease] = {}
        #: Tasks that came with the answer to a report, by the token of the reported one.
        self._next: dict[str, LeasedTask] = {}
        #: Tasks that no slot has taken yet, and when they came: those of slots that wait, or have given up their poll.
        self._unclaimed: deque[tuple[GivenTask, float]] = deque()
        #: Slots that wait for a task.
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._cordoned = asyncio.Event()
        self._pause = 0.0
        self._ask_at = 0.0

    async def lease(self, worker_name: str) -> LeasedTask | None:  # noqa: ARG002 - the protocol has no names of workers
        """Ask for a task; None after `hold_seconds` without one. Raises `SourceError`s.

        One slot at a time asks, for all that wait.
        """
        until = self._clock() + self._hold_seconds
        self._waiting += 1
        try:
            while True:
                async with self._turn:
                    if (lease := self._take_unclaimed()) is not None:
                        return lease
                    if self._cordoned.is_set() or self._clock() >= until or not await self._is_time(until):
                        return None
                    await self._asked()
                    if (lease := self._take_unclaimed()) is not None:
                        return lease
        finally:
            self._waiting -= 1

    async def heartbeat(self, token: str) -> None:
        """Look at the clock: brokers hear nothing. Raises `LeaseLostError` beyond the processing deadline.

        A task whose outcome is being reported is not lost yet.
        """
        lease = self._lease(token)
        if not lease.reporting and self._clock() >= lease.ends_at + GRACE_SECONDS:
            self._forget(token)
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
            self._forget(token)
            log.warning("task %s was interrupted (%s): it is left to its broker", self._id(token), error)
            return
        lease = self._lease(token)
        await self._report(token, report_of_failure(lease.given.activation.retry, retry))

    def want_next(self, token: str, wanted: bool) -> None:
        """Say whether the answer to this task's report may bring the next task, for the same slot."""
        lease = self._leases.get(token)
        if lease is not None:
            lease.fetches = wanted and not self._cordoned.is_set()

    def take_next(self, token: str) -> LeasedTask | None:
        """Return the task that the answer to this task's report brought, once."""
        return self._next.pop(token, None)

    def cordon(self, on: bool) -> None:
        """End the polls that wait, or (False) let them wait again."""
        if on:
            self._cordoned.set()
        else:
            self._cordoned.clear()

    async def close(self) -> None:
        """Close the connections. What is not reported is given out again after its deadline."""
        await self._consumer.close()

    async def _is_time(self, until: float) -> bool:
        """Wait until the brokers may be asked again; False when the poll ends before."""
        wait = min(self._ask_at, until) - self._clock()
        if wait > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._cordoned.wait(), wait)
        return not self._cordoned.is_set() and self._ask_at <= self._clock()

    async def _asked(self) -> None:
        # A poll that is given up leaves the answer to the others.
        asking = asyncio.create_task(self._ask())
        try:
            await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda over: over.cancelled() or over.exception())
            raise

    async def _ask(self) -> None:
        try:
            some = await self._consumer.get_many(self._waiting)
        except TaskbrokerError as error:
            raise translate(error) from error
        self._pause = 0.0 if some else min(max(self._pause * _PAUSE_GROWTH, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        self._ask_at = self._clock() + self._pause
        for given in some:
            self._keep(given)

    def _keep(self, given: GivenTask) -> None:
        self._unclaimed.append((given, self._clock()))

    def _take_unclaimed(self) -> LeasedTask | None:
        while self._unclaimed:
            given, came_at = self._unclaimed.popleft()
            # One that has waited beyond its deadline is left to its broker.
            if self._clock() < came_at + _seconds(given.activation):
                return self._leased(given, came_at)
        return None

    def _leased(self, given: GivenTask, came_at: float) -> LeasedTask:
        activation = given.activation
        token = f"{given.broker}/{activation.id}/{next(self._numbers)}"
        ends_at = came_at + _seconds(activation)
        self._leases[token] = _Lease(given, ends_at)
        return LeasedTask(token, _input(activation), _scheduled(activation), ends_at - self._clock())

    async def _report(self, token: str, report: FailureReport) -> None:
        lease = self._lease(token)
        lease.reporting = True
        if self._clock() >= lease.ends_at + LATE_REPORT_SECONDS:
            self._forget(token)
            raise _lost()
        try:
            following = await self._consumer.report(lease.given, report, fetch=lease.fetches)
        except TaskbrokerError as error:
            raise translate(error) from error
        self._forget(token)
        if following is not None:
            self._next[token] = self._leased(following, self._clock())

    def _lease(self, token: str) -> _Lease:
        lease = self._leases.get(token)
        if lease is None:
            raise LeaseLostError("NotLeased", "the task is not this worker's, or was reported already")
        return lease

    def _forget(self, token: str) -> None:
        self._leases.pop(token, None)

    @staticmethod
    def _id(token: str) -> str:
        return token.split("/")[-2]


def _seconds(activation: Activation) -> float:
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

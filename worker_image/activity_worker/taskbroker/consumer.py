"""A worker's side of one or more brokers: asks them in turn for tasks, and reports to the one that gave a task."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from activity_worker.taskbroker.lifecycle.attempts import FailureReport
from activity_worker.taskbroker.lifecycle.inflight import Outcome
from activity_worker.taskbroker.protocol.activation import Activation, activation_of
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import (
    CONSUMER_SERVICE,
    GetTaskRequest,
    GetTaskResponse,
    SetTaskStatusRequest,
    SetTaskStatusResponse,
)

log = logging.getLogger(__name__)

_GET_TASK: Final = f"/{CONSUMER_SERVICE}/GetTask"
_SET_TASK_STATUS: Final = f"/{CONSUMER_SERVICE}/SetTaskStatus"
#: Errors in a row after which a broker is asked for no task, and for how many seconds.
MAX_ERRORS: Final = 3
ASIDE_SECONDS: Final = 20.0
COMPLETED: Final = FailureReport(Outcome.COMPLETE)


@dataclass(frozen=True, slots=True)
class GivenTask:
    """A task, and the address of the broker that gave it out."""

    broker: str
    activation: Activation


class _Broker:
    """One broker, and how it answered lately."""

    def __init__(self, settings: ChannelSettings) -> None:
        self.address = settings.address
        self.channel = TaskbrokerChannel(settings)
        self._errors = 0
        self._aside_until = float("-inf")

    def is_aside(self, now: float) -> bool:
        return now < self._aside_until

    def answered(self) -> None:
        if self._errors >= MAX_ERRORS:
            log.info("the taskbroker answers again", extra={"facts": {"taskbroker": self.address}})
        self._errors = 0

    def failed(self, now: float, error: TaskbrokerError) -> None:
        self._errors += 1
        if self._errors < MAX_ERRORS:
            return
        self._aside_until = now + ASIDE_SECONDS
        if self._errors == MAX_ERRORS:
            log.warning(
                "the taskbroker is set aside", extra={"facts": {"taskbroker": self.address, "error": error.code}}
            )


class TaskConsumer:
    """The brokers of `settings`, asked in turn. Make it in a running event loop, and `close` it at the end.

    `namespace` and `application` choose the tasks; None asks for any. `clock` is in seconds, and never goes back.
    """

    def __init__(
        self,
        settings: Sequence[ChannelSettings],
        *,
        namespace: str | None = None,
        application: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._brokers = [_Broker(one) for one in settings]
        self._wanted = {
            key: value for key, value in (("namespace", namespace), ("application", application)) if value is not None
        }
        self._clock = clock or asyncio.get_running_loop().time
        self._first = itertools.cycle(range(len(self._brokers)))

    async def get(self) -> GivenTask | None:
        """Ask each broker once, until one gives a task; None when none has any.

        A broker that is set aside is left out, unless all are. Raises TaskbrokerError when no broker could be asked.
        """
        start = next(self._first)
        in_turn = self._brokers[start:] + self._brokers[:start]
        now = self._clock()
        error: TaskbrokerError | None = None
        answers = 0
        for broker in [one for one in in_turn if not one.is_aside(now)] or in_turn:
            try:
                response = await broker.channel.call(_GET_TASK, GetTaskRequest(**self._wanted), GetTaskResponse)
            except TaskbrokerError as refused:
                if refused.code != "NOT_FOUND":
                    broker.failed(self._clock(), refused)
                    error = refused
                    continue
                broker.answered()
                answers += 1
            else:
                broker.answered()
                return GivenTask(broker.address, activation_of(response.task))
        if error is not None and not answers:
            raise error
        return None

    async def report(self, given: GivenTask, report: FailureReport, *, fetch: bool) -> GivenTask | None:
        """Report to the broker of a task; with `fetch`, return the next task that it has, None for none.

        Raises TaskbrokerError.
        """
        (broker,) = (one for one in self._brokers if one.address == given.broker)
        request = SetTaskStatusRequest(id=given.activation.id, status=int(report.outcome))
        _set(request, "max_attempts", report.max_attempts)
        _set(request, "delay_on_retry", report.delay)
        if fetch:
            request.fetch_next_task.SetInParent()
            for name, value in self._wanted.items():
                setattr(request.fetch_next_task, name, value)
        try:
            response = await broker.channel.call(_SET_TASK_STATUS, request, SetTaskStatusResponse)
        except TaskbrokerError as error:
            broker.failed(self._clock(), error)
            raise
        broker.answered()
        return GivenTask(broker.address, activation_of(response.task)) if response.HasField("task") else None

    async def close(self) -> None:
        """Close the connections."""
        for broker in self._brokers:
            await broker.channel.close()


def _set(request: Any, name: str, value: int | None) -> None:
    if value is not None:
        setattr(request, name, value)

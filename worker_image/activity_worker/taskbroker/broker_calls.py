"""A worker's calls of one broker. What several slots ask for at the same time goes into one call where the broker can.

This project's brokers can (`ExchangeTasks`). Others get a call for each task, and one for several statuses of slots
that want no next task.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from activity_worker.taskbroker.lifecycle.attempts import FailureReport
from activity_worker.taskbroker.protocol.activation import Activation, activation_of
from activity_worker.taskbroker.protocol.channel import TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import (
    CONSUMER_SERVICE,
    EXCHANGE_SERVICE,
    ExchangeTasksRequest,
    ExchangeTasksResponse,
    GetTaskRequest,
    GetTaskResponse,
    SetBatchActivationStatusRequest,
    SetBatchActivationStatusResponse,
    SetTaskStatusRequest,
    SetTaskStatusResponse,
)

_GET_TASK: Final = f"/{CONSUMER_SERVICE}/GetTask"
_SET_TASK_STATUS: Final = f"/{CONSUMER_SERVICE}/SetTaskStatus"
_SET_BATCH: Final = f"/{CONSUMER_SERVICE}/SetBatchActivationStatus"
_EXCHANGE: Final = f"/{EXCHANGE_SERVICE}/ExchangeTasks"
#: The most reports and the most tasks in one call.
MAX_TOGETHER: Final = 100
#: Calls with reports that are under way at the same time: the broker works on one and the worker on the tasks of
#: another, while the third is on its way.
MAX_CALLS: Final = 3
#: Reports that are not divided between the calls: half as many would cost as much.
UNDIVIDED: Final = 8


@dataclass(eq=False, slots=True)
class _Asked:
    """A report that waits for its call, and the slot that waits for its answer."""

    request: Any
    fetch: bool
    answer: "asyncio.Future[Activation | None]"


class BrokerCalls:
    """The calls of a worker's slots to one broker; `wanted` is the choice of tasks. Make it in a running event loop.

    `unclaimed` gets a task for a slot that has stopped waiting.
    """

    def __init__(
        self, channel: TaskbrokerChannel, wanted: Mapping[str, str], unclaimed: Callable[[Activation], None]
    ) -> None:
        self._channel = channel
        self._wanted = wanted
        self._unclaimed = unclaimed
        #: Until the broker says that it has no such call.
        self._exchanges = True
        self._asked: deque[_Asked] = deque()
        #: Tasks that send what is asked, and how many of them wait for an answer.
        self._senders: set[asyncio.Task[None]] = set()
        self._under_way = 0

    async def get(self, most: int, wait_seconds: float = 0.0) -> Sequence[Activation]:
        """Return at most `most` tasks; this project's brokers wait so long for the first. Raises TaskbrokerError."""
        if self._exchanges:
            try:
                return await self._exchange([], min(most, MAX_TOGETHER), wait_seconds)
            except TaskbrokerError as error:
                if error.code != "UNIMPLEMENTED":
                    raise
                self._exchanges = False
        try:
            request = GetTaskRequest(**self._wanted)
            response = await self._channel.call(_GET_TASK, request, GetTaskResponse, wait_seconds=wait_seconds)
        except TaskbrokerError as error:
            if error.code != "NOT_FOUND":
                raise
            return ()
        return (activation_of(response.task),)

    async def report(self, task_id: str, report: FailureReport, *, fetch: bool) -> Activation | None:
        """Report a task; with `fetch`, return the next one, None for none. Raises TaskbrokerError."""
        request = SetTaskStatusRequest(id=task_id, status=int(report.outcome))
        if report.max_attempts is not None:
            request.max_attempts = report.max_attempts
        if report.delay is not None:
            request.delay_on_retry = report.delay
        asked = _Asked(request, fetch, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if len(self._senders) < MAX_CALLS:
            sender = asyncio.create_task(self._send())
            self._senders.add(sender)
        return await asked.answer

    async def close(self) -> None:
        """Close the connection; reports under way end with an error."""
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        for one in self._asked:
            one.answer.cancel()
        await self._channel.close()

    async def _send(self) -> None:
        try:
            while self._asked:
                free = MAX_CALLS - self._under_way
                some = [self._asked.popleft() for _ in range(share_of_call(len(self._asked), free))]
                self._under_way += 1
                try:
                    await self._together(some)
                except TaskbrokerError as error:
                    _fail(some, error)
                finally:
                    self._under_way -= 1
                    for one in some:
                        one.answer.cancel()
        finally:
            # At once, not by a callback: a slot that has its answer reports again before callbacks are called.
            self._senders.discard(asyncio.current_task())

    async def _together(self, some: Sequence[_Asked]) -> None:
        if self._exchanges:
            try:
                tasks = await self._exchange([one.request for one in some], sum(one.fetch for one in some))
            except TaskbrokerError as error:
                if error.code != "UNIMPLEMENTED":
                    raise
                self._exchanges = False
            else:
                left = iter(tasks)
                for one in some:
                    self._answer(one, next(left, None) if one.fetch else None)
                return
        last = [one for one in some if not one.fetch]
        batch = [self._batch(last)] if len(last) > 1 else [self._single(one) for one in last]
        await asyncio.gather(*batch, *(self._single(one) for one in some if one.fetch))

    async def _exchange(self, updates: Sequence[Any], most: int, wait_seconds: float = 0.0) -> Sequence[Activation]:
        request = ExchangeTasksRequest(updates=updates, wanted=most, **self._wanted)
        response = await self._channel.call(_EXCHANGE, request, ExchangeTasksResponse, wait_seconds=wait_seconds)
        return [activation_of(task) for task in response.tasks]

    async def _batch(self, some: Sequence[_Asked]) -> None:
        request = SetBatchActivationStatusRequest(updates=[one.request for one in some])
        try:
            await self._channel.call(_SET_BATCH, request, SetBatchActivationStatusResponse)
        except TaskbrokerError as error:
            _fail(some, error)
        for one in some:
            self._answer(one, None)

    async def _single(self, one: _Asked) -> None:
        if one.fetch:
            one.request.fetch_next_task.SetInParent()
            for name, value in self._wanted.items():
                setattr(one.request.fetch_next_task, name, value)
        try:
            response = await self._channel.call(_SET_TASK_STATUS, one.request, SetTaskStatusResponse)
        except TaskbrokerError as error:
            _fail([one], error)
        else:
            self._answer(one, activation_of(response.task) if response.HasField("task") else None)

    def _answer(self, one: _Asked, task: Activation | None) -> None:
        if not one.answer.done():
            one.answer.set_result(task)
        elif task is not None:
            self._unclaimed(task)


def share_of_call(asked: int, free: int) -> int:
    """PURE: how many of `asked` waiting reports go into the next call. `free`: calls not under way, with this one.

    Slots that get their tasks by one answer report at about the same time. In one call they would do so for ever, and
    the broker and the worker would take turns.
    """
    return min(asked, MAX_TOGETHER, max(-(-asked // free), UNDIVIDED))


def _fail(some: Sequence[_Asked], error: TaskbrokerError) -> None:
    for one in some:
        if not one.answer.done():
            one.answer.set_exception(error)

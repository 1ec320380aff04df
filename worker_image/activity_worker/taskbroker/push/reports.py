"""Reports of pushed tasks, in batches: what came while one call to a broker was under way goes into the next."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from activity_worker.taskbroker.lifecycle.attempts import FailureReport
from activity_worker.taskbroker.protocol.channel import TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import (
    CONSUMER_SERVICE,
    SetBatchActivationStatusRequest,
    SetBatchActivationStatusResponse,
    SetTaskStatusRequest,
    SetTaskStatusResponse,
)

_ONE: Final = f"/{CONSUMER_SERVICE}/SetTaskStatus"
_BATCH: Final = f"/{CONSUMER_SERVICE}/SetBatchActivationStatus"
#: The most reports in one call.
MAX_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class _Report:
    request: Any
    done: "asyncio.Future[None]"


class _Broker:
    def __init__(self, channel: TaskbrokerChannel) -> None:
        self._channel = channel
        self._waiting: list[_Report] = []
        self._sending: asyncio.Task[None] | None = None

    def add(self, report: _Report) -> None:
        self._waiting.append(report)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._send_batch(batch)
        finally:
            self._sending = None

    async def _send_batch(self, batch: Sequence[_Report]) -> None:
        error: Exception | None = None
        try:
            if len(batch) == 1:
                await self._channel.call(_ONE, batch[0].request, SetTaskStatusResponse)
            else:
                request = SetBatchActivationStatusRequest(updates=[one.request for one in batch])
                await self._channel.call(_BATCH, request, SetBatchActivationStatusResponse)
        except TaskbrokerError as refused:
            error = refused
        for one in batch:
            if one.done.done():
                continue
            if error is None:
                one.done.set_result(None)
            else:
                one.done.set_exception(error)

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        for one in self._waiting:
            one.done.cancel()
        await self._channel.close()


class PushReports:
    """Reports to the brokers of these channels, by address. `close` closes the channels, too."""

    def __init__(self, channels: Mapping[str, TaskbrokerChannel]) -> None:
        self._brokers = {address: _Broker(channel) for address, channel in channels.items()}

    async def report(self, broker: str, task_id: str, report: FailureReport) -> None:
        """Report a task to its broker; returns when the broker has it. Raises TaskbrokerError."""
        request = SetTaskStatusRequest(id=task_id, status=int(report.outcome))
        if report.max_attempts is not None:
            request.max_attempts = report.max_attempts
        if report.delay is not None:
            request.delay_on_retry = report.delay
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._brokers[broker].add(_Report(request, done))
        await done

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(broker.close() for broker in self._brokers.values()))

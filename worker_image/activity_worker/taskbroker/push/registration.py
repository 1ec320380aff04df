"""Enters a worker into the worker maps of its brokers, keeps it there, and takes it out."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from activity_worker.taskbroker.protocol.channel import TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import (
    WORKER_MAP_SERVICE,
    RegisterWorkerRequest,
    RegisterWorkerResponse,
)

log = logging.getLogger(__name__)

_REGISTER: Final = f"/{WORKER_MAP_SERVICE}/RegisterWorker"
#: Seconds until the next try after an error, and after a broker said that it has no worker map.
RETRY_SECONDS: Final = 1.0
NO_MAP_SECONDS: Final = 60.0
#: Seconds for the call by which a worker leaves.
LEAVE_SECONDS: Final = 2.0
#: Errors in a row after which one is logged.
LOGGED_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class WorkerRoom:
    """How many tasks the worker runs at once (0: it takes none), and how many it has."""

    slots: int
    busy: int


class Registrations:
    """Registers the worker at `address`, HOST:PORT, with the brokers of `channels`, by address.

    `wanted` names an application or a namespace; `room` is asked before each call. `run` goes on until cancelled.
    """

    def __init__(
        self,
        address: str,
        channels: Mapping[str, TaskbrokerChannel],
        wanted: Mapping[str, str],
        room: Callable[[], WorkerRoom],
    ) -> None:
        self._address = address
        self._channels = channels
        self._wanted = wanted
        self._room = room
        self._changes = {broker: asyncio.Event() for broker in channels}

    def changed(self) -> None:
        """Tell the brokers at once: the worker takes tasks, or none any more, or has more room than they know."""
        for change in self._changes.values():
            change.set()

    async def run(self) -> None:
        """Register again and again."""
        await asyncio.gather(*(self._keep(broker) for broker in self._channels))

    async def leave(self) -> None:
        """Tell the brokers once that the worker takes no more tasks."""
        leaving = (self._register(broker, WorkerRoom(0, 0), LEAVE_SECONDS) for broker in self._channels)
        await asyncio.gather(*leaving, return_exceptions=True)

    async def _keep(self, broker: str) -> None:
        change = self._changes[broker]
        errors = 0
        while True:
            change.clear()
            try:
                seconds = await self._register(broker, self._room(), RETRY_SECONDS * 5) / 3
            except TaskbrokerError as error:
                errors += 1
                has_map = error.code not in {"UNIMPLEMENTED", "FAILED_PRECONDITION"}
                seconds = RETRY_SECONDS if has_map else NO_MAP_SECONDS
                if errors == (LOGGED_ERRORS if has_map else 1):
                    _log_error(broker, error, has_map=has_map)
            else:
                errors = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await change.wait()

    async def _register(self, broker: str, room: WorkerRoom, seconds: float) -> float:
        request = RegisterWorkerRequest(
            address=self._address, slots=room.slots, busy=room.busy, callback_url=broker, **self._wanted
        )
        answer = await self._channels[broker].call(_REGISTER, request, RegisterWorkerResponse, seconds=seconds)
        return float(max(answer.seconds, 1))


def _log_error(broker: str, error: TaskbrokerError, *, has_map: bool) -> None:
    fix = "" if has_map else ": enter this worker's address into its own worker map, or change its delivery"
    log.warning(
        "the taskbroker takes no registration%s", fix, extra={"facts": {"taskbroker": broker, "error": error.code}}
    )

"""An in-memory source: for tests of handlers, and for trying things out with no service."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from activity_worker.contract import LeasedTask
from activity_worker.errors import LeaseLostError, SourceError

Call = Literal["lease", "heartbeat", "succeed", "fail", "confirm_cancellation"]


@dataclass(slots=True)
class Conclusion:
    """What became of a task: `output` is JSON text."""

    result: Literal["success", "failure", "cancelled"]
    output: str = field(default="", repr=False)
    error: str = ""
    cause: str = field(default="", repr=False)


class MemorySource:
    """Tasks in a queue. A poll waits up to `hold_seconds` for one.

    Tasks time out only by `expire(token)`. `request_cancel(token)` asks for a task's cancellation. `details` are those
    of each task's last heartbeat. `refuse(call, error, ...)` makes the next such calls raise.
    """

    #: Any part of the program that has a task's token may conclude the task.
    tokens_travel = True

    def __init__(self, name: str = "memory", *, hold_seconds: float = 60.0) -> None:
        self.name = name
        self.hold_seconds = hold_seconds
        self.open_polls = 0
        self.closed = False
        self.conclusions: dict[str, Conclusion] = {}
        self.heartbeats: list[str] = []
        self.details: dict[str, str] = {}
        self._cancellations: set[str] = set()
        self._waiting: deque[LeasedTask] = deque()
        self._pollers: deque[asyncio.Future[None]] = deque()
        self._leased: set[str] = set()
        self._numbers = count(1)
        self._refusals: dict[str, deque[SourceError]] = {}
        self._changed = asyncio.Event()

    def put(self, text: str = "null", token: str = "") -> str:
        """Queue a task with JSON text as its input; returns its token."""
        token = token or f"token-{next(self._numbers)}"
        self._waiting.append(LeasedTask(token, text))
        while self._pollers:
            poller = self._pollers.popleft()
            if not poller.done():
                poller.set_result(None)
                break
        return token

    def expire(self, token: str) -> None:
        """Let a leased task time out: what is said about it from now on is answered `TaskTimedOut`."""
        self._leased.discard(token)

    def request_cancel(self, token: str) -> None:
        """Ask for the cancellation of a leased task: its next heartbeat tells."""
        self._cancellations.add(token)

    def refuse(self, call: Call, *errors: SourceError) -> None:
        """Make the next calls of this kind raise these errors, in this order."""
        self._refusals.setdefault(call, deque()).extend(errors)

    async def concluded(self, token: str) -> Conclusion:
        """Wait until the task is concluded and say how."""
        while token not in self.conclusions:
            changed = self._changed
            await changed.wait()
        return self.conclusions[token]

    async def lease(self, worker_name: str) -> LeasedTask | None:  # noqa: ARG002 - the protocol's
        """Return the next task, or None after `hold_seconds`."""
        self._answer("lease")
        if not self._waiting:
            await self._hold()
        if not self._waiting:
            return None
        task = self._waiting.popleft()
        self._leased.add(task.token)
        return task

    async def heartbeat(self, token: str) -> None:
        """Note a heartbeat."""
        await self.heartbeat_with(token, "")

    async def heartbeat_with(self, token: str, details: str) -> bool:
        """Note a heartbeat and its details; return whether the task's cancellation is requested."""
        self._answer("heartbeat", token)
        self.heartbeats.append(token)
        self.details[token] = details
        return token in self._cancellations

    async def succeed(self, token: str, output: str) -> None:
        """Note a success."""
        self._answer("succeed", token)
        self._conclude(token, Conclusion("success", output=output))

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Note a failure."""
        self._answer("fail", token)
        self._conclude(token, Conclusion("failure", error=error, cause=cause))

    async def confirm_cancellation(self, token: str, details: str) -> None:
        """Note a cancellation."""
        self._answer("confirm_cancellation", token)
        self._conclude(token, Conclusion("cancelled", cause=details))

    async def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True

    async def _hold(self) -> None:
        poller: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pollers.append(poller)
        self.open_polls += 1
        try:
            await asyncio.wait((poller,), timeout=self.hold_seconds)
        finally:
            self.open_polls -= 1
            if not poller.done():
                poller.cancel()

    def _answer(self, call: Call, token: str | None = None) -> None:
        refusals = self._refusals.get(call)
        if refusals:
            raise refusals.popleft()
        if token is not None and token not in self._leased:
            raise LeaseLostError("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")

    def _conclude(self, token: str, conclusion: Conclusion) -> None:
        self._leased.discard(token)
        self.conclusions[token] = conclusion
        self._changed.set()
        self._changed = asyncio.Event()

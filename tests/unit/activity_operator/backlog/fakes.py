"""A task service in memory; a poll waits until a task arrives or `hold` seconds have passed."""

import asyncio
from collections import deque
from typing import Any

from activity_operator.backlog.protocol import Key, LeaseCounts, PollTarget
from activity_operator.backlog.sentinel import Sentinels
from activity_worker.contract import LeasedTask
from tests.unit.activity_operator.virtual_time import elapsed, wall

TARGET = PollTarget("arn:aws:states:us-east-1:123456789012:activity:resize")
KEY = ("media", "resize")


class Polls:
    """Holds each poll for `hold` seconds; `put` answers the oldest open one. `problems` are raised first."""

    def __init__(self, hold: float = 60.0) -> None:
        self.hold = hold
        self.opened: list[tuple[float, PollTarget]] = []
        self.waiting: deque[asyncio.Future[LeasedTask]] = deque()
        self.queued: deque[LeasedTask] = deque()
        self.problems: deque[Exception] = deque()
        self.always: Exception | None = None
        self.aborted = 0

    def put(self, token: str) -> None:
        """Let a task arrive."""
        task = LeasedTask(token, "{}")
        while self.waiting:
            poll = self.waiting.popleft()
            if not poll.done():
                poll.set_result(task)
                return
        self.queued.append(task)

    async def poll(self, target: PollTarget) -> LeasedTask | None:
        self.opened.append((elapsed(), target))
        if self.always or self.problems:
            await asyncio.sleep(0.01)
            raise self.always or self.problems.popleft()
        if self.queued:
            return self.queued.popleft()
        poll: asyncio.Future[LeasedTask] = asyncio.get_running_loop().create_future()
        self.waiting.append(poll)
        try:
            async with asyncio.timeout(self.hold):
                return await poll
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            self.aborted += 1
            raise

    async def heartbeat(self, target: PollTarget, token: str) -> None:
        raise NotImplementedError

    async def fail(self, target: PollTarget, token: str, error: str, cause: str) -> None:
        raise NotImplementedError

    @property
    def times(self) -> list[float]:
        """Return when polls were opened, in seconds since the start of the test."""
        return [round(at, 2) for at, _ in self.opened]


class PolledSentinels:
    """Sentinels over `Polls`, with the received tasks and the notified keys; received tasks count as held."""

    def __init__(self, polls: Polls) -> None:
        self.polls = polls
        self.received: list[tuple[Key, str, PollTarget, str]] = []
        self.changes: list[Key] = []
        self.holdings = LeaseCounts()
        self.sentinels = Sentinels(
            polls,
            holdings=lambda key: self.holdings,
            on_task=self._take,
            on_change=self.changes.append,
            now=wall,
            jitter=lambda: 1.0,
        )

    def _take(self, key: Key, pool_uid: str, target: PollTarget, task: LeasedTask) -> None:
        self.received.append((key, pool_uid, target, task.token))
        self.holdings = LeaseCounts(unrecorded=self.holdings.unrecorded + 1)

    @property
    def tokens(self) -> list[str]:
        return [token for *_, token in self.received]


class AnsweringClient:
    """A client of a task service: each call returns or raises the given answer. Subclasses have the service's calls."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.calls: list[tuple[str, ...]] = []
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    async def _answer(self, *call: str) -> Any:
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

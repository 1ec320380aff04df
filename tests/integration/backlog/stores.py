"""Task stores with instances, and the operator's counter beside them."""

import time
import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import insert

from activity_operator.backlog.poll_rounds import BacklogPoller, SourceEndpoint
from activity_operator.backlog.taskstore import TaskStoreReader, item
from activity_worker.steps.model.definition_parser import parse
from activity_worker.steps.model.instance import create_instance
from activity_worker.steps.store.task_store import TaskStore
from activity_worker.wire.taskstore import DEFINITIONS, INSTANCES
from tests.eventually import eventually

KEY = ("team", "orders")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[TaskStore]:
    """Yield a store with its tables."""
    store = await TaskStore.open(url)
    try:
        yield store
    finally:
        await store.close()


async def put(store: TaskStore, task: str = "order", *, at: float | None = None, count: int = 1) -> None:
    """Create instances as a program does: announced, and due at `at` or now."""
    definition = parse({"name": task, "steps": ["a"]})
    await store.sync(definition, time.time())
    for _ in range(count):
        made = create_instance(definition, {}, now=time.time() if at is None else at)
        assert await store.create(made, time.time())


async def fill(store: TaskStore, rows: Iterable[dict[str, Any]]) -> None:
    """Insert instances in any state, without an announcement; fields that a count does not read have defaults."""
    rest = {"definition_id": "d", "data": {}, "status": {}, "success": False, "request": "", "revision": 1}
    rest |= {"runner": "", "created": 0.0, "updated": 0.0}
    async with store.engine.begin() as connection:
        await connection.execute(insert(DEFINITIONS), {"id": "d", "name": "any", "source": {}, "created": 0.0})
        await connection.execute(insert(INSTANCES), [{"id": uuid.uuid4().hex, **rest, **row} for row in rows])


class Watched:
    """One pool's count of a store. It polls so seldom that only announcements can bring changes.

    `tasks` and `reason` are the number of waiting tasks and the error's reason at the last call of `on_change`.
    """

    def __init__(self, url: str, tasks: tuple[str, ...] = (), *, interval: float = 60.0) -> None:
        self.rounds: list[tuple[str, float]] = []
        self.tasks: int | None = None
        self.reason = ""
        self.counter = TaskStoreReader()
        self.counter.observed = self._observed
        self.counting = BacklogPoller(self.counter, exact=True, on_change=self._change, now=time.time)
        self.counting.order(KEY, SourceEndpoint(url, interval), item(tasks))

    def _observed(self, operation: str, code: int, outcome: str, seconds: float) -> None:
        self.rounds.append((outcome, time.monotonic()))

    def _change(self, key: tuple[str, str]) -> None:
        count, error = self.counting.latest(KEY)
        self.tasks = None if count is None else count.tasks
        self.reason = "" if error is None else error.reason

    async def until(self, tasks: int, seconds: float = 30.0) -> None:
        """Wait until `tasks` tasks are counted, without an error."""
        await eventually(
            f"{tasks} tasks are counted",
            lambda: self.tasks == tasks and not self.reason,
            seconds=seconds,
            every_seconds=0.01,
            details=lambda: (self.tasks, self.reason),
        )

    async def until_fails(self) -> str:
        """Wait until the count fails; return the reason."""
        return await eventually("the count fails", lambda: self.reason)


@asynccontextmanager
async def watched(url: str, *tasks: str, interval: float = 60.0) -> AsyncIterator[Watched]:
    """Yield a count, which is stopped at the end."""
    one = Watched(url, tasks, interval=interval)
    try:
        yield one
    finally:
        await one.counting.stop()

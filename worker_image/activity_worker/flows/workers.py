"""Workers of a flow's queues in this process: for small programs, for parents, and for tests.

    async with Flow.open(SHOP, url) as flow:
        workers = FlowWorkers(flow)
        workers.serve("prepare", prepare)
        workers.parents("check")
        workers.serve("check:stock", look_up_stock, count=4)
        async with workers:
            ...

In a cluster a pool works on a queue instead, each with as many workers as it needs.
"""

from dataclasses import dataclass
from typing import Self

from activity_worker.contract import ExitOutput
from activity_worker.events import EventEmitter
from activity_worker.flows.children import CHECK_SECONDS, parent_handler
from activity_worker.flows.definition import FlowError, FlowQueue
from activity_worker.flows.flow import Flow
from activity_worker.handlers.signature import Handler
from activity_worker.runtime.consumer import ActivityConsumer
from activity_worker.runtime.lifecycle import SlotStatus
from activity_worker.runtime.options import Polling, TaskOptions
from activity_worker.runtime.slot_pool import SlotPool
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import RedisQueue

#: Heartbeats are a third of what a lease lasts, and no rarer than the runtime's own.
_MOST_HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _QueueWorkers:
    """Workers of one queue, all alike."""

    flow_queue: FlowQueue
    handler: Handler
    attributes: tuple[str, ...]
    count: int
    renew_lock: bool


class FlowWorkers:
    """Runs workers, each of which does one job after the other: lease, handler, complete or fail, again.

    A handler gets a `TaskRequest` whose `input` is the job: its `id` and the attributes of the queue. What it returns,
    an object, is saved in the job; its `nextQueue` says where the job goes. Jobs are also failed when a handler runs
    longer than its queue's `lock_seconds`, unless its lock is renewed.
    """

    def __init__(self, flow: Flow, *, events: EventEmitter | None = None) -> None:
        self._flow = flow
        self._events = events
        self._posts: list[_QueueWorkers] = []
        self._consumer: ActivityConsumer | None = None

    @property
    def status(self) -> SlotStatus:
        """Where they are in their lifecycle: ready, starting, running, stopping, stopped."""
        return SlotStatus.READY if self._consumer is None else self._consumer.status

    def serve(self, queue: str, handler: Handler, count: int = 1, *, renew_lock: bool = False) -> None:
        """Let `count` workers run `handler` on a queue's jobs; a child queue is PARENT:CHILD. Before `start`."""
        flow_queue = self._flow.definition.flow_queue(queue)
        self._add(_QueueWorkers(flow_queue, handler, flow_queue.queue.attributes, count, renew_lock))

    def parents(self, queue: str, count: int = 1, *, check_seconds: float = CHECK_SECONDS) -> None:
        """Let `count` workers make the children of a queue's jobs and wait for them, as long as that takes.

        They look every `check_seconds` (1) and renew their locks meanwhile. Before `start`.
        """
        flow_queue = self._flow.definition.flow_queue(queue)
        if not flow_queue.queue.children:
            raise FlowError(f"queue {queue}: has no children to wait for: give it some, or use serve")
        handler = parent_handler(self._flow.client, flow_queue, self._flow.definition.keep_seconds, check_seconds)
        self._add(_QueueWorkers(flow_queue, handler, (), count, renew_lock=True))

    async def start(self) -> None:
        """Begin to work. Stopped workers may be started again. Raises `FlowError` when there are none."""
        await self._made().start()

    async def stop(self, *, timeout_seconds: float | None = None) -> None:
        """Take no new jobs, finish those under way, and end.

        After `timeout_seconds` (None: never) handlers are cancelled and their jobs failed. A parent waits for its
        children until then; its job is not failed, but waits for another worker.
        """
        if self._consumer is not None:
            await self._consumer.stop(timeout_seconds=timeout_seconds)

    async def run(self, *, timeout_seconds: float | None = None) -> ExitOutput:
        """Start, work until SIGTERM or SIGINT, stop, and say how it ended."""
        return await self._made().run(timeout_seconds=timeout_seconds)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _add(self, post: _QueueWorkers) -> None:
        if self._consumer is not None:
            raise FlowError(f"queue {post.flow_queue.name}: workers are added before start")
        self._posts.append(post)

    def _made(self) -> ActivityConsumer:
        if self._consumer is None:
            if not self._posts:
                raise FlowError(f"flow {self._flow.definition.name}: no workers: use serve or parents first")
            self._consumer = ActivityConsumer([self._pool(post) for post in self._posts])
        return self._consumer

    def _pool(self, post: _QueueWorkers) -> SlotPool:
        flow_queue = post.flow_queue
        lock_seconds = flow_queue.queue.lock_seconds
        queue = RedisQueue(
            flow_queue.flow,
            flow_queue.name,
            post.attributes,
            flow_queue.queue.next_queue,
            lock_seconds,
            post.renew_lock,
            flow_queue.queue.block_seconds,
        )
        options = TaskOptions(
            heartbeat_seconds=min(lock_seconds / 3, _MOST_HEARTBEAT_SECONDS),
            deadline_seconds=None if post.renew_lock else float(lock_seconds),
        )
        return SlotPool(
            RedisSource(self._flow.client, queue),
            post.handler,
            slots=post.count,
            events=self._events,
            polling=Polling.forever(),
            options=options,
        )

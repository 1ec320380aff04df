"""One queue between two others, its jobs, and functions that show where a job is."""

from dataclasses import dataclass
from typing import Any

from activity_worker.flows import LockMonitor, MonitorOptions
from activity_worker.sources.redis import RedisSource
from activity_worker.sources.redis_job import RedisQueue
from activity_worker.sources.redis_recovery import LOOKS, QueueRecovery
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient, open_client

FLOW = "shop"
QUEUE = RedisQueue(FLOW, "pack", ("order", "absent"), next_queue="send", lock_seconds=60, block_seconds=0.02)


@dataclass(frozen=True)
class Whereabouts:
    """Where a job is: how often in each list, and the content of its hash."""

    waiting: int
    processing: int
    sent: int
    lock: str | None
    fields: dict[str, Any]

    @property
    def failed(self) -> bool:
        return bool(self.fields.get("failed"))

    @property
    def ended_once(self) -> bool:
        """Whether it has left the queue in exactly one way."""
        ended = (self.sent, self.failed) in {(1, False), (0, True)}
        return ended and self.waiting == self.processing == 0 and self.lock is None


def source(url: str, *, atomic: bool, queue: RedisQueue = QUEUE) -> RedisSource:
    """Return a worker's source that does not look for the jobs of dead workers."""
    return RedisSource(open_client(url), queue, atomic=atomic, owns_client=True)


async def create(client: RedisClient, job_id: str = "j1", queue: RedisQueue = QUEUE, **fields: Any) -> None:
    """Make a job as a flow does."""
    pairs = keys.pairs({"order": {"n": 1}, **fields})
    await client.transaction(
        [("HSET", keys.job(queue.flow, job_id), *pairs), ("RPUSH", keys.waiting(queue.name), job_id)]
    )


async def whereabouts(client: RedisClient, job_id: str = "j1", queue: RedisQueue = QUEUE) -> Whereabouts:
    """Return where a job is."""
    waiting, processing, sent, lock, stored = await client.pipeline(
        [
            ("LRANGE", keys.waiting(queue.name), 0, -1),
            ("LRANGE", keys.processing(queue.name), 0, -1),
            ("LRANGE", keys.waiting(queue.next_queue), 0, -1),
            ("GET", keys.lock(queue.name, job_id)),
            ("HGETALL", keys.job(queue.flow, job_id)),
        ]
    )
    fields = {name: keys.decode(value) for name, value in zip(stored[::2], stored[1::2], strict=True)}
    return Whereabouts(waiting.count(job_id), processing.count(job_id), sent.count(job_id), lock, fields)


async def let_locks_expire(client: RedisClient) -> None:
    """Let every lock expire."""
    for key in await client.call("KEYS", "lock:*"):
        await client.call("DEL", key)


async def recover(client: RedisClient, queue: RedisQueue = QUEUE) -> None:
    """Look as often as a worker looks until it puts a lost job back, or fails it."""
    recovery = QueueRecovery(client, queue)
    for _ in range(LOOKS):
        assert await recovery.look() is not None
    await recovery.stop()


async def monitor(client: RedisClient, requeue: int = 0) -> None:
    """Run the flow's monitor long enough to act on lost jobs."""
    looking = LockMonitor(client, [(FLOW, QUEUE.name)], MonitorOptions(requeue=requeue))
    await looking.look(0.0)
    await looking.look(60.0)

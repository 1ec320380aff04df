"""How a job of a Redis queue is taken and concluded with one step of the server each, fenced by its lock.

The keys and values are the dialect's, so that its flows see no difference. Unlike the dialect it needs no monitor:
workers themselves put back what is under way without a lock.
"""

import asyncio
from typing import Final

from activity_worker.sources.redis_job import JobLock, JobResult, LockedJob, RedisQueue
from activity_worker.sources.redis_operations import job_moved, lock_lost
from activity_worker.sources.redis_scripts import COMPLETE, FAIL, LEASE, RECOVER, RENEW, RETURN
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError

#: Seconds between two looks for jobs under way without a lock; one that has none twice is recovered. That is long
#: beside the moment in which a worker of the plain dialect has moved a job and not locked it yet.
LOOK_SECONDS: Final = 10.0
#: How often a job is put back whose workers fall silent; the next time it fails.
MOST_RECOVERIES: Final = 3


class AtomicOperations:
    """The steps of the dialect as scripts. `look_seconds` is for tests."""

    def __init__(self, client: RedisClient, queue: RedisQueue, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._client = client
        self._queue = queue
        self._waiting: Final = keys.waiting(queue.name)
        self._processing: Final = keys.processing(queue.name)
        #: For tests: 0 looks at every poll.
        self.look_seconds = min(look_seconds, float(queue.lock_seconds))
        self._looked = float("-inf")
        self._unlocked: list[str] = []
        #: Owners whose leases were asked for and not answered.
        self._unanswered: list[str] = []
        self._waits = asyncio.Lock()

    async def take(self, owner: str) -> LockedJob | None:
        """Lease, or wait until there is something and lease then."""
        await self._recover()
        if (taken := await self._lease(owner)) is not None:
            return taken
        seconds = self._queue.block_seconds
        try:
            await asyncio.wait_for(self._waits.acquire(), seconds)
        except TimeoutError:
            return None
        # One slot waits for all, until there is something, without taking it: a first element moves to where it is.
        try:
            there = await self._client.call_blocking(
                "BLMOVE", self._waiting, self._waiting, "LEFT", "LEFT", seconds, seconds=seconds
            )
            return None if there is None else await self._lease(owner)
        finally:
            self._waits.release()

    async def renew(self, lease: JobLock) -> None:
        """Compare and prolong, or compare."""
        lock = keys.lock(self._queue.name, lease.job_id)
        if self._queue.renew_lock:
            if not await RENEW.run(self._client, [lock], lease.owner, self._queue.lock_for):
                raise lock_lost()
        elif await self._client.call("GET", lock) != lease.owner:
            raise lock_lost()

    async def complete(self, lease: JobLock, result: JobResult) -> None:
        """All at once, or nothing."""
        onward = keys.waiting(result.next_queue) if result.next_queue else self._lock(lease)
        named = [*self._keys(lease), onward]
        onward_too = int(bool(result.next_queue))
        _judge(
            await COMPLETE.run(
                self._client, named, lease.owner, lease.job_id, onward_too, keys.KEEP_SECONDS, *result.pairs
            )
        )

    async def fail(self, lease: JobLock, fields: list[str]) -> None:
        """All at once, or nothing."""
        _judge(await FAIL.run(self._client, self._keys(lease), lease.owner, lease.job_id, keys.KEEP_SECONDS, *fields))

    async def give_back(self, lease: JobLock) -> None:
        """Put it to the front of those that wait."""
        named = [self._lock(lease), self._waiting, self._processing]
        await RETURN.run(self._client, named, lease.owner, lease.job_id)

    async def leave(self) -> None:
        """Ask again for what was asked for and not answered; what comes instead goes back, too."""
        while self._unanswered:
            if (taken := await self._lease("")) is not None:
                await self.give_back(JobLock(self._queue.name, taken.job_id, taken.owner))

    async def _lease(self, owner: str) -> LockedJob | None:
        again = bool(self._unanswered)
        owner = self._unanswered.pop() if again else owner
        queue = self._queue
        try:
            found = await LEASE.run(
                self._client,
                [self._waiting, self._processing],
                owner,
                queue.lock_for,
                keys.lock(queue.name, ""),
                keys.job(queue.flow, ""),
                int(again),
                *queue.attributes,
            )
        except RedisError as error:
            if error.retryable:
                self._unanswered.append(owner)
            raise
        return None if found is None else LockedJob(found[0], owner, found[1:])

    async def _recover(self) -> None:
        """Look for jobs without a lock, one slot for all and not too often."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < self.look_seconds:
            return
        self._looked, seen = now, self._unlocked
        queue = self._queue
        failure = keys.pairs(keys.failure(queue.name, f"{queue.name} lock time exceeded"))
        self._unlocked = await RECOVER.run(
            self._client,
            [self._waiting, self._processing],
            keys.lock(queue.name, ""),
            keys.job(queue.flow, ""),
            MOST_RECOVERIES,
            keys.retries(queue.name),
            *failure,
            *seen,
        )

    def _keys(self, lease: JobLock) -> list[str]:
        return [self._lock(lease), keys.job(self._queue.flow, lease.job_id), self._processing]

    def _lock(self, lease: JobLock) -> str:
        return keys.lock(self._queue.name, lease.job_id)


def _judge(answer: int) -> None:
    if answer == 0:
        raise lock_lost()
    if answer < 0:
        raise job_moved()

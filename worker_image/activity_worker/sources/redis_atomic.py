"""How a job of a Redis queue is taken and concluded with scripts on the server, fenced by its lock.

The keys and values are the dialect's, so that its flows see no difference.
"""

import asyncio
from typing import Any, Final

from activity_worker.sources.redis_job import JobLock, JobResult, LockedJob, RedisQueue, too_large
from activity_worker.sources.redis_operations import job_moved, lock_lost
from activity_worker.sources.redis_scripts import COMPLETE, FAIL, LEASE, LOCK, RENEW, RETURN
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import ANSWER_TOO_LARGE, RedisError


class AtomicOperations:
    """The steps of the dialect as scripts."""

    def __init__(self, client: RedisClient, queue: RedisQueue) -> None:
        self._client = client
        self._queue = queue
        self._waiting: Final = keys.waiting(queue.name)
        self._processing: Final = keys.processing(queue.name)
        #: Owners whose leases were asked for and not answered.
        self._unanswered: list[str] = []
        #: Jobs that were moved for us, whose locks were asked for and not answered.
        self._unlocked: list[tuple[str, str]] = []
        self._waits = asyncio.Lock()
        #: Whether the last poll found nothing, so that the next one waits at once.
        self._empty = False

    async def take(self, owner: str) -> LockedJob | None:
        """Lease, or wait until there is something and lock it then."""
        while self._unlocked:
            if (taken := await self._lock_moved(*self._unlocked.pop())) is not None:
                return taken
        if (self._unanswered or not self._empty) and (taken := await self._lease(owner)) is not None:
            return taken
        self._empty = True
        seconds = self._queue.block_seconds
        try:
            # One slot waits for all of this worker.
            async with asyncio.timeout(seconds):
                await self._waits.acquire()
        except TimeoutError:
            return None
        # The server moves a job for one of all workers that wait. A list that moved to itself would wake all of them.
        try:
            job_id = await self._client.call_blocking(
                "BLMOVE", self._waiting, self._processing, "LEFT", "RIGHT", seconds, seconds=seconds
            )
        finally:
            self._waits.release()
        if job_id is None:
            return None
        # Behind the first job there may be more, which one step leases.
        self._empty = False
        return await self._lock_moved(job_id, owner)

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
        while self._unlocked or self._unanswered:
            moved = self._unlocked.pop() if self._unlocked else None
            taken = await (self._lease("") if moved is None else self._lock_moved(*moved))
            if taken is not None:
                await self.give_back(JobLock(self._queue.name, taken.job_id, taken.owner))

    async def _lease(self, owner: str) -> LockedJob | None:
        again = bool(self._unanswered)
        owner = self._unanswered.pop() if again else owner
        try:
            found = await self._run_lease(owner, again=again)
        except RedisError as error:
            if error.code == ANSWER_TOO_LARGE:
                found = await self._run_lease(owner, again=True, attributes=())
                await self._fail_too_large(str(found[0]), owner, error)
                return None
            if error.retryable:
                self._unanswered.append(owner)
            raise
        return None if found is None else LockedJob(found[0], owner, found[1:])

    async def _run_lease(self, owner: str, *, again: bool, attributes: tuple[str, ...] | None = None) -> Any:
        queue = self._queue
        return await LEASE.run(
            self._client,
            [self._waiting, self._processing],
            owner,
            queue.lock_for,
            keys.lock(queue.name, ""),
            keys.job(queue.flow, ""),
            int(again),
            *(queue.attributes if attributes is None else attributes),
        )

    async def _lock_moved(self, job_id: str, owner: str) -> LockedJob | None:
        """Lock a job that the server moved for us, unless another worker has it or it has left."""
        lease = JobLock(self._queue.name, job_id, owner)
        try:
            found = await LOCK.run(
                self._client, self._keys(lease), owner, job_id, self._queue.lock_for, *self._queue.attributes
            )
        except RedisError as error:
            if error.code == ANSWER_TOO_LARGE:
                await self._fail_too_large(job_id, owner, error)
                return None
            self._unlocked.append((job_id, owner))
            raise
        return None if found is None else LockedJob(job_id, owner, found)

    async def _fail_too_large(self, job_id: str, owner: str, error: RedisError) -> None:
        await self.fail(JobLock(self._queue.name, job_id, owner), too_large(error.message, self._queue))

    def _keys(self, lease: JobLock) -> list[str]:
        return [self._lock(lease), keys.job(self._queue.flow, lease.job_id), self._processing]

    def _lock(self, lease: JobLock) -> str:
        return keys.lock(self._queue.name, lease.job_id)


def _judge(answer: int) -> None:
    if answer == 0:
        raise lock_lost()
    if answer < 0:
        raise job_moved()

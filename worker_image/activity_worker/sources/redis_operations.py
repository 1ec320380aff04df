"""How a job of a Redis queue is taken and concluded: with the published dialect's commands, one after the other."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from activity_worker.errors import LeaseLostError
from activity_worker.sources.redis_job import JobLock, JobResult, LockedJob, RedisQueue, too_large
from activity_worker.sources.redis_scripts import RENEW
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import ANSWER_TOO_LARGE, RedisError


class JobOperations(Protocol):
    """What a source does with jobs. Every method raises `RedisError`; conclusions raise `LeaseLostError` too."""

    async def take(self, owner: str) -> LockedJob | None:
        """Wait for a job and lock it for `owner`; None when none came in time."""
        ...

    async def renew(self, lease: JobLock) -> None:
        """Prolong the lock if the queue says so, and see whether it is ours."""
        ...

    async def complete(self, lease: JobLock, result: JobResult) -> None:
        """Save a result and pass the job on."""
        ...

    async def fail(self, lease: JobLock, fields: list[str]) -> None:
        """Save a failure and take the job out of the queue."""
        ...

    async def give_back(self, lease: JobLock) -> None:
        """Put a job that was not begun back to where it was."""
        ...

    async def leave(self) -> None:
        """Give back the jobs that were asked for without an answer."""
        ...


def lock_lost() -> LeaseLostError:
    """Return the error for a lock that is gone or another worker's."""
    return LeaseLostError("LockLost", "the job's lock has expired, or belongs to another worker")


def job_moved() -> LeaseLostError:
    """Return the error for a job that left the queue although its lock was ours."""
    return LeaseLostError("JobMoved", "the job had left the queue although its lock was ours; nothing was passed on")


class DialectOperations:
    """The dialect, byte for byte. Between two of its commands anything may happen: see docs/redis.md."""

    def __init__(self, client: RedisClient, queue: RedisQueue) -> None:
        self._client = client
        self._queue = queue
        self._waiting: Final = keys.waiting(queue.name)
        self._processing: Final = keys.processing(queue.name)
        #: Jobs that were moved for us and not locked, because the server went away in between.
        self._unlocked: list[tuple[str, str]] = []

    async def take(self, owner: str) -> LockedJob | None:
        """BLMOVE, SET, HMGET; first of all what was moved and could not be locked."""
        while self._unlocked:
            if (taken := await self._adopt(*self._unlocked.pop())) is not None:
                return taken
        seconds = self._queue.block_seconds
        job_id = await self._client.call_blocking(
            "BLMOVE", self._waiting, self._processing, "LEFT", "RIGHT", seconds, seconds=seconds
        )
        return None if job_id is None else await self._lock(job_id, owner)

    async def renew(self, lease: JobLock) -> None:
        """Compare and prolong, or compare."""
        lock = keys.lock(self._queue.name, lease.job_id)
        if self._queue.renew_lock:
            if not await RENEW.run(self._client, [lock], lease.owner, self._queue.lock_for):
                raise lock_lost()
        elif await self._client.call("GET", lock) != lease.owner:
            raise lock_lost()

    async def complete(self, lease: JobLock, result: JobResult) -> None:
        """GET, HSET, then RPUSH, LREM and DEL in a transaction; undone when the job had left."""
        call, lock = self._client.call, keys.lock(self._queue.name, lease.job_id)
        if await call("GET", lock) != lease.owner:
            raise lock_lost()
        await call("HSET", keys.job(self._queue.flow, lease.job_id), *result.pairs)
        onward = keys.waiting(result.next_queue)
        commands: list[tuple[str | int, ...]] = [("LREM", self._processing, 1, lease.job_id), ("DEL", lock)]
        if result.next_queue:
            commands.insert(0, ("RPUSH", onward, lease.job_id))
        removed = (await self._client.transaction(commands))[-2]
        if not removed:
            if result.next_queue:
                # From the end, where it was just put, and from the queue that it really went to.
                await call("LREM", onward, -1, lease.job_id)
            raise job_moved()

    async def fail(self, lease: JobLock, fields: list[str]) -> None:
        """HSET, then LREM and DEL in a transaction."""
        call, lock = self._client.call, keys.lock(self._queue.name, lease.job_id)
        owner = await call("GET", lock)
        if owner not in {lease.owner, None}:
            raise lock_lost()
        # The lock has expired. If the job is still here, no monitor has cleaned up yet.
        if owner is None and await call("LPOS", self._processing, lease.job_id) is None:
            raise lock_lost()
        await call("HSET", keys.job(self._queue.flow, lease.job_id), *fields)
        commands = [("LREM", self._processing, 1, lease.job_id), ("DEL", lock)]
        if not (await self._client.transaction(commands))[0]:
            raise job_moved()

    async def give_back(self, lease: JobLock) -> None:
        """Put it to the front of those that wait."""
        lock = keys.lock(self._queue.name, lease.job_id)
        if await self._client.call("GET", lock) != lease.owner:
            return
        removed, _, _ = await self._client.transaction(
            [("LREM", self._processing, 1, lease.job_id), ("LPUSH", self._waiting, lease.job_id), ("DEL", lock)]
        )
        if not removed:
            await self._client.call("LREM", self._waiting, 1, lease.job_id)

    async def leave(self) -> None:
        """Lock what could not be locked, so that it is ours to give back."""
        while self._unlocked:
            if (taken := await self._adopt(*self._unlocked.pop())) is not None:
                await self.give_back(JobLock(self._queue.name, taken.job_id, taken.owner))

    async def _lock(self, job_id: str, owner: str, *words: str) -> LockedJob | None:
        """Lock a job and get its attributes; with NX only if it has no lock, with XX only if it has one."""
        lock = keys.lock(self._queue.name, job_id)
        commands: list[tuple[str | int, ...]] = [("SET", lock, owner, "EX", self._queue.lock_for, *words)]
        commands += [_get(keys.job(self._queue.flow, job_id), self._queue.attributes)]
        try:
            locked, *found = await self._client.pipeline(commands[: 1 + bool(self._queue.attributes)])
        except RedisError as error:
            if error.code == ANSWER_TOO_LARGE:
                # The lock was set before the attributes were read.
                lease = JobLock(self._queue.name, job_id, owner)
                await self.fail(lease, too_large(error.message, self._queue))
                return None
            if error.code != "WRONGTYPE":
                self._unlocked.append((job_id, owner))
                raise
            # Under the job's name lies something else: it has no attributes, and its handler will find that out.
            locked, found = "OK", [[None] * len(self._queue.attributes)]
        values: list[Any] = found[0] if found else []
        return LockedJob(job_id, owner, values) if locked else None

    async def _adopt(self, job_id: str, owner: str) -> LockedJob | None:
        """Lock a job that was moved for us before the server went away, unless another worker has it or it has left."""
        try:
            locked = await self._client.call("GET", keys.lock(self._queue.name, job_id))
            there = await self._client.call("LPOS", self._processing, job_id)
        except RedisError:
            self._unlocked.append((job_id, owner))
            raise
        if there is None or locked not in {None, owner}:
            return None
        return await self._lock(job_id, owner, "NX" if locked is None else "XX")


def _get(job: str, attributes: Sequence[str]) -> tuple[str, ...]:
    return ("HMGET", job, *attributes)

"""The queues of a Redis flow as a source: a job is a task, its lock is the lease."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from activity_worker.contract import Env, LeasedTask
from activity_worker.errors import DeniedError, LeaseLostError, MissingError, SourceError, UnreachableError
from activity_worker.sources.redis_atomic import AtomicOperations
from activity_worker.sources.redis_job import JobLock, RedisQueue, failure_of, input_of, result_of
from activity_worker.sources.redis_operations import DialectOperations, JobOperations
from activity_worker.sources.redis_recovery import QueueRecovery
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError, RedisErrorKind
from activity_worker.wire.redis_topology import check_tags
from activity_worker.wire.redis_url import TopologyKind

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_KINDS: Final[dict[RedisErrorKind, type[SourceError]]] = {
    RedisErrorKind.UNREACHABLE: UnreachableError,
    RedisErrorKind.TLS: UnreachableError,
    RedisErrorKind.DENIED: DeniedError,
    RedisErrorKind.MISSING: MissingError,
    RedisErrorKind.REFUSED: SourceError,
}
#: What to do about a password that is missing or refused. A worker that runs keeps the URL with which it was started.
_FIX: Final = (
    f"correct the user or the password in {Env.REDIS_URL}; in a pool, in its Secret in spec.source.redis; "
    "and start the worker again"
)
_PASSWORDS: Final = frozenset({"NOAUTH", "WRONGPASS"})


class RedisSource:
    """One queue of a flow. `client` is closed with it when `owns_client`; `atomic` says how jobs are concluded.

    `recovers`: from its first poll on it puts back the jobs of the queue's dead workers, in turn with other workers
    (default: no). Raises `ValueError` for names that a cluster would spread over several slots.
    """

    def __init__(
        self,
        client: RedisClient,
        queue: RedisQueue,
        *,
        atomic: bool = False,
        owns_client: bool = False,
        recovers: bool = False,
    ) -> None:
        self._in_cluster = client.url.kind is TopologyKind.CLUSTER
        if self._in_cluster:
            check_tags(queue.flow, queue.name, queue.next_queue or queue.name)
        self.name = keys.waiting(queue.name)
        self._client = client
        self._queue = queue
        self._owns_client = owns_client
        self._id = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._steps: JobOperations = AtomicOperations(client, queue) if atomic else DialectOperations(client, queue)
        self._recovery = QueueRecovery(client, queue) if recovers else None
        self._giving_back: set[asyncio.Task[None]] = set()
        #: Conclusions that were sent and not answered.
        self._unanswered: set[JobLock] = set()

    async def lease(self, worker_name: str) -> LeasedTask | None:
        """Wait for a job, 3 s by default. Cancelling it gives back the job that comes all the same."""
        if self._recovery is not None:
            self._recovery.begin()
        taking = asyncio.create_task(self._take(worker_name))
        try:
            found = await asyncio.shield(taking)
        except asyncio.CancelledError:
            giving = asyncio.create_task(self._give_back(taking))
            self._giving_back.add(giving)
            giving.add_done_callback(self._giving_back.discard)
            raise
        if found is None:
            return None
        lease, values = found
        return LeasedTask(lease.token, input_of(lease.job_id, self._queue.attributes, values))

    async def heartbeat(self, token: str) -> None:
        """See whether the job is still ours, and prolong its lock where the queue says so."""
        await _translated(self._steps.renew(JobLock.of(token)))

    async def succeed(self, token: str, output: str) -> None:
        """Save the result, which is a JSON object, and pass the job on."""
        lease, result = JobLock.of(token), result_of(output, self._queue)
        if self._in_cluster and result.next_queue:
            try:
                check_tags(self._queue.name, result.next_queue)
            except ValueError as error:
                raise SourceError("CROSSSLOT", str(error)) from None
        await self._conclude(lease, lambda: self._steps.complete(lease, result), failed=False)

    async def fail(self, token: str, error: str, cause: str) -> None:
        """Save the failure; the job leaves the queue."""
        lease, fields = JobLock.of(token), failure_of(error, cause, self._queue)
        await self._conclude(lease, lambda: self._steps.fail(lease, fields), failed=True)

    async def close(self) -> None:
        """Give back what is not begun, and close the client if it is ours."""
        if self._giving_back:
            await asyncio.wait(self._giving_back)
        if self._recovery is not None:
            await self._recovery.stop()
        try:
            await _translated(self._steps.leave())
        except SourceError as error:
            _log.warning("a job that was taken and not begun stays taken until its lock runs out: %s", error.code)
        if self._owns_client:
            await self._client.close()

    async def _take(self, worker_name: str) -> tuple[JobLock, list[str | None]] | None:
        # New for each lease: a worker's own late answer must be known as late, too.
        owner = f"{worker_name}:{self._id}:{next(self._numbers)}"
        taken = await _translated(self._steps.take(owner))
        return None if taken is None else (JobLock(self._queue.name, taken.job_id, taken.owner), taken.values)

    async def _give_back(self, taking: "asyncio.Task[tuple[JobLock, list[str | None]] | None]") -> None:
        try:
            found = await taking
            if found is not None:
                await _translated(self._steps.give_back(found[0]))
        except SourceError as error:
            _log.warning("a job that came after its poll was given up may be left locked: %s", error.code)

    async def _conclude(self, lease: JobLock, send: Callable[[], Awaitable[None]], *, failed: bool) -> None:
        try:
            await _translated(send())
        except UnreachableError:
            self._unanswered.add(lease)
            raise
        except LeaseLostError:
            # Asked for again after an answer that was lost: the lock is gone, because all was done the first time?
            if lease not in self._unanswered or not await _translated(self._is_concluded(lease, failed=failed)):
                self._unanswered.discard(lease)
                raise
        self._unanswered.discard(lease)

    async def _is_concluded(self, lease: JobLock, *, failed: bool) -> bool:
        job, here = keys.job(self._queue.flow, lease.job_id), keys.encode(self._queue.name)
        names = (keys.COMPLETED_QUEUE, keys.FAILED, keys.FAILED_QUEUE)
        completed_in, has_failed, failed_in = await self._client.call("HMGET", job, *names)
        there = await self._client.call("LPOS", keys.processing(self._queue.name), lease.job_id)
        recorded = failed_in == here if failed else completed_in == here and has_failed is None
        return recorded and there is None


async def _translated(call: Awaitable[_T]) -> _T:
    """Await a call; `RedisError`s become the runtime's."""
    try:
        return await call
    except RedisError as error:
        fix = _FIX if error.code in _PASSWORDS else ""
        raise _KINDS[error.kind](error.code, error.message, fix=fix) from error

"""The monitor: jobs whose worker died are failed, or put back, once their lock has run out."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from activity_worker.flows import scripts
from activity_worker.flows.lost_locks import NO_JOBS, UnlockedJob, UnlockedJobs
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError

_log = logging.getLogger(__name__)

_MOST_PAUSE_SECONDS = 30.0
#: A pause after an error is longer by up to this share, by chance.
_SPREAD = 0.3


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How often to look, in seconds (1), and for how long a job must be without a lock (5) to have lost it.

    A worker that needs longer than `gap_seconds` from taking a job to locking it loses the job. `requeue` is how often
    a job is put back into its queue before it is failed (0: it is failed at once).
    """

    look_seconds: float = 1.0
    gap_seconds: float = 5.0
    requeue: int = 0

    def __post_init__(self) -> None:
        if not self.look_seconds > 0:
            raise ValueError(f"monitor.look_seconds: {self.look_seconds}: must be above 0")
        if not self.gap_seconds > 0:
            raise ValueError(f"monitor.gap_seconds: {self.gap_seconds}: must be above 0")
        if self.requeue < 0:
            raise ValueError(f"monitor.requeue: {self.requeue}: must be 0 or more")


class LockMonitor:
    """Looks after queues: pairs of a flow and a queue's full name. Several may look after the same ones.

    `jitter` returns a number from 0 to 1.
    """

    def __init__(
        self,
        client: RedisClient,
        queues: Sequence[tuple[str, str]],
        options: MonitorOptions | None = None,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.options = options or MonitorOptions()
        self.failed = 0
        self.requeued = 0
        self._client = client
        self._jitter = jitter
        self._queues = tuple(queues)
        self._unlocked_jobs: UnlockedJobs = NO_JOBS
        self._stopped = asyncio.Event()
        self._errors = 0

    def stop(self) -> None:
        """Let `run` end."""
        self._stopped.set()

    async def run(self) -> None:
        """Look again and again until `stop`; a server that does not answer is asked again, ever more slowly."""
        names = ", ".join(name for _, name in self._queues)
        _log.info("looking after the locks of %s", names)
        while not self._stopped.is_set():
            try:
                await self.look(asyncio.get_running_loop().time())
                self._recovered()
            except RedisError as error:
                self._failed_to_look(error)
            await self._pause()
        _log.info("stopped: %d failed, %d put back", self.failed, self.requeued)

    async def look(self, now: float) -> list[UnlockedJob]:
        """Look once at `now`, in seconds of any clock; returns the jobs that were failed or put back."""
        self._unlocked_jobs = self._unlocked_jobs.after_look(await find_unlocked(self._client, self._queues), now)
        lost = self._unlocked_jobs.lost(now, self.options.gap_seconds)
        self._unlocked_jobs = self._unlocked_jobs.without(lost)
        return [job for job in lost if await self._settle(job)]

    async def _settle(self, job: UnlockedJob) -> bool:
        if self.options.requeue and await scripts.requeue_unlocked(self._client, *job, self.options.requeue):
            self.requeued += 1
            _tell("a job's lock ran out: it waits again", job)
            return True
        if await scripts.fail_unlocked(self._client, *job):
            self.failed += 1
            _tell("a job's lock ran out: it is failed", job)
            return True
        return False

    def _failed_to_look(self, error: RedisError) -> None:
        # The time without a look is unknown: every job counts as newly unlocked.
        self._unlocked_jobs = NO_JOBS
        self._errors += 1
        if self._errors == 1:
            _log.warning("the server cannot be asked, which is tried again: %s", error)

    def _recovered(self) -> None:
        if self._errors:
            _log.info("the server answers again, after %d failed looks", self._errors)
            self._errors = 0

    async def _pause(self) -> None:
        seconds = self.options.look_seconds
        if self._errors:
            # Monitors that lost the same server must not come back together.
            seconds = min(seconds * self._errors, _MOST_PAUSE_SECONDS) * (1.0 + _SPREAD * self._jitter())
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return


async def find_unlocked(client: RedisClient, queues: Sequence[tuple[str, str]]) -> list[UnlockedJob]:
    """Return the jobs under way that have no lock at this moment."""
    lists = await client.pipeline([("LRANGE", keys.processing(name), 0, -1) for _, name in queues])
    under_way = [(flow, name, job_id) for (flow, name), ids in zip(queues, lists, strict=True) for job_id in ids]
    locked = await client.pipeline([("EXISTS", keys.lock(name, job_id)) for _, name, job_id in under_way])
    unlocked = [job for job, there in zip(under_way, locked, strict=True) if not there]
    counts = await client.read_all(
        [("HGET", keys.job(flow, job_id), keys.retries(name)) for flow, name, job_id in unlocked]
    )
    return [
        UnlockedJob(*job, count if isinstance(count, str) else "") for job, count in zip(unlocked, counts, strict=True)
    ]


def _tell(message: str, job: UnlockedJob) -> None:
    _log.warning(message, extra={"facts": {"flow": job.flow, "queue": job.queue, "job": job.job_id}})

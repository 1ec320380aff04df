"""How the workers of a queue find the jobs of dead workers: one worker at a time looks, all others wait their turn.

A job in `processing` without a lock has lost its worker, or a worker has just taken it and locks it a moment later. So
a job counts as lost only if several looks in a row find it without a lock, and if it was not put back in between. What
a look found is kept on the server, so the next look may be another worker's.
"""

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from activity_worker.sources.redis_job import RedisQueue
from activity_worker.sources.redis_scripts import LEAVE_TURN, RECOVER
from activity_worker.wire import redis_keys as keys
from activity_worker.wire.backoff import pause_after
from activity_worker.wire.redis_connection import RedisClient
from activity_worker.wire.redis_errors import RedisError

_log = logging.getLogger(__name__)

#: Seconds between two looks of the worker whose turn it is.
LOOK_SECONDS: Final = 5.0
#: How many looks in a row find a lost job without a lock: the first and the last are 10 s apart.
LOOKS: Final = 3
#: Seconds for which a worker keeps its turn without a look. Another worker may look that long after its last one.
TURN_SECONDS: Final = 20.0
#: How often a job is put back whose workers die; the next time it fails.
MOST_RECOVERIES: Final = 3
#: Longest pause after looks that failed, in seconds.
_MAX_PAUSE_SECONDS: Final = 60.0
#: A pause is longer by up to this share, by chance, so that workers that start together do not ask together.
_SPREAD: Final = 0.3


@dataclass(frozen=True, slots=True)
class Recovered:
    """The ids of the jobs that one look put back, and of those that it failed."""

    put_back: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class QueueRecovery:
    """Puts back the jobs of a queue's dead workers, in the background from `begin` to `stop`.

    A job is put back up to three times, as the next one to be taken, and fails then. `jitter` returns a number from 0
    to 1.
    """

    def __init__(self, client: RedisClient, queue: RedisQueue, *, jitter: Callable[[], float] = random.random) -> None:
        self._client = client
        self._queue = queue
        self._jitter = jitter
        self._name: Final = uuid.uuid4().hex
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        #: Whether the last look was made in the own turn, which another worker would wait for.
        self._in_turn = False

    def begin(self) -> None:
        """Start to look, if that has not begun."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, and leave the turn to another worker. Raises nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        if not self._in_turn:
            return
        self._in_turn = False
        with contextlib.suppress(RedisError):
            await LEAVE_TURN.run(self._client, [keys.recovery_turn(self._queue.name)], self._name)

    async def look(self) -> Recovered | None:
        """Look once. Returns None if it is another worker's turn. Raises `RedisError`."""
        queue = self._queue
        found = await RECOVER.run(
            self._client,
            [
                keys.waiting(queue.name),
                keys.processing(queue.name),
                keys.recovery_turn(queue.name),
                keys.recovery_state(queue.name),
            ],
            self._name,
            int(TURN_SECONDS * 1000),
            LOOKS,
            keys.lock(queue.name, ""),
            keys.job(queue.flow, ""),
            MOST_RECOVERIES,
            keys.retries(queue.name),
            *keys.pairs(keys.lock_exceeded(queue.name)),
        )
        self._in_turn = found is not None
        return None if found is None else Recovered(tuple(found[0]), tuple(found[1]))

    async def _run(self) -> None:
        await asyncio.sleep(LOOK_SECONDS * self._jitter())
        while True:
            try:
                found = await self.look()
            except RedisError as error:
                seconds = self._pause_after(error)
            else:
                self._failures = 0
                seconds = LOOK_SECONDS if self._in_turn else TURN_SECONDS
                self._report(found or Recovered())
            await asyncio.sleep(seconds * (1.0 + _SPREAD * self._jitter()))

    def _pause_after(self, error: RedisError) -> float:
        self._failures += 1
        # What passes by itself, or concerns the polls as well, is theirs to report.
        if self._failures == 1 and (not error.retryable or error.code == "NOPERM"):
            words = "the jobs of dead workers of queue %s are not put back: %s (docs/redis.md has the rights for it)"
            _log.warning(words, self._queue.name, error)
        return pause_after(self._failures, first_seconds=LOOK_SECONDS, max_seconds=_MAX_PAUSE_SECONDS)

    def _report(self, found: Recovered) -> None:
        for words, ids in (("it waits again", found.put_back), ("it failed", found.failed)):
            for job_id in ids:
                facts = {"flow": self._queue.flow, "queue": self._queue.name, "job": job_id}
                _log.warning("the lock of a dead worker's job ran out: %s", words, extra={"facts": facts})

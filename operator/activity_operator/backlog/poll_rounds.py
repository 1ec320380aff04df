"""Reads the backlog of sources that can report it: one round per server, for all of its pools together.

A round's counts are kept, and `on_change` is called only if a count changed. The pools' conditions show that a server
gives no answer after repeated failures, and any other problem at once.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from activity_operator import backoff
from activity_operator.backlog.call_metrics import CallObserver
from activity_operator.backlog.failures import RetryPolicy
from activity_operator.backlog.protocol import Key, SourceProblemError
from activity_operator.backlog.rounds import RoundPool, RoundReader, Rounds
from activity_operator.core.observation import BacklogCount, SourceProblem

#: What is counted on a server: keys of lists, a query, or names of tasks.
Item = str

#: Minimum seconds between two change notifications per pool. The first change after that time is announced at once.
ANNOUNCE_SECONDS = 0.25
#: Seconds that a round waits for more pools to join.
GATHER_SECONDS = 0.02
#: Minimum wait between two rounds as a share of the interval, so that a slow server gets a pause.
LEAST_REST = 0.25
#: First and longest wait after failed rounds, and the consecutive failures after which the pools' conditions show it.
RETRY_FIRST_SECONDS = 0.25
RETRY_CAP_SECONDS = 15.0
TOLD_FAILURES = 3
#: A change of less than so many seconds in the age of the oldest task is none.
OLDEST_STEP_SECONDS = 2.0
#: Time-out of a round in seconds.
ROUND_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SourceEndpoint:
    """A server and the interval of its rounds. The URL and the token may be secret, so the repr omits them.

    `source_hosts` are globs of the hosts (HOST:PORT) to which the server may lead the operator. `ca` are certificates
    in PEM that the server's must be signed by, "" for the system's.
    """

    url: str = field(repr=False)
    interval_seconds: float
    token: str = field(default="", repr=False)
    source_hosts: tuple[str, ...] = ("*",)
    ca: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ReadCount:
    """What a source told of a pool's tasks: how many wait, and how many workers have.

    `oldest_since` is since when the first one waits, Unix seconds; None if none waits or the source cannot tell.
    `missing` is why a part of the source is left out, None if nothing is.
    """

    tasks: int
    running: int = 0
    oldest_since: float | None = None
    missing: SourceProblemError | None = None


#: What a read brings for an item: a count, the number of waiting tasks alone, or why it is unknown.
ReadResult = ReadCount | int | SourceProblemError


class BacklogReader(Protocol):
    """Reads from one kind of server, and reports its calls to `observed`."""

    observed: CallObserver

    async def read(self, endpoint: SourceEndpoint, items: Sequence[Item]) -> Sequence[ReadResult]:
        """Return for each item its count, or why it is unknown.

        Raises SourceProblemError if the server as a whole cannot be used.
        """
        ...

    async def wait(self, endpoint: SourceEndpoint, seconds: float) -> None:
        """Wait `seconds` until the next round, or less if the server announces a task."""
        ...

    async def close(self, endpoint: SourceEndpoint) -> None:
        """Close the connections to the server; raises nothing."""
        ...


@dataclass(slots=True)
class _CountedPool(RoundPool):
    """One pool's count, and when the read that brought it began (Unix seconds).

    `announced_at` is the event loop's time of the last change notification; `unannounced` is True while a change still
    waits for its notification.
    """

    item: Item = ""
    count: ReadCount | None = None
    observed_at: float = 0.0
    announced_at: float = float("-inf")
    unannounced: bool = False


class BacklogPoller(RoundReader[SourceEndpoint, _CountedPool]):
    """Reads the counts of all pools from one kind of server; `on_change(key)` is called when counts or errors change.

    `exact` says whether the counts are exact or lower bounds; `now` is Unix seconds.
    """

    def __init__(
        self,
        reader: BacklogReader,
        *,
        exact: bool,
        on_change: Callable[[Key], None],
        now: Callable[[], float],
        jitter: backoff.Jitter = random.random,
    ) -> None:
        self._reader = reader
        self._exact = exact
        self._on_change = on_change
        self._now = now
        self._rounds = Rounds[SourceEndpoint, _CountedPool](
            self,
            gather_seconds=GATHER_SECONDS,
            retry=RetryPolicy(RETRY_FIRST_SECONDS, RETRY_CAP_SECONDS, unreachable_shown=TOLD_FAILURES),
            on_change=self._announce,
            now=now,
            jitter=jitter,
        )

    def order(self, key: Key, endpoint: SourceEndpoint | None, item: Item = "") -> None:
        """Start to count for the pool, or stop if `endpoint` is None. Cheap if nothing changed; raises nothing."""
        if endpoint is None:
            self._rounds.leave(key)
            return
        found = self._rounds.find(key)
        if found is None or (found[0], found[1].item) != (endpoint, item):
            self._rounds.join(endpoint, _CountedPool(key, item=item))

    def latest(self, key: Key) -> tuple[BacklogCount | None, SourceProblem | None]:
        """Return the pool's last count, and why the last round failed; None for what does not exist."""
        found = self._rounds.find(key)
        if found is None:
            return None, None
        _, pool = found
        count = pool.count
        if count is None:
            return None, pool.error
        missing = "" if count.missing is None else count.missing.message
        counted = BacklogCount(
            count.tasks,
            self._exact,
            pool.observed_at,
            running=count.running,
            oldest_since=count.oldest_since,
            missing=missing,
        )
        return counted, pool.error

    def pause(self) -> None:
        """Stop counting for all pools, because this process is no longer the leader."""
        self._rounds.pause()

    async def stop(self) -> None:
        """Stop counting for all pools and wait until every connection is closed."""
        await self._rounds.stop()

    async def read(self, place: SourceEndpoint, pools: Sequence[_CountedPool]) -> bool:
        """Count once for these pools, as `RoundReader` specifies."""
        asked_at = self._now()
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                found = await self._reader.read(place, [pool.item for pool in pools])
        except TimeoutError as error:
            raise SourceProblemError("BackendUnreachable", f"no answer within {ROUND_SECONDS:.0f} s") from error
        now = asyncio.get_running_loop().time()
        for pool, result in tuple(zip(pools, found, strict=True)):
            pool.observed_at = asked_at
            if isinstance(result, SourceProblemError):
                pool.count = None
                self._rounds.record_problem([pool], result)
                continue
            count = ReadCount(result) if isinstance(result, int) else result
            if count != pool.count or pool.error is not None or pool.unannounced:
                self._learn(pool, count, now)
        return not all(isinstance(result, SourceProblemError) for result in found)

    def failed(self, place: SourceEndpoint, pools: Sequence[_CountedPool]) -> None:
        """Announce what waits for its notification: the next successful round may be far away."""
        del place
        for pool in pools:
            if pool.unannounced:
                self._rounds.changed(pool)

    def wait_seconds(self, place: SourceEndpoint, pools: Sequence[_CountedPool], took: float) -> float:
        """Return the rest of the interval, or less if a change still waits for its notification."""
        rest = max(place.interval_seconds - took, place.interval_seconds * LEAST_REST)
        return min(rest, ANNOUNCE_SECONDS) if any(pool.unannounced for pool in pools) else rest

    async def wait(self, place: SourceEndpoint, seconds: float) -> None:
        """Wait `seconds`, or less if the server announces a task."""
        await self._reader.wait(place, seconds)

    async def close(self, place: SourceEndpoint) -> None:
        """Close the connections to the server."""
        await self._reader.close(place)

    def _learn(self, pool: _CountedPool, count: ReadCount, now: float) -> None:
        before, had_error = pool.count, pool.error is not None
        if before is not None:
            count = replace(count, oldest_since=_steady(before.oldest_since, count.oldest_since))
        pool.count = count
        if count.missing is None:
            pool.error = None
        else:
            self._rounds.record_problem([pool], count.missing)
        first = before is None or (had_error and pool.error is None)
        changed = before is None or (count.tasks, count.running) != (before.tasks, before.running)
        pool.unannounced = pool.unannounced or first or changed
        if pool.unannounced and (first or now - pool.announced_at >= ANNOUNCE_SECONDS):
            self._rounds.changed(pool)

    def _announce(self, pool: _CountedPool) -> None:
        pool.announced_at, pool.unannounced = asyncio.get_running_loop().time(), False
        self._on_change(pool.key)


def _steady(before: float | None, now: float | None) -> float | None:
    """Return the time `now`, or the one before if they differ by little: two reads of one time are never equal."""
    if before is None or now is None or abs(before - now) >= OLDEST_STEP_SECONDS:
        return now
    return before

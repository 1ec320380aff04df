"""Posts Kubernetes Events about pools; equal Events become a series, and each pool has a rate limit."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from activity_operator.api.text import printable
from activity_operator.cluster import fence
from activity_operator.cluster.apply import NotLeadingError
from activity_operator.cluster.kube import ApiError, KubeClient, KubeError
from activity_operator.cluster.resources import EVENTS, POOLS, Raw
from activity_operator.core.decision import EmitEvent

#: Seconds from the first Event in which equal Events only raise its count.
SERIES_SECONDS = 600.0
#: Minimum seconds between two writes of a series' count.
COUNT_SECONDS = 60.0
#: Events that a pool may post at once, and seconds until it may post one more.
BURST = 20
REFILL_SECONDS = 15.0
#: The most Events that wait to be posted; further ones are dropped, because Events are no record.
BACKLOG = 1000
#: The API server's limit of an Event's note, in bytes.
NOTE_LENGTH = 1024

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Series:
    name: str
    began: float
    count: int = 1
    written: float = 0.0


@dataclass(slots=True)
class _Budget:
    tokens: float = BURST
    at: float = 0.0
    series: dict[tuple[str, str], _Series] = field(default_factory=dict)


class EventPublisher:
    """Posts Events about pools: `publish` queues without waiting, `run` posts.

    `allowed()` says whether this process may post; `clock` is monotonic seconds, `wall` Unix seconds.
    """

    def __init__(
        self,
        kube: KubeClient,
        instance: str,
        *,
        allowed: Callable[[], bool],
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._instance = instance
        self._allowed = allowed
        self._clock = clock
        self._wall = wall
        self._queue: asyncio.Queue[tuple[Raw, EmitEvent]] = asyncio.Queue(BACKLOG)
        self._pools: dict[str, _Budget] = {}
        self._serial = 0

    def publish(self, pool: Raw, event: EmitEvent) -> None:
        """Queue an Event about `pool` (its raw object)."""
        try:
            self._queue.put_nowait((pool, event))
        except asyncio.QueueFull:
            log.warning("too many events wait: dropped %s", event.reason)

    def forget(self, uid: str) -> None:
        """Drop the series and the rate limit of a deleted pool."""
        self._pools.pop(uid, None)

    async def run(self) -> None:
        """Post queued Events until cancelled."""
        while True:
            pool, event = await self._queue.get()
            if not self._allowed():
                continue
            try:
                with fence.checked_before_send(self._must_lead):
                    await self.post(pool, event)
            except KubeError as error:
                log.warning("event %s was not posted: %s", event.reason, error)
            except NotLeadingError:
                log.info("event %s was not posted: the Lease was lost meanwhile", event.reason)

    def _must_lead(self) -> None:
        if not self._allowed():
            raise NotLeadingError

    async def post(self, pool: Raw, event: EmitEvent) -> None:
        """Post an Event, or count it in the series of an equal one; raises `KubeError`."""
        now = self._clock()
        uid = pool["metadata"]["uid"]
        budget = self._pools.setdefault(uid, _Budget(at=now))
        series = budget.series.get((event.reason, event.message))
        if series is not None and now < series.began + SERIES_SECONDS:
            series.count += 1
            if now >= series.written + COUNT_SECONDS:
                await self._count(pool, series, now)
            return
        budget.tokens = min(BURST, budget.tokens + (now - budget.at) / REFILL_SECONDS)
        budget.at = now
        if budget.tokens < 1:
            log.warning("event %s of a pool that posts too many was dropped", event.reason)
            return
        budget.tokens -= 1
        self._serial += 1
        name = f"{pool['metadata']['name']}.{uid[:8]}.{int(self._wall() * 1000):x}.{self._serial:x}"
        await self._kube.create(EVENTS, pool["metadata"]["namespace"], self._body(pool, event, name))
        budget.series = {key: old for key, old in budget.series.items() if now < old.began + SERIES_SECONDS}
        budget.series[event.reason, event.message] = _Series(name, now, written=now)

    async def _count(self, pool: Raw, series: _Series, now: float) -> None:
        series.written = now
        body = {"series": {"count": series.count, "lastObservedTime": self._stamp()}}
        try:
            await self._kube.merge_patch(EVENTS, pool["metadata"]["namespace"], series.name, body)
        except ApiError as error:
            if not error.missing:
                raise
            series.began = -SERIES_SECONDS

    def _body(self, pool: Raw, event: EmitEvent, name: str) -> dict[str, Any]:
        meta = pool["metadata"]
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": meta["namespace"]},
            "eventTime": self._stamp(),
            "reportingController": "activitypools.dev/operator",
            "reportingInstance": self._instance[:128],
            "action": "Reconcile",
            "reason": event.reason[:128],
            "type": event.kind,
            "note": _note(event.message),
            "regarding": {
                "apiVersion": POOLS.api_version,
                "kind": POOLS.kind,
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta.get("resourceVersion", ""),
            },
        }

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _note(message: str) -> str:
    return printable(message).encode()[:NOTE_LENGTH].decode(errors="ignore")

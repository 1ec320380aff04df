"""Who decides: one Lease, held by writing its renewTime with a resourceVersion precondition.

The holder counts from *before* a renewal was sent and stops leading at the renew deadline; the others count from when
they saw the record change and wait its full duration. The gap between the two (5 s) is longer than any write may take.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from activity_operator.cluster.kube import ApiError, KubeError
from activity_operator.cluster.resources import LEASES, Raw, Resource

#: Refusals of whoever asks, whatever is asked for: a token that is good no longer, too many calls.
_UNHEARD = {401, 429}

log = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """The part of `KubeClient` that the election needs."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        """Read the Lease."""
        ...

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """Create it; 409 when it exists."""
        ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Raw, timeout: float | None = None
    ) -> Raw:
        """Write it; 409 when it changed."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long a Lease lasts unrenewed, when its holder gives up on its own, how often it is written.

    The defaults (15/10/2) are the usual ones of controllers; a call may take `call` seconds.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    call: float = 4.0


class Elector:
    """Competes for one Lease for as long as it runs; whatever the API does, `run` goes on until it is cancelled.

    `reachable` says whether the last try was heard: while it is not, nothing else can be written either.
    `identity` must be new for every process. `clock` is monotonic seconds, and keeps running while a machine sleeps.
    `on_change(leading)` is told when leadership begins or ends; ask `leading` before every write all the same.
    """

    def __init__(
        self,
        api: LeaseApi,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], float],
        on_change: Callable[[bool], None],
        timing: Timing | None = None,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._clock = clock
        self._wall = wall
        self._on_change = on_change
        self._timing = timing or Timing()
        self._holding = False
        self._announced = False
        self._unreleased = False
        self._renewed = 0.0
        self._lease: Raw | None = None
        self._seen_version = ""
        self._seen_at = 0.0
        self._free_at = 0.0
        self.term = 0
        self.led_since = 0.0
        self.reachable = True

    @property
    def leading(self) -> bool:
        """Whether this process may write now: it holds the Lease, and the renew deadline has not passed."""
        return self._holding and self._clock() < self._renewed + self._timing.renew_deadline

    async def run(self) -> None:
        """Acquire, renew, lose, acquire again, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._pause())

    async def step(self) -> None:
        """Try once to acquire or renew, and say so when leadership began or ended by it."""
        self._give_up_what_lapsed()
        await self._attempt()
        self._give_up_what_lapsed()
        self._announce()

    def _give_up_what_lapsed(self) -> None:
        """End a term whose deadline has passed, even if the Lease is still ours: a new one begins at the next try.

        `leading` has been False since, and who asked meanwhile went away: nobody would call them back.
        """
        if self._holding and not self.leading:
            log.warning("the lease was not renewed for %g s: leading no more", self._timing.renew_deadline)
            self._holding = False
            self._announce()

    def _pause(self) -> float:
        """A holder whose deadline is near looks again exactly then, so that the loss is announced at once.

        The others look again exactly when the Lease they saw runs out: until then nobody heartbeats what is held.
        """
        ends = self._renewed + self._timing.renew_deadline if self._holding else self._free_at
        left = ends - self._clock()
        if left <= 0 and not self._holding:
            return self._timing.retry
        return max(min(self._timing.retry, left), 0.01)

    async def _attempt(self) -> None:
        asked = self._clock()
        left = self._renewed + self._timing.renew_deadline - asked if self._holding else self._timing.call
        timeout = max(min(self._timing.call, left), 0.05)
        try:
            async with asyncio.timeout(timeout):
                await (self._renew(asked, timeout) if self._holding else self._acquire(asked, timeout))
            self.reachable = True
        except ApiError as error:
            self.reachable = error.status < 500 and error.status not in _UNHEARD
            self._lease = None
            if error.conflict:
                log.info("the lease was written by another process")
            else:
                log.warning("the lease cannot be written: %s", error)
        except (KubeError, TimeoutError) as error:
            self.reachable = False
            self._lease = None
            log.warning("the lease cannot be written: %s", error or "no answer in time")
        except Exception:  # the loop must outlive whatever an answer contains
            self._lease = None
            log.exception("the lease cannot be written")

    async def _renew(self, asked: float, timeout: float) -> None:
        lease = self._lease or await self._api.get(LEASES, self._namespace, self._name)
        if lease["spec"].get("holderIdentity") != self.identity:
            log.warning("the lease is held by %s now: leading no more", lease["spec"].get("holderIdentity"))
            self._holding = False
            return
        self._lease = await self._write(lease, {"renewTime": self._stamp()}, timeout)
        if self.leading:
            # An answer that is taken in after the deadline saves no term.
            self._renewed = asked

    async def _acquire(self, asked: float, timeout: float) -> None:
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
        except ApiError as error:
            if not error.missing:
                raise
            self._take(await self._api.create(LEASES, self._namespace, self._fresh()), asked)
            return
        version = lease["metadata"]["resourceVersion"]
        if version != self._seen_version:
            # Only our own clock is trusted: the holder is given the full duration from when its write was seen.
            self._seen_version, self._seen_at = version, self._clock()
        spec = lease["spec"]
        holder = spec.get("holderIdentity") or ""
        lasts = float(spec.get("leaseDurationSeconds") or self._timing.duration)
        self._free_at = self._seen_at + lasts
        if holder and holder != self.identity and self._clock() < self._free_at:
            return
        transitions = int(spec.get("leaseTransitions") or 0) + 1
        taken = {**self._claim(), "leaseTransitions": transitions}
        self._take(await self._write(lease, taken, timeout), asked)

    def _take(self, lease: Raw, asked: float) -> None:
        self._lease, self._renewed, self._holding = lease, asked, True
        # Later than any term before, even if somebody deleted the Lease and its count of transitions with it.
        created = datetime.fromisoformat(lease["metadata"]["creationTimestamp"])
        self.term = int(created.timestamp()) + int(lease["spec"]["leaseTransitions"])
        self.led_since = self._wall()

    async def _write(self, lease: Raw, fields: Raw, timeout: float) -> Raw:
        body = {**lease, "spec": {**lease["spec"], **fields}}
        return await self._api.replace(LEASES, self._namespace, self._name, body, timeout)

    def _fresh(self) -> Raw:
        meta = {"name": self._name, "namespace": self._namespace}
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": meta,
            "spec": {**self._claim(), "leaseTransitions": 0},
        }

    def _claim(self) -> Raw:
        now = self._stamp()
        seconds = max(int(self._timing.duration), 1)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": seconds,
            "acquireTime": now,
            "renewTime": now,
        }

    def _stamp(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _announce(self) -> None:
        leading = self.leading
        if leading == self._announced:
            return
        self._announced = leading
        log.info("leading, term %d" if leading else "not leading, last term %d", self.term)
        try:
            self._on_change(leading)
        except Exception:  # a failing listener must not cost the Lease
            log.exception("the change of leadership was not taken in")

    def resign(self) -> None:
        """Lead no more, and say so at once; the Lease is kept until `release`. `run` must have ended."""
        self._unreleased = self._unreleased or self._holding
        self._holding = False
        self._announce()

    async def release(self) -> None:
        """Lead no more and hand the Lease back, so that the next one need not wait; `run` must have ended."""
        self.resign()
        if not self._unreleased:
            return
        self._unreleased = False
        try:
            async with asyncio.timeout(self._timing.call):
                # Read anew: a renewal that was cut short may have been written.
                lease = await self._api.get(LEASES, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self.identity:
                    freed = {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._write(lease, freed, self._timing.call)
        except (KubeError, TimeoutError) as error:
            log.warning("the lease was not released, the next process waits it out: %s", error)

"""Leader election with one Lease: the holder renews its renewTime with a resourceVersion precondition.

The holder measures from *before* it sends a renewal and stops leading at the renew deadline. The other processes
measure from when they see the record change, and wait its full duration. The gap between the two (5 s) is longer than
the time-out of a write.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from activity_operator.cluster.kube import ApiError, KubeError
from activity_operator.cluster.resources import LEASES, Raw, Resource

#: Statuses that refuse the caller and not the call: an expired token, too many calls.
_UNHEARD = {401, 429}

log = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """The methods of `KubeClient` that the election uses."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Raw:
        """Read the Lease."""
        ...

    async def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """Create the Lease; 409 if it exists."""
        ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Raw, timeout: float | None = None
    ) -> Raw:
        """Write the Lease; 409 if it has changed."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long an unrenewed Lease lasts, when its holder stops leading by itself, how often it is written.

    The defaults (15/10/2) are those of most controllers; `call` is the time-out of a call.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    call: float = 4.0


class Elector:
    """Competes for one Lease; no API error ends `run`, which goes on until it is cancelled.

    `reachable` says whether the API server handled the last call; if not, no other write would succeed either.
    `identity` must be new for each process. `clock` is monotonic seconds that also pass while the machine sleeps.
    `on_change(leading)` is called when leadership begins or ends; callers still check `leading` before each write.
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
        """Whether this process may write now: it holds the Lease, and the renew deadline lies ahead."""
        return self._holding and self._clock() < self._renewed + self._timing.renew_deadline

    async def run(self) -> None:
        """Acquire, renew, lose, acquire again, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._pause())

    async def step(self) -> None:
        """Try once to acquire or renew the Lease; call `on_change` if leadership began or ended."""
        self._give_up_what_lapsed()
        await self._attempt()
        self._give_up_what_lapsed()
        self._announce()

    def _give_up_what_lapsed(self) -> None:
        """End a term whose renew deadline has passed, even if the Lease is still ours; the next try begins a new term.

        `leading` has been False since the deadline, so pools were not reconciled. A new term queues all of them.
        """
        if self._holding and not self.leading:
            log.warning("the lease was not renewed for %g s: leading no more", self._timing.renew_deadline)
            self._holding = False
            self._announce()

    def _pause(self) -> float:
        """Return the seconds until the next try.

        A holder tries again by its renew deadline, so that a loss is announced at once. A standby tries again by the
        end of the Lease: until a new term begins, the former leader's task leases get no heartbeat.
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
            # An answer after the renew deadline does not extend the term.
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
            # The clocks of other machines are not trusted: the duration counts from when this process saw the renewal.
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
        # The term grows even if the Lease was deleted and its count of transitions started again.
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
        """Stop leading and call `on_change` at once; the Lease is kept until `release`. `run` must have ended."""
        self._unreleased = self._unreleased or self._holding
        self._holding = False
        self._announce()

    async def release(self) -> None:
        """Stop leading and free the Lease, so that a standby can take it at once; `run` must have ended."""
        self.resign()
        if not self._unreleased:
            return
        self._unreleased = False
        try:
            async with asyncio.timeout(self._timing.call):
                # Read the current Lease, because a cancelled renewal may have been written.
                lease = await self._api.get(LEASES, self._namespace, self._name)
                if lease["spec"].get("holderIdentity") == self.identity:
                    freed = {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._write(lease, freed, self._timing.call)
        except (KubeError, TimeoutError) as error:
            log.warning("the lease was not released, the next process waits it out: %s", error)

"""From the operator's hands into a worker's: offer, claim, grant, release.

The operator may be killed at every await. What each moment leaves behind, and who repairs it:

killed …                          left behind       repaired by
--------------------------------  ----------------  ------------------------------------------------------------
while a poll is open              nothing of ours   the service's HeartbeatSeconds, then Retry
task received, not recorded       nothing of ours   the service's HeartbeatSeconds, then Retry
recorded, no task heartbeat yet   record, no owner  the next leader lists it, heartbeats at once, offers it
offered, not claimed              record, no owner  the next leader; a claim of the old offer is as good as any
claim sent to the API, no answer  either            the worker repeats its claim: written now, or found written
owner written, reply not sent     record, owner     the next leader heartbeats; the worker repeats its claim: granted
granted, reply sent               record, owner     nothing to repair: the worker heartbeats and concludes
`released` heard, record there    record, owner     the worker says it until echoed; else the sweep, pod gone
record removed, echo not sent     nothing           the worker says it again; what is unknown is echoed
task over, record there           record, no owner  the next leader's first heartbeat is told so again
pool deleted, task not failed     record, no owner  the next leader's sweep fails it
task failed, record there         record, no owner  the next leader fails it again, is told "over", removes it
owner's pod gone, record there    record, owner     the next leader's sweep
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from activity_operator.backlog.protocol import Key
from activity_operator.workers.custody import Custody
from activity_operator.workers.handover_state import Held, Verdict, is_lost, is_shown, offers, verdict
from activity_operator.workers.leases import Lease, Owner, RecordConflictError, RecordsUnavailableError
from activity_worker.contract import Grant, Report

#: Seconds that a reply waits for the API server. Beyond it the worker hears "not yet" and asks again, rather than time
#: out and miss its directive as well.
PATIENCE_SECONDS = 2.0
#: Tries to write an owner: each finds the record as another one has just left it.
CLAIM_ATTEMPTS = 4


class Answer(Enum):
    """What is known of a claim or a release."""

    YES = auto()
    NO = auto()
    UNCLEAR = auto()


@dataclass(frozen=True, slots=True)
class Handed:
    """The part of a reply that is about leases, as in `Reply`."""

    offers: tuple[str, ...] = ()
    granted: tuple[Grant, ...] = ()
    refused: tuple[str, ...] = ()
    released: tuple[str, ...] = ()


class Handover:
    """Answers reports as far as they are about leases. Needs a leader's custody that has been restored."""

    def __init__(self, custody: Custody) -> None:
        self._custody = custody

    def waiting(self, key: Key) -> bool:
        """Whether a lease of the pool waits for a worker, so that reports should come often."""
        return any(item.waits for item in self._custody.of(key))

    async def answer(self, report: Report, now: float, *, cordoned: bool) -> Handed:
        """Take in what a worker says of its leases, and answer its claims.

        `cordoned` workers are offered nothing; a claim that they made before is still answered. `now` is Unix seconds.
        """
        key = (report.namespace, report.pool)
        if not (report.claims or report.released) and not any(self._custody.of(key)):
            return Handed()
        self._take_note(key, report, now)
        owner = Owner(report.pod_uid, report.incarnation)
        released = await self._each(report.released, lambda lease: self._release(lease, owner))
        claimed = await self._each(report.claims, lambda lease: self._claim(key, owner, lease))
        unclear = tuple(lease for lease, answer in claimed.items() if answer is Answer.UNCLEAR)
        granted = self._grants(lease for lease, answer in claimed.items() if answer is Answer.YES)
        given = {grant.id for grant in granted}
        return Handed(
            offers=(*unclear, *self._offer(key, report, now, cordoned, unclear)),
            granted=granted,
            refused=tuple(lease for lease in claimed if lease not in unclear and lease not in given),
            released=tuple(lease for lease, answer in released.items() if answer is Answer.YES),
        )

    def _take_note(self, key: Key, report: Report, now: float) -> None:
        for item in self._custody.of(key):
            if is_lost(item, report, now):
                self._custody.owner_gone(item.lease)
            elif not item.shown and item.lease.owner is not None and item.lease.owner.pod_uid == report.pod_uid:
                self._custody.put(replace(item, shown=is_shown(item.lease.id, report)))

    async def _each(
        self, leases: Iterable[str], ask: Callable[[str], Coroutine[Any, Any, Answer]]
    ) -> dict[str, Answer]:
        """Ask about each lease, all at once; what takes too long goes on in the background and is unclear for now."""
        tasks = {lease: self._custody.errand(ask(lease)) for lease in dict.fromkeys(leases)}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=PATIENCE_SECONDS)
        return {lease: task.result() if task.done() else Answer.UNCLEAR for lease, task in tasks.items()}

    async def _release(self, lease_id: str, owner: Owner) -> Answer:
        """Remove the record of a lease that its owner concluded; yes if the worker need not say it again."""
        item = self._custody.get(lease_id)
        if item is None or item.lease.owner != owner:
            return Answer.YES
        try:
            await self._custody.records.delete(item.lease)
        except RecordsUnavailableError:
            # Its worker may leave before it has said so again.
            self._custody.put(replace(self._custody.get(lease_id) or item, over=True))
            return Answer.UNCLEAR
        self._custody.end(replace(item.lease, record_version=""))
        return Answer.YES

    async def _claim(self, key: Key, owner: Owner, lease_id: str) -> Answer:
        """Write the owner if there is none; yes if the lease is this worker's."""
        item = self._custody.get(lease_id)
        answer = verdict(item, key, owner)
        if item is None or answer is Verdict.REFUSE:
            return Answer.NO
        if answer is Verdict.WRITE:
            try:
                self._custody.claimed(await self._write_owner(item.lease, owner))
            except RecordsUnavailableError:
                return Answer.UNCLEAR
            except RecordConflictError:
                self._custody.end(replace(item.lease, record_version=""))
                return Answer.NO
        # Looked at again after the write: the lease may have ended, or begun to be failed, meanwhile.
        return Answer.YES if verdict(self._custody.get(lease_id), key, owner) is Verdict.GRANT else Answer.NO

    def _grants(self, leases: Iterable[str]) -> tuple[Grant, ...]:
        """Return what the worker needs to run them; one that ended while others were asked about is left out."""
        found = (self._custody.get(lease) for lease in leases)
        return tuple(Grant(item.lease.id, item.lease.token, item.lease.input) for item in found if item is not None)

    async def _write_owner(self, lease: Lease, owner: Owner) -> Lease:
        """Write the owner or read who got there first; raises `RecordConflictError` if the record is gone.

        Raises `RecordsUnavailableError` when it changes under every try: a conflict alone does not say that it is gone.
        """
        for _ in range(CLAIM_ATTEMPTS):
            try:
                return await self._custody.records.claim(lease, owner)
            except RecordConflictError:
                stored = await self._custody.records.read(lease.id)
                if stored is None:
                    raise
                if stored.owner is not None:
                    return stored
                lease = stored
        raise RecordsUnavailableError(f"the record of lease {lease.id} changes all the time")

    def _offer(self, key: Key, report: Report, now: float, cordoned: bool, unclear: tuple[str, ...]) -> tuple[str, ...]:
        if self._custody.terms(key).paused:
            return ()
        held: list[Held] = list(self._custody.of(key))
        chosen = offers(held, report, now, cordoned=cordoned, unclear=unclear)
        for lease_id in chosen.now:
            item = self._custody.get(lease_id)
            if item is not None and item.offered_to != report.pod_uid:
                self._custody.put(replace(item, offered_to=report.pod_uid, offered_at=now))
        return (*chosen.now, *chosen.ahead)

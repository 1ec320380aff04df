"""The handover of leases to workers: offer, claim, grant, release.

The operator may be killed at every await. `operator/ARCHITECTURE.md` has a table of what each moment leaves behind and
what repairs it, with a test for each row.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from activity_operator.backlog.protocol import Key
from activity_operator.leases.manager import LeaseManager
from activity_operator.leases.model import LeaseOwner, TaskLease
from activity_operator.leases.rules import ClaimDecision, choose_offers, decide_claim, is_lost, is_shown
from activity_operator.leases.store import LeaseRecordConflictError, LeaseStoreUnavailableError
from activity_worker.contract import Grant, Report

#: Seconds that a reply waits for the API server. After that the worker gets "not yet" and claims again: a reply that
#: waits longer would time out, and the worker would miss its directive as well.
PATIENCE_SECONDS = 2.0
#: Tries to write an owner. Each try reads the record again, because another write has just changed it.
CLAIM_ATTEMPTS = 4


class ClaimOutcome(Enum):
    """The result of a claim or a release; `UNCLEAR` if the API server has not answered in time."""

    YES = auto()
    NO = auto()
    UNCLEAR = auto()


@dataclass(frozen=True, slots=True)
class LeaseAnswers:
    """The part of a reply that is about leases, as in `Reply`."""

    offers: tuple[str, ...] = ()
    granted: tuple[Grant, ...] = ()
    refused: tuple[str, ...] = ()
    released: tuple[str, ...] = ()


class LeaseHandover:
    """Answers the part of a report that is about leases. The lease manager must have begun its term before."""

    def __init__(self, manager: LeaseManager) -> None:
        self._manager = manager
        self._table = manager.table

    def waiting(self, key: Key) -> bool:
        """Whether a lease of the pool is unclaimed, so that workers should report often."""
        counts = self._table.counts(key)
        return counts.unrecorded + counts.held > 0

    async def answer(self, report: Report, now: float, *, cordoned: bool) -> LeaseAnswers:
        """Record what the report shows of the worker's leases, and answer its claims and releases.

        A `cordoned` worker gets no offers; its earlier claims are still answered. `now` is in Unix seconds.
        """
        key = (report.namespace, report.pool)
        if not (report.claims or report.released) and not self._table.has_leases(key):
            return LeaseAnswers()
        self._apply_report(key, report, now)
        owner = LeaseOwner(report.pod_uid, report.incarnation)
        released = await self._each(report.released, lambda lease: self._release(lease, owner))
        claimed = await self._each(report.claims, lambda lease: self._claim(key, owner, lease))
        unclear = tuple(lease for lease, answer in claimed.items() if answer is ClaimOutcome.UNCLEAR)
        granted = self._grants(lease for lease, answer in claimed.items() if answer is ClaimOutcome.YES)
        given = {grant.id for grant in granted}
        return LeaseAnswers(
            offers=(*unclear, *self._offer(key, report, now, cordoned, unclear)),
            granted=granted,
            refused=tuple(lease for lease in claimed if lease not in unclear and lease not in given),
            released=tuple(lease for lease, answer in released.items() if answer is ClaimOutcome.YES),
        )

    def _apply_report(self, key: Key, report: Report, now: float) -> None:
        for entry in self._table.owned_by(key, report.pod_uid):
            if is_lost(entry, report, now):
                self._manager.endings.owner_gone(entry.lease)
            elif not entry.confirmed and is_shown(entry.lease.id, report):
                self._manager.confirm(entry)

    async def _each(
        self, leases: Iterable[str], ask: Callable[[str], Coroutine[Any, Any, ClaimOutcome]]
    ) -> dict[str, ClaimOutcome]:
        """Call `ask` for all leases at once. A call that takes too long continues in the background, with UNCLEAR."""
        tasks = {lease: self._manager.spawn(ask(lease)) for lease in dict.fromkeys(leases)}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=PATIENCE_SECONDS)
        return {lease: _outcome(task) for lease, task in tasks.items()}

    async def _release(self, lease_id: str, owner: LeaseOwner) -> ClaimOutcome:
        """Remove the record of a lease that its owner has concluded; YES if the worker need not repeat the release."""
        entry = self._table.get(lease_id)
        if entry is None or entry.lease.owner != owner:
            return ClaimOutcome.YES
        try:
            await self._manager.store.delete(entry.lease)
        except LeaseStoreUnavailableError:
            # The worker may end before it repeats the release.
            self._table.put(replace(self._table.get(lease_id) or entry, task_over=True))
            return ClaimOutcome.UNCLEAR
        self._manager.endings.end(replace(entry.lease, record_version=""))
        return ClaimOutcome.YES

    async def _claim(self, key: Key, owner: LeaseOwner, lease_id: str) -> ClaimOutcome:
        """Write the owner if the lease has none; YES if the lease belongs to this worker."""
        entry = self._table.get(lease_id)
        answer = decide_claim(entry, key, owner)
        if entry is None or answer is ClaimDecision.REFUSE:
            return ClaimOutcome.NO
        if answer is ClaimDecision.WRITE:
            try:
                self._manager.claimed(await self._write_owner(entry.lease, owner))
            except LeaseStoreUnavailableError:
                return ClaimOutcome.UNCLEAR
            except LeaseRecordConflictError:
                self._manager.endings.end(replace(entry.lease, record_version=""))
                return ClaimOutcome.NO
        # Decide again after the write: the lease may have ended during the write, or the operator may be failing it.
        return (
            ClaimOutcome.YES
            if decide_claim(self._table.get(lease_id), key, owner) is ClaimDecision.GRANT
            else ClaimOutcome.NO
        )

    def _grants(self, leases: Iterable[str]) -> tuple[Grant, ...]:
        """Return the tokens and inputs of the leases, without those that ended while other claims were written."""
        found = (self._table.get(lease) for lease in leases)
        return tuple(
            Grant(entry.lease.id, entry.lease.token, entry.lease.input, entry.lease.activity)
            for entry in found
            if entry is not None
        )

    async def _write_owner(self, lease: TaskLease, owner: LeaseOwner) -> TaskLease:
        """Write the owner, and return the lease with this owner or with the one that claimed it before.

        Raises `LeaseRecordConflictError` if the record is gone, and `LeaseStoreUnavailableError` if it changes during
        every try: a conflict alone does not prove that the record is gone.
        """
        for _ in range(CLAIM_ATTEMPTS):
            try:
                return await self._manager.store.claim(lease, owner)
            except LeaseRecordConflictError:
                stored = await self._manager.store.read(lease.id)
                if stored is None:
                    raise
                if stored.owner is not None:
                    return stored
                lease = stored
        raise LeaseStoreUnavailableError(f"the record of lease {lease.id} changes all the time")

    def _offer(self, key: Key, report: Report, now: float, cordoned: bool, unclear: tuple[str, ...]) -> tuple[str, ...]:
        if self._table.policy(key).suspended:
            return ()
        chosen = choose_offers(
            self._table.waiting(key),
            self._table.owned_by(key, report.pod_uid),
            report,
            now,
            cordoned=cordoned,
            unclear=unclear,
        )
        for lease_id in chosen.now:
            entry = self._table.get(lease_id)
            if entry is not None and entry.offered_to != report.pod_uid:
                self._table.put(replace(entry, offered_to=report.pod_uid, offered_at=now))
        return (*chosen.now, *chosen.ahead)


def _outcome(task: asyncio.Task[ClaimOutcome]) -> ClaimOutcome:
    """Return the task's result. An unexpected error is unclear as well: the worker claims or releases again."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return ClaimOutcome.UNCLEAR
    return task.result()

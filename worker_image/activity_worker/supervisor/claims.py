"""PURE: which offered leases this worker asks for, which it was granted, and which it has concluded.

The operator offers leases that it took while no worker was there. A worker claims one only for a slot that is free
right now; it runs the task when the reply grants it, and says so in `released` once the task is concluded, until the
operator has heard it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from activity_worker.contract import Grant, Reply

#: How long a slot waits for the answer to a claim before it polls instead. Two report time-outs: an operator that is
#: slower than this is gone, and workers keep working without it.
CLAIM_PATIENCE_SECONDS = 10.0
#: How long a worker that leaves waits for that answer: a leader may have written the claim and died before it
#: could answer; then no other worker gets the task. For as long operators keep such a task alive.
LEAVE_PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class ClaimBook:
    """What the worker knows of leases that the operator holds for it. Knows no clock: `now` comes in."""

    offers: tuple[str, ...] = ()
    claims: dict[str, float] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)

    @property
    def unclaimed(self) -> bool:
        """Whether anything is on offer that was not claimed yet."""
        return any(offer not in self.claims and offer not in self.taken for offer in self.offers)

    def claim(self, free_slots: int, now: float) -> None:
        """Claim offers for this number of further slots."""
        wanted = [offer for offer in self.offers if offer not in self.claims and offer not in self.taken]
        self.claims.update(dict.fromkeys(wanted[:free_slots], now))

    def reserved(self, now: float) -> int:
        """Return how many slots must not poll, because a claim for them awaits its answer."""
        return sum(1 for since in self.claims.values() if now - since < CLAIM_PATIENCE_SECONDS)

    def awaited(self, now: float) -> bool:
        """Whether a claim has no answer yet that it may still get: its task may be this worker's already."""
        return any(now - since < LEAVE_PATIENCE_SECONDS for since in self.claims.values())

    def answered(self, reply: Reply, asked: Iterable[str]) -> tuple[Grant, ...]:
        """Take the reply to a report that claimed `asked`; return the grants that are new.

        A claim that the reply neither grants nor offers again is over. One that it still offers stays: claiming again
        by the same owner is idempotent.
        """
        new = tuple(grant for grant in reply.granted if grant.id not in self.taken)
        self.taken.update(grant.id for grant in new)
        for claim in asked:
            if claim in self.taken or claim in reply.refused or claim not in reply.offers:
                self.claims.pop(claim, None)
        self.offers = tuple(offer for offer in reply.offers if offer not in self.taken and offer not in reply.refused)
        for lease in reply.released:
            self.released.discard(lease)
            self.taken.discard(lease)
        return new

    def withdraw(self) -> None:
        """Take back every claim: who has stopped must not be given what it cannot run. What was granted stays ours."""
        self.offers = ()
        self.claims.clear()

    def concluded(self, lease: str) -> None:
        """Say that the task of `lease` is over here, once or again; those never granted are not the operator's."""
        if lease in self.taken:
            self.released.add(lease)

"""PURE: the offered leases that this worker claims, those that it was granted, and those that it has concluded.

The operator offers the leases of tasks that arrived while the pool had no worker. A worker claims a lease only for a
slot that is free right now, and runs the task when a reply grants the lease. Once the task is concluded, the reports
list the lease in `released` until a reply acknowledges that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from activity_worker.contract import Grant, Reply

#: How long a slot waits for the answer to a claim before it polls instead. Two report time-outs: a slower operator
#: counts as unreachable, and workers go on without it.
CLAIM_TIMEOUT_SECONDS = 10.0
#: How long a stopping worker waits for that answer. A leader may have written the claim and died before it answered;
#: then no other worker gets the task. Operators keep such a task alive for the same time.
STOPPING_CLAIM_TIMEOUT_SECONDS = 60.0


@dataclass(slots=True)
class ClaimBook:
    """The leases that the operator holds for this worker. `now` is in monotonic seconds."""

    offers: tuple[str, ...] = ()
    claims: dict[str, float] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)

    @property
    def unclaimed(self) -> bool:
        """Whether an offered lease is not claimed yet."""
        return any(offer not in self.claims and offer not in self.taken for offer in self.offers)

    def claim(self, free_slots: int, now: float) -> None:
        """Claim offers for this number of further slots."""
        wanted = [offer for offer in self.offers if offer not in self.claims and offer not in self.taken]
        self.claims.update(dict.fromkeys(wanted[:free_slots], now))

    def reserved(self, now: float) -> int:
        """Return how many slots must not poll because a claim for them waits for its answer."""
        return sum(1 for since in self.claims.values() if now - since < CLAIM_TIMEOUT_SECONDS)

    def awaited(self, now: float) -> bool:
        """Whether a claim may still be answered: the operator may have written this worker as the owner already."""
        return any(now - since < STOPPING_CLAIM_TIMEOUT_SECONDS for since in self.claims.values())

    def answered(self, reply: Reply, asked: Iterable[str]) -> tuple[Grant, ...]:
        """Process the reply to a report that claimed `asked`; return the new grants.

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
        """Take back every claim, because a stopped worker can run no task. Granted leases stay with this worker."""
        self.offers = ()
        self.claims.clear()

    def concluded(self, lease: str) -> None:
        """Record that a task is concluded; a lease that was never granted is ignored. A second call changes nothing."""
        if lease in self.taken:
            self.released.add(lease)

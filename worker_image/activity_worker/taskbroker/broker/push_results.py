"""Writes the ends of pushes into the store: what came while one write was under way goes into the next."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.database.errors import driver_error
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.claims import Claim, deliver_claims, release_claims

log = logging.getLogger(__name__)

#: The most claims in one transaction.
MAX_BATCH: Final = 100
#: How often a write is tried, and the seconds between two tries. After that the claims expire.
TRIES: Final = 5
PAUSE_SECONDS: Final = 1.0


class PushResults:
    """The claims whose pushes have ended. `run` writes them until it is cancelled; `written` waits for all."""

    def __init__(self, store: BrokerStore) -> None:
        self._store = store
        self._accepted: list[Claim] = []
        self._refused: list[Claim] = []
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def accepted(self, claim: Claim) -> None:
        """Have a claim delivered."""
        self._add(self._accepted, claim)

    def refused(self, claim: Claim) -> None:
        """Have a claim released."""
        self._add(self._refused, claim)

    async def written(self) -> None:
        """Wait until everything is written, or has been tried often enough."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._accepted or self._refused:
                accepted, self._accepted = self._accepted[:MAX_BATCH], self._accepted[MAX_BATCH:]
                refused, self._refused = self._refused[:MAX_BATCH], self._refused[MAX_BATCH:]
                await self._write(deliver_claims, accepted)
                await self._write(release_claims, refused)
            self._idle.set()

    def _add(self, claims: list[Claim], claim: Claim) -> None:
        claims.append(claim)
        self._idle.clear()
        self._added.set()

    async def _write(
        self, write: Callable[[BrokerStore, Sequence[Claim]], Awaitable[int]], claims: Sequence[Claim]
    ) -> None:
        for last in (*[False] * (TRIES - 1), True):
            try:
                if claims:
                    await write(self._store, claims)
            except (SQLAlchemyError, OSError) as error:
                facts = {"error": type(driver_error(error)).__name__, "claims": len(claims)}
                log.warning("the ends of pushes are not written", extra={"facts": facts})
                if not last:
                    await asyncio.sleep(PAUSE_SECONDS)
            else:
                return

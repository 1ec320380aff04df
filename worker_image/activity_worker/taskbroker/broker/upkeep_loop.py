"""Upkeep of a store, each second."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.database.errors import driver_error
from activity_worker.taskbroker.broker.store_counts import StoreCounts
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.store.broker_store import BrokerStore

log = logging.getLogger(__name__)

#: Seconds between two rounds.
UPKEEP_SECONDS: Final = 1.0
#: Seconds after a start, or after the store came back, in which no deadline passes: workers could not report before.
DEADLINE_PAUSE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class UpkeepListener:
    """Who is told what a round of upkeep has done."""

    moved: Callable[[UpkeepStep, int], None]
    failed: Callable[[], None]


class TopicSteps(Protocol):
    """The steps of upkeep that write to topics of Kafka."""

    @property
    def steps(self) -> Collection[UpkeepStep]:
        """Which they are."""
        ...

    async def append(self, step: UpkeepStep) -> int:
        """Write what a step has for its topic; return how many activations it moved. Raises the store's errors."""
        ...


class UpkeepLoop:
    """Moves the activations of a store on. Several brokers may do so on one store."""

    def __init__(
        self,
        store: BrokerStore,
        counts: StoreCounts,
        listener: UpkeepListener,
        *,
        deadline_pause_seconds: float = DEADLINE_PAUSE_SECONDS,
        topics: TopicSteps | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._counts = counts
        self._listener = listener
        self._pause = deadline_pause_seconds
        self._topics = topics
        self._monotonic = monotonic
        self._deadlines_from = monotonic() + deadline_pause_seconds
        self._failing = False

    async def run(self) -> None:
        """Do a round each second until cancelled."""
        while True:
            await self.round()
            await asyncio.sleep(UPKEEP_SECONDS)

    async def round(self) -> None:
        """Do every step once, and count if it is time; a store that does not answer ends the round."""
        try:
            for step in UpkeepStep:
                if step is UpkeepStep.PASS_DEADLINES and self._monotonic() < self._deadlines_from:
                    continue
                if self._topics is not None and step in self._topics.steps:
                    self._listener.moved(step, await self._topics.append(step))
                    self._listener.moved(step, await self._store.upkeep(step, beside_topic=True))
                else:
                    self._listener.moved(step, await self._store.upkeep(step))
            await self._counts.refresh()
        except (SQLAlchemyError, OSError) as error:
            self._listener.failed()
            self._deadlines_from = self._monotonic() + self._pause
            if not self._failing:
                log.warning("upkeep: the store does not answer", extra={"facts": {"error": _name(error)}})
            self._failing = True
            return
        if self._failing:
            log.info("upkeep: the store answers again")
        self._failing = False


def _name(error: Exception) -> str:
    return type(driver_error(error)).__name__

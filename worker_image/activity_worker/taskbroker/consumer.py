"""A worker's side of one or more brokers: asks them in turn for tasks, and reports to the one that gave a task."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from activity_worker.taskbroker.broker_calls import BrokerCalls
from activity_worker.taskbroker.lifecycle.attempts import FailureReport
from activity_worker.taskbroker.lifecycle.inflight import Outcome
from activity_worker.taskbroker.protocol.activation import Activation
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError

log = logging.getLogger(__name__)

#: Errors in a row after which a broker is asked for no task, and for how many seconds.
MAX_ERRORS: Final = 3
ASIDE_SECONDS: Final = 20.0
#: The longest wait at one broker, in seconds, where there are several: the others may have tasks meanwhile.
SHARED_WAIT_SECONDS: Final = 0.5
COMPLETED: Final = FailureReport(Outcome.COMPLETE)


@dataclass(frozen=True, slots=True)
class GivenTask:
    """A task, and the address of the broker that gave it out."""

    broker: str
    activation: Activation


class _Broker:
    """One broker, and how it answered lately."""

    def __init__(
        self, settings: ChannelSettings, wanted: Mapping[str, str], unclaimed: Callable[[GivenTask], None]
    ) -> None:
        self.address = settings.address
        self.calls = BrokerCalls(
            TaskbrokerChannel(settings), wanted, lambda task: unclaimed(GivenTask(settings.address, task))
        )
        self._errors = 0
        self._aside_until = float("-inf")

    def is_aside(self, now: float) -> bool:
        return now < self._aside_until

    def answered(self) -> None:
        if self._errors >= MAX_ERRORS:
            log.info("the taskbroker answers again", extra={"facts": {"taskbroker": self.address}})
        self._errors = 0

    def failed(self, now: float, error: TaskbrokerError) -> None:
        self._errors += 1
        if self._errors < MAX_ERRORS:
            return
        self._aside_until = now + ASIDE_SECONDS
        if self._errors == MAX_ERRORS:
            log.warning(
                "the taskbroker is set aside", extra={"facts": {"taskbroker": self.address, "error": error.code}}
            )


class TaskConsumer:
    """The brokers of `settings`, asked in turn. Make it in a running event loop, and `close` it at the end.

    `namespace` and `application` choose the tasks; None asks for any. `clock` is in seconds, and never goes back.
    `unclaimed` gets a task that came with the answer to a report whose caller has stopped waiting.
    """

    def __init__(
        self,
        settings: Sequence[ChannelSettings],
        *,
        namespace: str | None = None,
        application: str | None = None,
        clock: Callable[[], float] | None = None,
        unclaimed: Callable[[GivenTask], None] | None = None,
    ) -> None:
        wanted = {
            key: value for key, value in (("namespace", namespace), ("application", application)) if value is not None
        }
        self._brokers = [_Broker(one, wanted, unclaimed or (lambda _: None)) for one in settings]
        self._by_address = {one.address: one for one in self._brokers}
        self._clock = clock or asyncio.get_running_loop().time
        self._first = itertools.cycle(range(len(self._brokers)))

    async def get(self) -> GivenTask | None:
        """Return a task, None when no broker has any. See `get_many`."""
        some = await self.get_many(1)
        return some[0] if some else None

    async def get_many(self, most: int, wait_seconds: float = 0.0) -> Sequence[GivenTask]:
        """Ask each broker once, until one gives tasks; return at most `most`, all of that broker.

        A broker of this project holds the call for up to `wait_seconds`, of several each for a moment.

        A broker that is set aside is left out, unless all are. Raises TaskbrokerError when no broker could be asked.
        """
        start = next(self._first)
        in_turn = self._brokers[start:] + self._brokers[:start]
        now = self._clock()
        error: TaskbrokerError | None = None
        answers = 0
        wait = wait_seconds if len(self._brokers) == 1 else min(wait_seconds, SHARED_WAIT_SECONDS)
        for broker in [one for one in in_turn if not one.is_aside(now)] or in_turn:
            try:
                tasks = await broker.calls.get(most, wait)
            except TaskbrokerError as refused:
                broker.failed(self._clock(), refused)
                error = refused
                continue
            broker.answered()
            if tasks:
                return [GivenTask(broker.address, task) for task in tasks]
            answers += 1
        if error is not None and not answers:
            raise error
        return ()

    async def report(self, given: GivenTask, report: FailureReport, *, fetch: bool) -> GivenTask | None:
        """Report to the broker of a task; with `fetch`, return the next task that it has, None for none.

        Raises TaskbrokerError.
        """
        broker = self._by_address[given.broker]
        try:
            task = await broker.calls.report(given.activation.id, report, fetch=fetch)
        except TaskbrokerError as error:
            broker.failed(self._clock(), error)
            raise
        broker.answered()
        return None if task is None else GivenTask(broker.address, task)

    async def close(self) -> None:
        """Close the connections."""
        for broker in self._brokers:
            await broker.calls.close()

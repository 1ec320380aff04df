"""Reads tasks from topics into the store, for as long as the broker runs."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.database.errors import driver_error
from activity_worker.taskbroker.broker.limits import Admissions
from activity_worker.taskbroker.kafka import client
from activity_worker.taskbroker.kafka.group_member import GroupMember
from activity_worker.taskbroker.kafka.metrics import KafkaMetrics
from activity_worker.taskbroker.kafka.received import (
    ORIGIN_HEADER,
    REASON_HEADER,
    UNREADABLE,
    MessageBatch,
    UnreadableMessage,
    read_messages,
)
from activity_worker.taskbroker.kafka.sender import Delivery, OutgoingMessage, Sender
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.positions import add_read, replace_position, stored_positions

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds until the group is joined again after the store or Kafka failed.
REJOIN_SECONDS: Final = 1.0
#: Seconds between two looks at how many messages are not read.
_LAG_SECONDS: Final = 5.0
#: Seconds for an answer of the store while Kafka waits for it.
_STORE_SECONDS: Final = 30.0
#: Seconds for the batch under way when the broker stops.
_STOP_SECONDS: Final = 10.0


class NotKeptError(Exception):
    """The dead-letter topic did not acknowledge an unreadable message: it is read again."""


class TopicIntake:
    """Reads the topics of `settings`. `start` it in the running event loop, and `stop` it at the end.

    A batch is kept in one transaction with its position, and committed to Kafka after that. Messages that are no tasks
    go to the dead-letter topic, through `sender`, or are dropped where there is none.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        store: BrokerStore,
        admissions: Admissions,
        metrics: KafkaMetrics,
        sender: Sender,
        added: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._admissions = admissions
        self._metrics = metrics
        self._sender = sender
        self._added = added
        self._stopping = asyncio.Event()
        self._lag_at = 0.0
        self._task: asyncio.Task[None] | None = None
        # A thread of its own for all calls of the client: they block, and may call back.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-intake")

    @property
    def ended(self) -> bool:
        """Whether it has ended before it was stopped."""
        return self._task is not None and self._task.done() and not self._stopping.is_set()

    def start(self) -> None:
        """Begin to read."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the batch under way and leave the group."""
        self._stopping.set()
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=_STOP_SECONDS)
            if not done:
                self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        failures = (client.library().KafkaException, SQLAlchemyError, OSError, NotKeptError)
        failing = False
        while not self._stopping.is_set():
            try:
                await self._member()
                failing = False
            except failures as error:
                name = _name(error)
                self._metrics.failed(name)
                log.log(
                    logging.DEBUG if failing else logging.WARNING,
                    "reading from Kafka failed: the group is joined again",
                    extra={"facts": {"error": name}},
                )
                failing = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REJOIN_SECONDS):
                    await self._stopping.wait()

    async def _member(self) -> None:
        """Read as a member of the group until the broker stops, or something fails."""
        loop, store = asyncio.get_running_loop(), self._store

        def asked(call: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(call, loop).result(_STORE_SECONDS)

        member = await self._in_thread(
            lambda: GroupMember(
                self._settings,
                stored=lambda group: asked(stored_positions(store, group)),
                replace=lambda group, partition, offset: asked(replace_position(store, group, partition, offset)),
                failed=self._metrics.failed,
            )
        )
        try:
            while not self._stopping.is_set():
                await self._round(member)
        finally:
            await self._in_thread(member.close)
            self._metrics.lags({})

    async def _round(self, member: GroupMember) -> None:
        paused = self._admissions.refusal() != ""
        self._metrics.paused(paused)
        await self._in_thread(lambda: member.pause(paused))
        messages = await self._in_thread(member.read)
        if messages:
            batch = read_messages(messages, self._store.clock())
            await self._keep(member, batch)
            await self._in_thread(lambda: member.commit(batch.next_offsets))
        else:
            await self._in_thread(lambda: member.commit({}))
        if time.monotonic() - self._lag_at >= _LAG_SECONDS:
            self._metrics.lags(await self._in_thread(member.lags))
            self._lag_at = time.monotonic()

    async def _keep(self, member: GroupMember, batch: MessageBatch) -> None:
        if batch.unreadable:
            await self._put_aside(batch.unreadable)
        kept = await add_read(self._store, member.group, batch.activations, batch.next_offsets)
        self._admissions.added(kept.added)
        self._added(kept.added)
        self._metrics.kept(kept)

    async def _put_aside(self, unreadable: Sequence[UnreadableMessage]) -> None:
        topic, first = self._settings.dead_letter_topic, unreadable[0]
        facts = {"messages": len(unreadable), "first": first.message.origin, "problem": first.problem}
        if topic:
            found = await self._sender.send(topic, [_aside(one) for one in unreadable])
            if Delivery.FAILED in found:
                raise NotKeptError
            dropped = found.count(Delivery.REFUSED)
            self._metrics.wrote(topic, len(found) - dropped)
            log.warning("messages are no tasks: put aside", extra={"facts": {**facts, "dropped": dropped}})
        else:
            log.warning("messages are no tasks: dropped, for want of a dead-letter topic", extra={"facts": facts})
        self._metrics.unreadable(len(unreadable))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def _aside(one: UnreadableMessage) -> OutgoingMessage:
    message = one.message
    return OutgoingMessage(message.value, [(REASON_HEADER, UNREADABLE), (ORIGIN_HEADER, message.origin)], message.key)


def _name(error: Exception) -> str:
    cause = driver_error(error)
    # A KafkaException holds the client's error, which has a name of its own.
    name = getattr(cause.args[0], "name", None) if cause.args else None
    return str(name()) if callable(name) else type(cause).__name__

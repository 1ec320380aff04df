"""What a broker with Kafka has beside one without: made together, and ended in order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from activity_worker.taskbroker.broker.limits import Admissions
from activity_worker.taskbroker.broker.metrics import BrokerMetrics
from activity_worker.taskbroker.kafka import client
from activity_worker.taskbroker.kafka.appender import TopicAppender, topics_of
from activity_worker.taskbroker.kafka.intake import TopicIntake
from activity_worker.taskbroker.kafka.metrics import KafkaMetrics
from activity_worker.taskbroker.kafka.sender import TopicSender
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.store.broker_store import BrokerStore


@dataclass(frozen=True, slots=True)
class BrokerKafka:
    """The parts of a broker that use Kafka; `appender` is for its upkeep, `intake` is to be started."""

    appender: TopicAppender
    intake: TopicIntake | None


@contextlib.asynccontextmanager
async def broker_kafka(
    settings: KafkaSettings,
    store: BrokerStore,
    admissions: Admissions,
    metrics: BrokerMetrics,
    registry: CollectorRegistry,
) -> AsyncIterator[BrokerKafka]:
    """Yield a broker's Kafka. Raises KafkaSettingsError and KafkaMissingError; Kafka itself need not answer yet."""
    counted = KafkaMetrics(registry)
    if settings.topics:
        # Wrong options are an error of the command line, not of the intake's first try.
        checked = await asyncio.to_thread(client.make_consumer, settings, counted.failed)
        await asyncio.to_thread(checked.close)
    sender = TopicSender(settings, counted.failed)
    intake = None
    try:
        appender = TopicAppender(store, sender, topics_of(settings), counted.wrote)
        if settings.topics:
            intake = TopicIntake(settings, store, admissions, counted, sender, metrics.added.inc)
        yield BrokerKafka(appender, intake)
    finally:
        if intake is not None:
            await intake.stop()
        await sender.close()

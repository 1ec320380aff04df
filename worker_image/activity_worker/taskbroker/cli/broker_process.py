"""A broker as a process: its store, its calls, its upkeep and its probes, until a signal."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from prometheus_client import CollectorRegistry, disable_created_metrics

from activity_worker.contract import WorkerState
from activity_worker.errors import PortError
from activity_worker.taskbroker.broker.limits import Admissions, StoreLimits
from activity_worker.taskbroker.broker.listed_workers import ListedWorkers, WorkerResolver
from activity_worker.taskbroker.broker.metrics import BrokerMetrics
from activity_worker.taskbroker.broker.push_client import PushClient
from activity_worker.taskbroker.broker.push_dispatcher import PushDispatcher
from activity_worker.taskbroker.broker.service import BrokerService, Delivery
from activity_worker.taskbroker.broker.store_counts import StoreCounts
from activity_worker.taskbroker.broker.upkeep_loop import UpkeepListener, UpkeepLoop
from activity_worker.taskbroker.broker.waiting_calls import WaitingCalls
from activity_worker.taskbroker.broker.worker_map import Registration
from activity_worker.taskbroker.kafka.settings import KafkaSettings
from activity_worker.taskbroker.kafka.wiring import broker_kafka
from activity_worker.taskbroker.lifecycle.upkeep import UpkeepStep
from activity_worker.taskbroker.protocol.channel import MAX_MESSAGE_BYTES
from activity_worker.taskbroker.store.broker_store import BrokerPolicy, BrokerStore, QueueDepth

log = logging.getLogger(__name__)

#: Seconds for calls under way when the broker stops.
_STOP_SECONDS = 5.0
#: Container objects that are made and not freed between two collections. With Python's own number, 700, those of one
#: exchange of a hundred tasks are visited several times.
NEW_OBJECTS = 10_000
#: The steps of upkeep after which a task may be pending.
_MAKE_PENDING = frozenset({UpkeepStep.APPEND_RETRIES, UpkeepStep.PASS_DEADLINES, UpkeepStep.END_DELAYS})


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker runs. `address` is HOST:PORT for gRPC (port 0: a free one); `tls` is a key and a chain in PEM.

    `health_port` is for probes and metrics (None: nowhere). Without `kafka` tasks come by `Enqueue` alone. Tasks are
    pushed to workers that register, and to those in `worker_map`; `worker_tls_root` is the CA in PEM of workers with
    TLS (None: no TLS), `worker_tls_name` the name in the certificates of workers that register.
    """

    address: str
    secrets: Sequence[str] = field(default=(), repr=False)
    tls: tuple[bytes, bytes] | None = field(default=None, repr=False)
    policy: BrokerPolicy = field(default_factory=BrokerPolicy)
    limits: StoreLimits = field(default_factory=StoreLimits)
    deadline_pause_seconds: float = 60.0
    health_port: int | None = None
    kafka: KafkaSettings | None = None
    delivery: Delivery = Delivery.BOTH
    worker_map: Sequence[ListedWorkers] = ()
    worker_tls_root: bytes | None = None
    worker_tls_name: str = ""


class _Part(Protocol):
    """A part of the broker that runs until the broker stops."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""


async def serve_until_signal(url: str, options: BrokerOptions) -> None:
    """Run a broker until SIGTERM or SIGINT. Raises PortError, StoreUrlError and the database's errors."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with running_broker(url, options):
        with short_pauses():
            await stopped.wait()


@contextlib.contextmanager
def short_pauses() -> Iterator[None]:
    """Have Python's garbage collector visit less, and less often, until the block ends.

    A full collection visits every container object and holds all threads: 40 ms of processor time for the 93,000
    objects of a broker that has just begun. A broker's tasks are freed when their last reference goes.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.asynccontextmanager
async def running_broker(url: str, options: BrokerOptions) -> AsyncIterator[int]:
    """Run a broker, and yield the port of its calls. It listens when the store is open and upkeep has begun."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    metrics, admissions = BrokerMetrics(registry), Admissions(options.limits)
    state = WorkerState.STARTING
    store = await BrokerStore.open(url, options.policy)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)

        def counted(depths: Sequence[QueueDepth]) -> None:
            admissions.counted(depths)
            metrics.counted(depths)

        def moved(step: UpkeepStep, number: int) -> None:
            metrics.moved.labels(step.name.lower()).inc(number)
            if number and step in _MAKE_PENDING:
                waiting.wake()

        waiting = WaitingCalls()
        counts = StoreCounts(store, counted)
        listener = UpkeepListener(moved, metrics.upkeep_failures.inc)
        intake, appender = None, None
        if options.kafka is not None:
            made = broker_kafka(options.kafka, store, admissions, metrics, registry)
            kafka = await stack.enter_async_context(made)
            intake, appender = kafka.intake, kafka.appender
        pause = options.deadline_pause_seconds
        upkeep = UpkeepLoop(store, counts, listener, deadline_pause_seconds=pause, topics=appender)
        await upkeep.round()
        task = asyncio.create_task(upkeep.run())
        stack.push_async_callback(_ended, task)
        parts: dict[str, _Part | None] = {"reading from Kafka": intake, "pushing": None}
        if options.health_port is not None:
            probes = _probes(registry, lambda: state, lambda: _problem(task, parts), options.health_port)
            await stack.enter_async_context(probes)
        dispatcher = None
        if options.delivery is not Delivery.PULL:
            dispatcher = parts["pushing"] = await _dispatching(stack, store, metrics, options)
        delivery, secrets = options.delivery, options.secrets
        service = BrokerService(
            store, counts, metrics, admissions, waiting, secrets, delivery=delivery, dispatcher=dispatcher
        )
        port = await stack.enter_async_context(_listening(service, options))
        if intake is not None:
            intake.start()
        state = WorkerState.RUNNING
        _log_start(store, port, options)
        try:
            yield port
        finally:
            state = WorkerState.STOPPING
    log.info("broker stopped")


def _problem(upkeep: "asyncio.Task[None]", parts: Mapping[str, "_Part | None"]) -> str:
    """Return which part of the broker has ended, "" if none has."""
    over = (name for name, part in parts.items() if part is not None and part.ended)
    return next((f"{name} has ended" for name in over), "upkeep has ended" if upkeep.done() else "")


async def _dispatching(
    stack: contextlib.AsyncExitStack, store: BrokerStore, metrics: BrokerMetrics, options: BrokerOptions
) -> PushDispatcher:
    """Start to push, until the stack is left; return the dispatcher."""

    def connect(registration: Registration) -> PushClient:
        named = registration.tls_name or options.worker_tls_name
        tls_name = named if options.worker_tls_root is not None else ""
        return PushClient(replace(registration, tls_name=tls_name), options.secrets, options.worker_tls_root)

    dispatcher = PushDispatcher(store, connect, lambda outcome: metrics.pushes.labels(outcome).inc())
    stack.push_async_callback(_ended, asyncio.create_task(dispatcher.run()))
    if options.worker_map:
        resolver = WorkerResolver(options.worker_map, dispatcher.register)
        stack.push_async_callback(_ended, asyncio.create_task(resolver.run()))
    return dispatcher


def _log_start(store: BrokerStore, port: int, options: BrokerOptions) -> None:
    facts: dict[str, object] = {"port": port, "store": store.engine.dialect.name}
    facts |= {"signed": bool(options.secrets), "tls": bool(options.tls)}
    if (kafka := options.kafka) is not None:
        facts |= {"kafkaTopics": ",".join(kafka.topics), "kafkaGroup": kafka.group}
    log.info("broker started", extra={"facts": facts})
    if kafka is not None and kafka.retry_topic and kafka.retry_topic not in kafka.topics:
        log.warning(
            "this broker does not read its retry topic: name it in --kafka-topics, or let another broker read it",
            extra={"facts": {"topic": kafka.retry_topic}},
        )


@contextlib.asynccontextmanager
async def _listening(service: BrokerService, options: BrokerOptions) -> AsyncIterator[int]:
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            # Otherwise a second broker on the same port would take half of the calls, silently.
            ("grpc.so_reuseport", 0),
        ]
    )
    server.add_generic_rpc_handlers(tuple(service.handlers()))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    try:
        if options.tls is None:
            port = server.add_insecure_port(options.address)
        else:
            port = server.add_secure_port(options.address, grpc.ssl_server_credentials([options.tls]))
    except RuntimeError:
        message = f"--address {options.address} cannot be listened on: is the port free, and the host this one?"
        raise PortError(message) from None
    await server.start()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    try:
        yield port
    finally:
        await servicer.enter_graceful_shutdown()
        service.stop_waiting()
        await server.stop(_STOP_SECONDS)
        await service.close()


@contextlib.asynccontextmanager
async def _probes(
    registry: CollectorRegistry, state: Callable[[], WorkerState], problem: Callable[[], str], port: int
) -> AsyncIterator[None]:
    from activity_worker.supervisor.health import WorkerHealthServer  # noqa: PLC0415 - where it is asked for

    server = WorkerHealthServer(lambda: registry, state, problem)
    try:
        try:
            await server.start(port)
        except (OSError, OverflowError) as error:
            raise PortError(f"--health-port {port} cannot be had: {error}") from None
        yield
    finally:
        await server.stop()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

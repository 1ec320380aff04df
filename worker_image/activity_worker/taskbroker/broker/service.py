"""The calls of a broker: those of the published protocol, and Enqueue, CountTasks and RegisterWorker.

Handlers get a request's bytes, because the signature is computed over them.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from sqlalchemy.exc import SQLAlchemyError

from activity_worker.database.errors import driver_error
from activity_worker.taskbroker.broker.limits import Admissions
from activity_worker.taskbroker.broker.metrics import BrokerMetrics
from activity_worker.taskbroker.broker.push_dispatcher import PushDispatcher
from activity_worker.taskbroker.broker.store_counts import StoreCounts
from activity_worker.taskbroker.broker.waiting_calls import Offer, OfferReceiver, WaitingCalls
from activity_worker.taskbroker.broker.worker_map import MAX_WORKERS, REGISTRATION_SECONDS, Registration
from activity_worker.taskbroker.lifecycle.inflight import AdmissionError, Outcome, admit
from activity_worker.taskbroker.lifecycle.states import ActivationState
from activity_worker.taskbroker.protocol.activation import ActivationError
from activity_worker.taskbroker.protocol.channel import WAIT_KEY
from activity_worker.taskbroker.protocol.messages import (
    BACKLOG_SERVICE,
    CONSUMER_SERVICE,
    EXCHANGE_SERVICE,
    PRODUCER_SERVICE,
    WORKER_MAP_SERVICE,
    CountTasksRequest,
    CountTasksResponse,
    EnqueueRequest,
    EnqueueResponse,
    ExchangeTasksRequest,
    ExchangeTasksResponse,
    GetTaskRequest,
    GetTaskResponse,
    RegisterWorkerRequest,
    RegisterWorkerResponse,
    SetBatchActivationStatusRequest,
    SetBatchActivationStatusResponse,
    SetTaskStatusRequest,
    SetTaskStatusResponse,
)
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import GivenOut, Report, TaskFilter
from activity_worker.wire.host_names import is_host_port
from activity_worker.wire.taskbroker_signature import is_call_signed

log = logging.getLogger(__name__)

#: The most activations in one call, and the most reports.
MAX_BATCH: Final = 1000
#: The most slots of one worker, and the most characters of the address that it knows its broker by.
MAX_SLOTS: Final = 1000
MAX_URL: Final = 300
Context = grpc.aio.ServicerContext[bytes, bytes]
_OUTCOMES: Final = {outcome.value for outcome in Outcome}


class Delivery(StrEnum):
    """How the tasks of a broker come to workers."""

    #: Workers ask for them.
    PULL = "pull"
    #: The broker pushes them, and gives none out.
    PUSH = "push"
    #: Each worker has its own way.
    BOTH = "both"


class CallError(Exception):
    """A call is refused with a gRPC code."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BrokerService:
    """Answers calls from a store. `secrets` verify the signatures; without any, every call is taken."""

    def __init__(
        self,
        store: BrokerStore,
        counts: StoreCounts,
        metrics: BrokerMetrics,
        admissions: Admissions,
        waiting: WaitingCalls,
        secrets: Sequence[str] = (),
        *,
        delivery: Delivery = Delivery.PULL,
        dispatcher: PushDispatcher | None = None,
    ) -> None:
        self._store = store
        self._counts = counts
        self._metrics = metrics
        self._admissions = admissions
        self._secrets = secrets
        self._delivery = delivery
        self._dispatcher = dispatcher
        self._waiting = waiting
        metrics.waiting_calls.set_function(lambda: waiting.number)
        #: Calls that were given up while the store gave out their tasks.
        self._giving_back: set[asyncio.Task[None]] = set()

    def handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        """Yield a handler for each service."""
        calls: dict[str, dict[str, tuple[Any, Callable[[Any, float], Awaitable[Any]]]]] = {
            CONSUMER_SERVICE: {
                "GetTask": (GetTaskRequest, self._get_task),
                "SetTaskStatus": (SetTaskStatusRequest, self._set_task_status),
                "SetBatchActivationStatus": (SetBatchActivationStatusRequest, self._set_batch),
            },
            PRODUCER_SERVICE: {"Enqueue": (EnqueueRequest, self._enqueue)},
            BACKLOG_SERVICE: {"CountTasks": (CountTasksRequest, self._count_tasks)},
            EXCHANGE_SERVICE: {"ExchangeTasks": (ExchangeTasksRequest, self._exchange_tasks)},
            WORKER_MAP_SERVICE: {"RegisterWorker": (RegisterWorkerRequest, self._register_worker)},
        }
        for service, methods in calls.items():
            made = {name: self._handler(f"/{service}/{name}", *method) for name, method in methods.items()}
            yield grpc.method_handlers_generic_handler(service, made)

    def stop_waiting(self) -> None:
        """Answer the calls that wait for a task, and let no further one wait."""
        self._waiting.close()

    async def close(self) -> None:
        """Wait until tasks of calls that were given up are back in the store."""
        await asyncio.gather(*self._giving_back, return_exceptions=True)

    def _handler(self, path: str, kind: Any, answer: Callable[[Any, float], Awaitable[Any]]) -> Any:
        call = path.rpartition("/")[2]

        async def handle(body: bytes, context: Context) -> bytes:
            began = time.perf_counter()
            code, message, answered, name = grpc.StatusCode.OK, "", b"", call
            try:
                metadata = context.invocation_metadata() or ()
                self._check_signature(path, body, metadata)
                wait_seconds = _wait_seconds(metadata)
                name = f"{call}, waiting" if wait_seconds else call
                answered = (await answer(_parsed(kind, body), wait_seconds)).SerializeToString()
            except CallError as error:
                code, message = error.code, str(error)
            except (SQLAlchemyError, OSError) as error:
                # What the database says may hold parameters: the log gets its name, the caller less.
                log.warning("the store failed a call", extra={"facts": {"call": name, "error": _name(error)}})
                code, message = grpc.StatusCode.UNAVAILABLE, "the broker's store does not answer: try again"
            self._metrics.calls.labels(name, code.name).inc()
            self._metrics.call_seconds.labels(name).observe(time.perf_counter() - began)
            if code is not grpc.StatusCode.OK:
                await context.abort(code, message)
            return answered

        return grpc.unary_unary_rpc_method_handler(handle)

    def _check_signature(self, path: str, body: bytes, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        if not is_call_signed(self._secrets, path, body, metadata):
            raise CallError(grpc.StatusCode.UNAUTHENTICATED, "Authentication failed")

    async def _get_task(self, request: Any, wait_seconds: float) -> Any:
        self._check_gives_out()
        taken = await self._next(_filter(request), 1, wait_seconds)
        if not taken:
            raise CallError(grpc.StatusCode.NOT_FOUND, "No pending activations")
        response = GetTaskResponse()
        response.task.ParseFromString(taken[0])
        return response

    async def _set_task_status(self, request: Any, _: float) -> Any:
        report = _report(request)
        fetches = request.HasField("fetch_next_task") and self._delivery is not Delivery.PUSH
        wanted = _filter(request.fetch_next_task) if fetches else None
        most = 0 if wanted is None else 1
        taken = await self._exchange([report], wanted or TaskFilter(), most)
        response = SetTaskStatusResponse()
        for data in taken:
            response.task.ParseFromString(data)
        return response

    async def _set_batch(self, request: Any, _: float) -> Any:
        _check_size(len(request.updates), "updates")
        await self._exchange([_report(update) for update in request.updates], TaskFilter(), 0)
        return SetBatchActivationStatusResponse()

    async def _exchange_tasks(self, request: Any, wait_seconds: float) -> Any:
        _check_size(len(request.updates), "updates")
        _check_size(request.wanted, "tasks wanted")
        if request.wanted:
            self._check_gives_out()
        reports = [_report(update) for update in request.updates]
        wanted, response = _filter(request), ExchangeTasksResponse()
        if reports or not request.wanted:
            # What is reported is never held up.
            taken = await self._exchange(reports, wanted, request.wanted)
        else:
            taken = await self._next(wanted, request.wanted, wait_seconds)
        for data in taken:
            response.tasks.add().ParseFromString(data)
        return response

    async def _enqueue(self, request: Any, _: float) -> Any:
        _check_size(len(request.activations), "activations")
        if refusal := self._admissions.refusal():
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, refusal)
        now = self._store.clock()
        admitted = []
        for place, message in enumerate(request.activations):
            try:
                admitted.append(admit(message.SerializeToString(), now))
            except (AdmissionError, ActivationError) as error:
                raise CallError(grpc.StatusCode.INVALID_ARGUMENT, f"activations[{place}]: {error}") from None
        due = (one for one in admitted if one.state is ActivationState.PENDING)
        queues = {(one.application, one.namespace) for one in due}

        def begin(wanted: TaskFilter, most: int) -> Offer:
            return asyncio.ensure_future(self._store.add_giving(admitted, wanted, most))

        # One transaction, and one wait for the disk, until a worker has the task.
        offer = self._waiting.offer(queues, begin)
        added = await self._store.add(admitted) if offer is None else (await asyncio.shield(offer))[0]
        self._admissions.added(added)
        self._metrics.added.inc(added)
        self._waiting.added(queues)
        if self._dispatcher is not None:
            self._dispatcher.added()
        return EnqueueResponse(added=added)

    async def _count_tasks(self, request: Any, _: float) -> Any:
        _check_size(len(request.selections), "selections")
        await self._counts.refresh()
        now, response = self._store.clock(), CountTasksResponse()
        for one in request.selections:
            wanted = _filter(one)
            found = self._counts.count(wanted.application, wanted.namespace)
            age = 0.0 if found.oldest_due_at is None else max(now - found.oldest_due_at, 0.0)
            milliseconds = round(age * 1000)
            response.counts.add(pending=found.pending, processing=found.processing, oldest_pending_age_ms=milliseconds)
        return response

    async def _next(self, wanted: TaskFilter, most: int, wait_seconds: float) -> Sequence[bytes]:
        """Give out tasks; without any, wait for the first of them."""
        receiver = OfferReceiver(most, self._accept, self._decline)
        return await self._waiting.first(wanted, wait_seconds, lambda: self._exchange([], wanted, most), receiver)

    async def _accept(self, offer: Offer) -> Sequence[bytes]:
        try:
            _, taken = await asyncio.shield(offer)
        except asyncio.CancelledError:
            self._decline(offer)
            raise
        except (SQLAlchemyError, OSError):
            # The producer's own call reports the error.
            return ()
        self._metrics.given_out.inc(len(taken))
        return [one.data for one in taken]

    async def _exchange(self, reports: Sequence[Report], wanted: TaskFilter, most: int) -> Sequence[bytes]:
        exchanging = asyncio.ensure_future(self._store.exchange(reports, wanted, most))
        try:
            changed, taken = await asyncio.shield(exchanging)
        except asyncio.CancelledError:
            self._decline(exchanging)
            raise
        for outcome, number in Counter(report.outcome for report in reports).items():
            name = outcome.name.lower()
            self._metrics.reports.labels(name, "yes").inc(changed[outcome])
            self._metrics.reports.labels(name, "no").inc(number - changed[outcome])
        self._metrics.given_out.inc(len(taken))
        if self._dispatcher is not None and reports:
            self._dispatcher.reported([report.id for report in reports])
        return [one.data for one in taken]

    def _decline(self, giving: "asyncio.Future[tuple[Any, Sequence[GivenOut]]]") -> None:
        # The client has gone, and nothing was answered: the attempt does not count.
        task = asyncio.create_task(self._give_back(giving))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back(self, giving: "asyncio.Future[tuple[Any, Sequence[GivenOut]]]") -> None:
        try:
            _, taken = await giving
            await self._store.give_back(taken)
        except (SQLAlchemyError, OSError) as error:
            log.warning(
                "tasks were not given back: they wait for their deadlines", extra={"facts": {"error": _name(error)}}
            )
        else:
            self._waiting.wake()

    def _check_gives_out(self) -> None:
        if self._delivery is Delivery.PUSH:
            message = "this broker pushes its tasks, and gives none out: give its workers the delivery push"
            raise CallError(grpc.StatusCode.PERMISSION_DENIED, message)

    async def _register_worker(self, request: Any, _: float) -> Any:
        if self._dispatcher is None:
            message = "this broker pushes no tasks: run it with --delivery both or push, or the worker with pull"
            raise CallError(grpc.StatusCode.FAILED_PRECONDITION, message)
        if not is_host_port(request.address):
            raise CallError(grpc.StatusCode.INVALID_ARGUMENT, "address is not HOST:PORT, such as 10.0.0.1:50052")
        slots, busy = min(request.slots, MAX_SLOTS), min(request.busy, MAX_SLOTS)
        registration = Registration(request.address, _filter(request), slots, busy, request.callback_url[:MAX_URL])
        if not self._dispatcher.register(registration):
            message = f"{MAX_WORKERS} workers are registered, and no more may be: try again later"
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
        return RegisterWorkerResponse(seconds=int(REGISTRATION_SECONDS))


def _wait_seconds(metadata: Iterable[tuple[str, str | bytes]]) -> float:
    """Return how long a call may wait for a task; what is no number is no wait."""
    for key, value in metadata:
        if key == WAIT_KEY:
            with contextlib.suppress(ValueError, TypeError):
                seconds = float(value)
                return seconds if 0 < seconds < math.inf else 0.0
    return 0.0


def _parsed(kind: Any, body: bytes) -> Any:
    request = kind()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise CallError(grpc.StatusCode.INVALID_ARGUMENT, f"the request is not a {kind.DESCRIPTOR.name}") from None
    return request


def _report(request: Any) -> Report:
    if request.status not in _OUTCOMES:
        expected = ", ".join(f"{outcome.name} ({outcome.value})" for outcome in Outcome)
        raise CallError(grpc.StatusCode.INVALID_ARGUMENT, f"status is {request.status}: expected one of {expected}")
    return Report(
        _plain(request.id, "id"),
        Outcome(request.status),
        max_attempts=request.max_attempts if request.HasField("max_attempts") else None,
        retry_delay=request.delay_on_retry if request.HasField("delay_on_retry") else None,
    )


def _filter(request: Any) -> TaskFilter:
    return TaskFilter(
        namespace=_plain(request.namespace, "namespace") if request.HasField("namespace") else None,
        application=_plain(request.application, "application") if request.HasField("application") else None,
    )


def _plain(text: str, name: str) -> str:
    if "\0" in text:
        # No such text is in a store, and PostgreSQL would end the statement with an error.
        raise CallError(grpc.StatusCode.INVALID_ARGUMENT, f"{name} has a NUL character: leave it out")
    return text


def _check_size(number: int, name: str) -> None:
    if number > MAX_BATCH:
        message = f"{number} {name} in one call: at most {MAX_BATCH}"
        raise CallError(grpc.StatusCode.INVALID_ARGUMENT, message)


def _name(error: Exception) -> str:
    return type(driver_error(error)).__name__

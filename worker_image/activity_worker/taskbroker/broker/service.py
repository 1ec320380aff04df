"""The calls of a broker: for workers as in the published protocol, Enqueue for producers, and CountTasks.

Handlers get a request's bytes, because the signature is computed over them.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from sqlalchemy.exc import SQLAlchemyError

from activity_worker.database.errors import driver_error
from activity_worker.taskbroker.broker.limits import Admissions
from activity_worker.taskbroker.broker.metrics import BrokerMetrics
from activity_worker.taskbroker.broker.store_counts import StoreCounts
from activity_worker.taskbroker.lifecycle.inflight import AdmissionError, Outcome, admit
from activity_worker.taskbroker.protocol.activation import ActivationError
from activity_worker.taskbroker.protocol.messages import (
    BACKLOG_SERVICE,
    CONSUMER_SERVICE,
    EXCHANGE_SERVICE,
    PRODUCER_SERVICE,
    CountTasksRequest,
    CountTasksResponse,
    EnqueueRequest,
    EnqueueResponse,
    ExchangeTasksRequest,
    ExchangeTasksResponse,
    GetTaskRequest,
    GetTaskResponse,
    SetBatchActivationStatusRequest,
    SetBatchActivationStatusResponse,
    SetTaskStatusRequest,
    SetTaskStatusResponse,
)
from activity_worker.taskbroker.store.broker_store import BrokerStore
from activity_worker.taskbroker.store.statements import Report, TaskFilter
from activity_worker.wire.taskbroker_signature import METADATA_KEY, is_signed

log = logging.getLogger(__name__)

#: The most activations in one call, and the most reports.
MAX_BATCH: Final = 1000
Context = grpc.aio.ServicerContext[bytes, bytes]
_OUTCOMES: Final = {outcome.value for outcome in Outcome}


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
        secrets: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._counts = counts
        self._metrics = metrics
        self._admissions = admissions
        self._secrets = secrets

    def handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        """Yield a handler for each service."""
        calls: dict[str, dict[str, tuple[Any, Callable[[Any], Awaitable[Any]]]]] = {
            CONSUMER_SERVICE: {
                "GetTask": (GetTaskRequest, self._get_task),
                "SetTaskStatus": (SetTaskStatusRequest, self._set_task_status),
                "SetBatchActivationStatus": (SetBatchActivationStatusRequest, self._set_batch),
            },
            PRODUCER_SERVICE: {"Enqueue": (EnqueueRequest, self._enqueue)},
            BACKLOG_SERVICE: {"CountTasks": (CountTasksRequest, self._count_tasks)},
            EXCHANGE_SERVICE: {"ExchangeTasks": (ExchangeTasksRequest, self._exchange_tasks)},
        }
        for service, methods in calls.items():
            made = {name: self._handler(f"/{service}/{name}", *method) for name, method in methods.items()}
            yield grpc.method_handlers_generic_handler(service, made)

    def _handler(self, path: str, kind: Any, answer: Callable[[Any], Awaitable[Any]]) -> Any:
        name = path.rpartition("/")[2]

        async def handle(body: bytes, context: Context) -> bytes:
            began = time.perf_counter()
            code, message, answered = grpc.StatusCode.OK, "", b""
            try:
                self._check_signature(path, body, context)
                answered = (await answer(_parsed(kind, body))).SerializeToString()
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

    def _check_signature(self, path: str, body: bytes, context: Context) -> None:
        if not self._secrets:
            return
        given = [value for key, value in context.invocation_metadata() or () if key == METADATA_KEY]
        if len(given) != 1 or not is_signed(self._secrets, path, body, str(given[0])):
            raise CallError(grpc.StatusCode.UNAUTHENTICATED, "Authentication failed")

    async def _get_task(self, request: Any) -> Any:
        taken = await self._exchange([], _filter(request), 1)
        if not taken:
            raise CallError(grpc.StatusCode.NOT_FOUND, "No pending activations")
        response = GetTaskResponse()
        response.task.ParseFromString(taken[0])
        return response

    async def _set_task_status(self, request: Any) -> Any:
        report = _report(request)
        wanted = _filter(request.fetch_next_task) if request.HasField("fetch_next_task") else None
        most = 0 if wanted is None else 1
        taken = await self._exchange([report], wanted or TaskFilter(), most)
        response = SetTaskStatusResponse()
        for data in taken:
            response.task.ParseFromString(data)
        return response

    async def _set_batch(self, request: Any) -> Any:
        _check_size(len(request.updates), "updates")
        await self._exchange([_report(update) for update in request.updates], TaskFilter(), 0)
        return SetBatchActivationStatusResponse()

    async def _exchange_tasks(self, request: Any) -> Any:
        _check_size(len(request.updates), "updates")
        _check_size(request.wanted, "tasks wanted")
        reports = [_report(update) for update in request.updates]
        response = ExchangeTasksResponse()
        for data in await self._exchange(reports, _filter(request), request.wanted):
            response.tasks.add().ParseFromString(data)
        return response

    async def _enqueue(self, request: Any) -> Any:
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
        added = await self._store.add(admitted)
        self._admissions.added(added)
        self._metrics.added.inc(added)
        return EnqueueResponse(added=added)

    async def _count_tasks(self, request: Any) -> Any:
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

    async def _exchange(self, reports: Sequence[Report], wanted: TaskFilter, most: int) -> Sequence[bytes]:
        changed, taken = await self._store.exchange(reports, wanted, most)
        for outcome, number in Counter(report.outcome for report in reports).items():
            name = outcome.name.lower()
            self._metrics.reports.labels(name, "yes").inc(changed[outcome])
            self._metrics.reports.labels(name, "no").inc(number - changed[outcome])
        self._metrics.given_out.inc(len(taken))
        return taken


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

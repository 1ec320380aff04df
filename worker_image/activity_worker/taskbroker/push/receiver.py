"""The calls of a worker to which brokers push: PushTask, and gRPC's health service."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

from activity_worker.taskbroker.consumer import GivenTask
from activity_worker.taskbroker.protocol.activation import activation_of
from activity_worker.taskbroker.protocol.channel import MAX_MESSAGE_BYTES
from activity_worker.taskbroker.protocol.messages import WORKER_SERVICE, PushTaskRequest, PushTaskResponse
from activity_worker.wire.taskbroker_signature import is_call_signed

_PATH: Final = f"/{WORKER_SERVICE}/PushTask"
#: What the published worker answers when it takes no task.
BUSY: Final = "worker busy"
_Context = grpc.aio.ServicerContext[bytes, bytes]


class ListenError(OSError):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """How pushes are received.

    `address` is HOST:PORT (port 0: a free one); `secrets` verify the signatures; `tls` is a key and a chain in PEM.
    `brokers` are the addresses that tasks are reported to: a push names one of them, or there is only one.
    """

    address: str
    brokers: Sequence[str]
    secrets: Sequence[str] = field(default=(), repr=False)
    tls: tuple[bytes, bytes] | None = field(default=None, repr=False)


class PushReceiver:
    """Serves pushes from `start` to `stop`. `take` says whether a slot has taken the task."""

    def __init__(self, options: ReceiverOptions, take: Callable[[GivenTask], Awaitable[bool]]) -> None:
        self._options = options
        self._take = take
        self._server: grpc.aio.Server | None = None
        self._health = health.HealthServicer()

    async def start(self) -> int:
        """Listen, and return the port. The health is NOT_SERVING until `set_serving`. Raises ListenError."""
        server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.so_reuseport", 0)]
        )
        call: Any = grpc.unary_unary_rpc_method_handler(self._push_task)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(WORKER_SERVICE, {"PushTask": call}),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        address, tls = self._options.address, self._options.tls
        try:
            if tls is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
        except RuntimeError:
            raise ListenError(f"{address} cannot be listened on: is the port free, and the host this one?") from None
        await self.set_serving(False)
        await server.start()
        self._server = server
        return port

    async def set_serving(self, on: bool) -> None:
        """Show brokers that this worker takes tasks, or (False) takes none."""
        status = health_pb2.HealthCheckResponse
        for service in ("", WORKER_SERVICE):
            await self._health.set(service, status.SERVING if on else status.NOT_SERVING)

    async def stop(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            await self._server.stop(None)

    async def _push_task(self, body: bytes, context: _Context) -> bytes:
        if not is_call_signed(self._options.secrets, _PATH, body, context.invocation_metadata() or ()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Authentication failed")
        request: Any = PushTaskRequest()
        try:
            request.ParseFromString(body)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a PushTaskRequest")
        if not request.task.id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "task.id is empty: every task needs one")
        broker = self._broker(request.callback_url)
        if broker is None:
            words = "this worker has several brokers: callback_url must be the address of one of them"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, words)
            raise AssertionError  # `abort` raises
        if not await self._take(GivenTask(broker, activation_of(request.task))):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, BUSY)
        answer: bytes = PushTaskResponse().SerializeToString()
        return answer

    def _broker(self, callback_url: str) -> str | None:
        """Return the address to which a task is reported: never another one than the worker was given."""
        brokers = self._options.brokers
        if callback_url in brokers:
            return callback_url
        return brokers[0] if len(brokers) == 1 else None

"""A broker's connection to a worker: pushes, and health checks."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

from grpc_health.v1 import health_pb2

from activity_worker.taskbroker.broker.worker_map import Registration
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import WORKER_SERVICE, PushTaskRequest, PushTaskResponse

_PUSH_TASK: Final = f"/{WORKER_SERVICE}/PushTask"
_CHECK: Final = "/grpc.health.v1.Health/Check"
#: Seconds for one push. The published worker keeps a push for 5 s until it answers that it is busy.
PUSH_SECONDS: Final = 10.0
#: Seconds for a health check.
HEALTH_SECONDS: Final = 5.0
#: Codes with which a worker refuses any task.
_REFUSALS: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "FAILED_PRECONDITION"})


class PushOutcome(StrEnum):
    """How a push ended."""

    #: The worker has the task.
    ACCEPTED = "accepted"
    #: It has no free slot, and not the task.
    BUSY = "busy"
    #: It takes no task of this broker, or cannot be reached; it has not the task.
    REFUSED = "refused"
    #: It may have the task.
    UNKNOWN = "unknown"


def outcome_of(error: TaskbrokerError) -> PushOutcome:
    """Return what the error of a push says about the task."""
    words = str(error).lower()
    if error.code == "RESOURCE_EXHAUSTED":
        # A task that is too large for this worker costs an attempt, or it would be pushed for ever.
        return PushOutcome.UNKNOWN if "larger than" in words else PushOutcome.BUSY
    unsent = error.code == "UNAVAILABLE" and "failed to connect" in words
    return PushOutcome.REFUSED if error.code in _REFUSALS or unsent else PushOutcome.UNKNOWN


class PushClient:
    """A worker's address. Make it in a running event loop, and `close` it at the end."""

    def __init__(self, registration: Registration, secrets: Sequence[str], tls_root: bytes | None) -> None:
        settings = ChannelSettings(registration.address, secrets, tls_root, registration.tls_name)
        self._channel = TaskbrokerChannel(settings)

    @property
    def connected(self) -> bool:
        """Whether nothing speaks against the connection."""
        return self._channel.connected

    async def push(self, data: bytes, callback_url: str) -> None:
        """Push a serialized activation; returns when the worker has accepted it. Raises TaskbrokerError."""
        request: Any = PushTaskRequest(callback_url=callback_url)
        request.task.ParseFromString(data)
        await self._channel.call(_PUSH_TASK, request, PushTaskResponse, seconds=PUSH_SECONDS)

    async def is_serving(self) -> bool:
        """Ask for the worker's health; one without gRPC's health service is healthy. Raises TaskbrokerError."""
        request = health_pb2.HealthCheckRequest()
        try:
            answer = await self._channel.call(_CHECK, request, health_pb2.HealthCheckResponse, seconds=HEALTH_SECONDS)
        except TaskbrokerError as error:
            if error.code == "UNIMPLEMENTED":
                return True
            raise
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """Close the connection; a push under way ends with an error."""
        await self._channel.close()

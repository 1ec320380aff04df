"""Calls to a taskbroker: signed requests over one gRPC channel."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from activity_worker.wire.taskbroker_signature import METADATA_KEY, sign

#: The most bytes of a message: a batch of tasks, or one task with large arguments.
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
#: Seconds for one call.
CALL_SECONDS: Final = 10.0
#: The metadata entry of a call that asks for tasks: the seconds for which it may wait at the broker for a task. A
#: broker that does not know the entry answers at once.
WAIT_KEY: Final = "activitypool-wait-seconds"


class TaskbrokerError(Exception):
    """A broker refused a call, or does not answer. `code` is gRPC's name of the error, such as UNAVAILABLE."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.code in {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED"}


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Where a broker is: HOST:PORT, and the secrets, of which the first signs.

    `tls_root` is the CA in PEM of a broker that speaks TLS (b"": the system's CAs); None is without TLS. `tls_name` is
    the name in its certificate if that is another one than the host.
    """

    address: str
    secrets: Sequence[str] = field(default=(), repr=False)
    tls_root: bytes | None = None
    tls_name: str = ""


class TaskbrokerChannel:
    """One broker. Make it in a running event loop, and `close` it at the end.

    An answer of more than `max_answer_bytes` is not read: the call fails with RESOURCE_EXHAUSTED.
    """

    def __init__(self, settings: ChannelSettings, *, max_answer_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._secrets = settings.secrets
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", max_answer_bytes),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        if settings.tls_name:
            options.append(("grpc.ssl_target_name_override", settings.tls_name))
        if settings.tls_root is None:
            self._channel = grpc.aio.insecure_channel(settings.address, options=options)
        else:
            credentials = grpc.ssl_channel_credentials(settings.tls_root or None)
            self._channel = grpc.aio.secure_channel(settings.address, credentials, options=options)

    async def call(
        self, path: str, request: Any, answer: Any, *, seconds: float = CALL_SECONDS, wait_seconds: float = 0.0
    ) -> Any:
        """Return the answer of a call, a message of the class `answer`. Raises TaskbrokerError.

        `path` is such as `/package.Service/Call`. The broker may hold the call for `wait_seconds`, which `seconds` do
        not contain.
        """
        body = request.SerializeToString()
        metadata = [(METADATA_KEY, sign(self._secrets[0], path, body))] if self._secrets else []
        if wait_seconds > 0:
            metadata.append((WAIT_KEY, f"{wait_seconds:.3f}"))
        unary: Any = self._channel.unary_unary(path)
        try:
            found = answer()
            found.ParseFromString(await unary(body, metadata=metadata, timeout=seconds + wait_seconds))
        except grpc.aio.AioRpcError as error:
            raise TaskbrokerError(error.code().name, error.details() or "") from None
        except DecodeError:
            raise TaskbrokerError("INTERNAL", f"the answer to {path} is not of the protocol") from None
        return found

    @property
    def connected(self) -> bool:
        """Whether the connection stands, or nothing speaks against it: gRPC closes one that is not used for long."""
        return self._channel.get_state() in {grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE}

    async def close(self) -> None:
        """Close the connection; calls under way end with an error."""
        await self._channel.close()

"""A producer's side of the broker: makes tasks and enqueues them, each once."""

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from activity_worker.taskbroker.protocol.activation import Activation, RetryState, message_of
from activity_worker.taskbroker.protocol.channel import ChannelSettings, TaskbrokerChannel, TaskbrokerError
from activity_worker.taskbroker.protocol.messages import PRODUCER_SERVICE, EnqueueRequest, EnqueueResponse
from activity_worker.taskbroker.protocol.parameters import Parameters, encode_parameters

__all__ = ["NewTask", "TaskProducer", "TaskbrokerError"]

_ENQUEUE: Final = f"/{PRODUCER_SERVICE}/Enqueue"
#: Seconds for which a call that a broker cannot take is tried again.
RETRY_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to enqueue. Durations are whole seconds; `delay` and `expires` count from now.

    The same `id` again adds nothing while the first is in the store; without one it is new each time.
    """

    namespace: str
    taskname: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    application: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    processing_deadline: int = 10
    retry: RetryState | None = None
    expires: int | None = None
    delay: int | None = None

    def activation(self) -> Activation:
        """Return the task as it travels. Raises ParametersError for arguments that msgpack does not know."""
        encoded = encode_parameters(Parameters(self.args, self.kwargs))
        return Activation(
            id=self.id,
            namespace=self.namespace,
            taskname=self.taskname,
            parameters=encoded.data,
            headers={**self.headers, **encoded.headers},
            retry=self.retry,
            processing_deadline_duration=self.processing_deadline,
            expires=self.expires,
            delay=self.delay,
            application=self.application,
        )


class TaskProducer:
    """Enqueues tasks at one broker. Make it in a running event loop; `async with` closes it."""

    def __init__(self, settings: ChannelSettings, *, retry_seconds: float = RETRY_SECONDS) -> None:
        self._channel = TaskbrokerChannel(settings)
        self._retry_seconds = retry_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def enqueue(self, tasks: Sequence[NewTask]) -> int:
        """Enqueue tasks, all or none; return how many are new.

        A broker that does not answer, or has too many tasks, is asked again for `retry_seconds`, with the same ids: a
        lost answer makes no second task. Raises TaskbrokerError.
        """
        request = EnqueueRequest(activations=[message_of(task.activation()) for task in tasks])
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._retry_seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return int((await self._channel.call(_ENQUEUE, request, EnqueueResponse)).added)
            except TaskbrokerError as error:
                if not error.retryable or loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

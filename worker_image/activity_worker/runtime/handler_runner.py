"""How a slot runs its handler: the protocol of its runner. `inline_runner` and the subprocess's runner have it."""

from typing import Protocol, runtime_checkable

from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.task import TaskRequest


class HandlerRunner(Protocol):
    """Runs a slot's handler, one task at a time."""

    async def start(self) -> None:
        """Make ready. Raises when the handler cannot be used; called again after a `stop`."""
        ...

    async def run(self, request: TaskRequest, respond: TaskResponseToolkit) -> None:
        """Run the handler; raises what it raised. Conclusions go through `respond`. Cancelled: make the handler end."""
        ...

    async def stop(self) -> None:
        """Free what `start` took."""
        ...


@runtime_checkable
class ReadyRunner(HandlerRunner, Protocol):
    """A runner whose handler may have to be started again between two tasks."""

    @property
    def ready(self) -> bool:
        """Whether a task could begin at once."""
        ...

    async def wait_ready(self) -> None:
        """Wait until a task could begin at once, or until it is known that none can."""
        ...

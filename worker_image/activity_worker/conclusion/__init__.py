"""Concludes tasks from outside a worker, by their tokens: a library, and the command `activity-worker conclude`.

A handler that raises `ConcludeLater` has handed its task's token away. The process that has the token keeps the task
alive with heartbeats and concludes it:

    async with Conclusions.of_swf(region="us-east-1") as tasks:
        await tasks.succeed(token, {"approved": True})

The token is all that it takes to conclude a task, so keep it as a secret.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from activity_worker.conclusion.conclusions import Conclusions

__all__ = ["Conclusions"]


def __getattr__(name: str) -> Any:
    # Loaded when it is used, so that `activity-worker --help` answers at once.
    if name != "Conclusions":
        raise AttributeError(f"module 'activity_worker.conclusion' has no attribute {name!r}")
    from activity_worker.conclusion.conclusions import Conclusions  # noqa: PLC0415

    return Conclusions

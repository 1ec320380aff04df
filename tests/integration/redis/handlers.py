"""Handlers whose results are objects, as a job requires. Run in child processes only."""

from activity_worker.activity import TaskRequest
from tests.integration.worker import handlers


def sleeps(request: TaskRequest) -> dict[str, bool]:
    handlers.sleeps(request)
    return {"slept": True}


def holds_the_interpreter(request: TaskRequest) -> dict[str, bool]:
    handlers.holds_the_interpreter(request)
    return {"held": True}

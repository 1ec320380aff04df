"""The keys of the log lines of a handler's process: those of its worker, and those of the task that runs."""

from collections.abc import Mapping
from typing import Any

from activity_worker.contract import Env
from activity_worker.task import TaskRequest


class TaskKeys:
    """Called for each line. One task runs at a time, so threads of the handler get its keys, too."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = (("namespace", Env.POD_NAMESPACE), ("pool", Env.POOL))
        self._worker = {key: environment[variable] for key, variable in named if environment.get(variable)}
        self._request: TaskRequest | None = None

    def begin(self, request: TaskRequest) -> None:
        """Give the lines from now on the keys of a task."""
        self._request = request

    def end(self) -> None:
        """Give no line the keys of a task until the next one begins."""
        self._request = None

    def __call__(self) -> Mapping[str, Any]:
        """Return the keys."""
        request = self._request
        if request is None:
            return self._worker
        worker, _, slot = request.worker.worker_name.rpartition(":")
        keys = {**request.log_keys, "lease": request.lease_id, "task": request.activity, **self._worker}
        keys |= {"worker": worker, "slot": slot}
        if request.execution:
            keys["execution"] = request.execution
        return keys

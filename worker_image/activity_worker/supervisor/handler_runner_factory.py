"""Makes the handler runner of each slot, and connects the handlers' processes with the task source."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from activity_worker.config.settings import WorkerSettings
from activity_worker.config.sources import aws_environment
from activity_worker.errors import CapabilitiesError
from activity_worker.sources.protocol import CordonedSource, SharedSource, Source
from activity_worker.subprocess.oom import OomKillCounter
from activity_worker.subprocess.process import HandlerUnusableError, ProcessExit
from activity_worker.subprocess.runner import SubprocessRunner
from activity_worker.supervisor.activity_types import register_activity_types
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.supervisor.options_of_settings import CHILD_GRACE_SHARE


class HandlerRunnerFactory:
    """Makes each slot's handler runner. A `SharedSource` gets the capabilities of each process that starts.

    Its metrics go to those of the worker; `on_unusable` and `on_death` are called as `SubprocessRunner` says.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        source: Source,
        metrics: WorkerMetrics,
        *,
        on_unusable: Callable[[HandlerUnusableError], None],
        on_death: Callable[[ProcessExit], None],
    ) -> None:
        self._handler = settings.handler
        self._shared = source if isinstance(source, SharedSource) else None
        self._on_unusable = on_unusable
        self._on_death = on_death
        self._runners: list[SubprocessRunner] = []
        self._oom_kills = OomKillCounter()
        self._grace_seconds = settings.cancel_grace_seconds * CHILD_GRACE_SHARE
        self._python = settings.handler_python
        self._environment = aws_environment(settings.source, os.environ) | settings.logging.environment()
        self._settings, self._source = settings, source
        #: Name and version of the activities in the handlers' registry.
        self._activities: frozenset[tuple[str, str]] = frozenset()
        self.heartbeat_seconds = settings.task_heartbeat_seconds
        if self._shared is not None:
            self.heartbeat_seconds = min(self.heartbeat_seconds, self._shared.max_heartbeat_seconds)
            self._environment |= self._shared.environment
            self._shared.register(metrics.registry())

    def create(self) -> SubprocessRunner:
        """Return a runner for a slot."""
        runner = SubprocessRunner(
            self._handler,
            cancel_grace_seconds=self._grace_seconds,
            max_tasks=self._settings.max_tasks_per_process,
            on_unusable=self._on_unusable,
            on_death=self._on_death,
            oom_kills=self._oom_kills,
            environment=self._environment,
            python=self._python,
            on_capabilities=self._take_capabilities,
            on_measured=self._measured,
            on_activities=self._take_activities,
        )
        self._runners.append(runner)
        return runner

    def kill(self) -> None:
        """Kill every handler's process and what it has started, for a worker that ends at once."""
        for runner in self._runners:
            runner.kill()

    async def register_activity_types(self) -> None:
        """Register the activities of the handlers' registry with Amazon SWF, if the settings ask for it."""
        await register_activity_types(self._settings, self._source, self._activities)

    def drain(self, on: bool) -> None:
        """Start (True) or stop (False) handing shared work back to other workers."""
        if isinstance(self._source, CordonedSource):
            self._source.cordon(on)

    def _take_capabilities(self, capabilities: Mapping[str, Any] | None) -> None:
        if self._shared is None and capabilities is not None:
            raise HandlerUnusableError(
                f"{self._handler} is a Tasks object, whose instances come from a task store: set --store-url, or make a"
                " handler of one of its tasks with activity_worker.steps.task_handler"
            )
        if self._shared is not None:
            try:
                self._shared.set_capabilities(capabilities)
            except CapabilitiesError as error:
                raise HandlerUnusableError(f"{self._handler}: {error}") from error

    def _take_activities(self, activities: Sequence[tuple[str, str]]) -> None:
        self._activities |= frozenset(activities)

    def _measured(self, note: Mapping[str, Any]) -> None:
        if self._shared is not None:
            self._shared.count_call(note)

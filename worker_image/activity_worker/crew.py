"""The handlers' processes of one worker, and what they and the task source have to say to each other."""

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from activity_worker.children import ChildRunner, Ending, HandlerUnusableError
from activity_worker.errors import OfferError
from activity_worker.memory import MemoryKills
from activity_worker.settings import Settings
from activity_worker.sources.protocol import SharedSource, Source

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: What a child that was told to stop has before it is killed.
CHILD_GRACE_SECONDS = 4.0


class Crew:
    """Makes each slot's runner. A `SharedSource` meets the processes that are started.

    Its metrics go into `registry`; `on_unusable` and `on_death` are called as `ChildRunner` says.
    """

    def __init__(
        self,
        settings: Settings,
        source: Source,
        registry: "CollectorRegistry",
        *,
        on_unusable: Callable[[HandlerUnusableError], None],
        on_death: Callable[[Ending], None],
    ) -> None:
        self._handler = settings.handler
        self._shared = source if isinstance(source, SharedSource) else None
        self._on_unusable = on_unusable
        self._on_death = on_death
        self._kills = MemoryKills()
        # A slot that is replaced takes its runner with it.
        self._runners: weakref.WeakSet[ChildRunner] = weakref.WeakSet()
        self._draining = False
        self.heartbeat_seconds = settings.task_heartbeat_seconds
        if self._shared is not None:
            self.heartbeat_seconds = min(self.heartbeat_seconds, self._shared.longest_heartbeat_seconds)
            self._shared.register(registry)

    def hire(self) -> ChildRunner:
        """Return a runner for a slot."""
        runner = ChildRunner(
            self._handler,
            cancel_grace_seconds=CHILD_GRACE_SECONDS,
            on_unusable=self._on_unusable,
            on_death=self._on_death,
            kills=self._kills,
            environment=self._shared.environment if self._shared is not None else {},
            on_offer=self._met,
            on_measured=self._measured,
        )
        runner.drain(self._draining)
        self._runners.add(runner)
        return runner

    def drain(self, on: bool) -> None:
        """Have what is shared with other workers left to them as soon as can be, or (False) no longer."""
        self._draining = on
        if self._shared is None:
            return
        self._shared.cordon(on)
        for runner in self._runners:
            runner.drain(on)

    def _met(self, offer: Mapping[str, Any] | None) -> None:
        if self._shared is None and offer is not None:
            raise HandlerUnusableError(
                f"{self._handler} is a Tasks object, whose instances come from a task store: set --store-url, or make a"
                " handler of one of its tasks with activity_worker.steps.task_handler"
            )
        if self._shared is not None:
            try:
                self._shared.introduce(offer)
            except OfferError as error:
                raise HandlerUnusableError(f"{self._handler}: {error}") from error

    def _measured(self, note: Mapping[str, Any]) -> None:
        if self._shared is not None:
            self._shared.measured(note)

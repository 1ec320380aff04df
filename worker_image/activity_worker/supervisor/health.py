"""Serves `/livez` and `/readyz` for the kubelet, `/metrics` for Prometheus, and `/tasks` for callers in the pod.

The server runs in the supervisor's own loop, so a stuck loop makes the probe time out. A loop that was stuck a moment
ago, or whose report loop has died, answers 503 with the reason.
"""

import asyncio
import json
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from activity_worker.contract import WorkerState
from activity_worker.wire.plain_request import PlainResponse
from activity_worker.wire.plain_server import Page, PlainLimits, PlainServer, ThrottledCache

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

TICK_SECONDS = 1.0
#: From this lateness on a loop counts as stuck: nothing in the supervisor may take a second.
STUCK_AFTER_SECONDS = 5.0


#: A draining worker is ready: a ReplicaSet removes unready pods first, and only drained workers may be removed.
READY = frozenset({WorkerState.RUNNING, WorkerState.DRAINING})


class LoopWatch:
    """Measures how late the event loop is, with a timer that should fire every second."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ticked_at = self._loop.time()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._ticked_at = self._loop.time()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def late_seconds(self) -> float:
        """Return by how much the next tick is overdue."""
        return max(self._loop.time() - self._ticked_at - TICK_SECONDS, 0.0)

    def stop(self) -> None:
        """End the timer."""
        self._timer.cancel()


class WorkerHealthServer:
    """Serves the paths without authentication; `/tasks` to callers on the loopback address only.

    `registry` is called at each scrape, `state` at each probe. `tasks` returns what that page shows, among it what
    handlers say about their progress; `problem` returns why the worker is dead, or an empty string. `limits` are
    `PlainLimits`' own unless given.
    """

    def __init__(
        self,
        registry: "Callable[[], CollectorRegistry]",
        state: Callable[[], WorkerState],
        problem: Callable[[], str],
        tasks: Callable[[], list[dict[str, Any]]] | None = None,
        limits: PlainLimits | None = None,
    ) -> None:
        self._state = state
        self._problem = problem
        self._exposition = ThrottledCache(lambda: _prometheus().generate_latest(registry()))
        pages: dict[str, Page] = {"/livez": self._livez, "/readyz": self._readyz, "/metrics": self._metrics}
        if tasks is not None:
            pages["/tasks"] = lambda: PlainResponse(json.dumps(tasks()).encode(), content_type="application/json")
        self._server = PlainServer(pages, limits, local=("/tasks",))
        self._watch: LoopWatch | None = None
        self.port = 0

    async def start(self, port: int, host: str | None = None) -> None:
        """Listen on `port` (0: any free one, see `self.port`), on every address unless `host` says otherwise."""
        self._watch = LoopWatch()
        await self._server.start(host, port)
        self.port = self._server.port

    async def stop(self) -> None:
        """Stop listening."""
        if self._watch is not None:
            self._watch.stop()
        await self._server.stop()

    def _livez(self) -> PlainResponse:
        problem = self._problem()
        late = self._watch.late_seconds() if self._watch else 0.0
        if not problem and late > STUCK_AFTER_SECONDS:
            problem = f"the event loop has been stuck for {late:.1f} s"
        return PlainResponse.text(f"{problem}\n", 503) if problem else PlainResponse.text("ok\n")

    def _readyz(self) -> PlainResponse:
        state = self._state()
        return PlainResponse.text(f"{state.value}\n", 200 if state in READY else 503)

    def _metrics(self) -> PlainResponse:
        return PlainResponse(self._exposition(), content_type=_prometheus().CONTENT_TYPE_LATEST)


def _prometheus() -> ModuleType:
    """Return the library, which is imported when the metrics are first asked for."""
    from prometheus_client import exposition  # noqa: PLC0415 - see the metrics' module

    return exposition

"""/livez, /readyz and /metrics. An answer at all proves that the main loop turns; the checks prove the rest."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from aiohttp import web

from activity_worker.wire.plain_server import Page, PlainLimits, PlainServer, ThrottledCache

#: A check returns what is wrong as a sentence, or "".
Check = Callable[[], str]

#: Seconds after which kopf's loop counts as stuck, and one pool's reconciliation, and the sweep.
WATCH_LOOP_SECONDS = 60.0
RECONCILE_SECONDS = 300.0
SWEEP_FACTOR = 3.0

log = logging.getLogger(__name__)


class OperatorHealthServer:
    """The pages for kubelet and Prometheus, and for whoever else reaches the port: none of it says who asks.

    Port 0 takes a free one; `port` then says which. `limits` are `PlainLimits`' own unless given.
    """

    def __init__(
        self,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        metrics: Callable[[], bytes],
        host: str,
        port: int,
        limits: PlainLimits | None = None,
    ) -> None:
        self._metrics = ThrottledCache(metrics)
        self._host = host
        self.port = port
        self._wrong: dict[str, frozenset[str]] = {}
        pages: dict[str, Page] = {
            "/livez": partial(self._answer, "/livez", live),
            "/readyz": partial(self._answer, "/readyz", ready),
            "/metrics": self._scrape,
        }
        self._server = PlainServer(pages, limits)

    async def start(self) -> None:
        """Listen; raises OSError when the port is taken."""
        await self._server.start(self._host, self.port)
        self.port = self._server.port

    async def stop(self) -> None:
        """Listen no more."""
        await self._server.stop()

    def _answer(self, path: str, checks: Mapping[str, Check]) -> web.Response:
        wrong = {name: problem for name, check in checks.items() if (problem := check())}
        text = "".join(f"{name}: {problem}\n" for name, problem in wrong.items())
        self._note(path, wrong, text)
        return web.Response(status=503, text=text) if wrong else web.Response(text="ok\n")

    def _note(self, path: str, wrong: Mapping[str, str], text: str) -> None:
        """Log a change of what is wrong, not every time that somebody asks."""
        before, self._wrong[path] = self._wrong.get(path, frozenset()), frozenset(wrong)
        if wrong and before != self._wrong[path]:
            log.warning("%s fails: %s", path, text.strip())
        elif before and not wrong:
            log.info("%s is well again", path)

    def _scrape(self) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


def watch_loop(silence: Callable[[], float]) -> Check:
    """Fail when kopf's loop no longer turns."""

    def check() -> str:
        seconds = silence()
        return f"the watch's loop has not turned for {seconds:.0f} s" if seconds > WATCH_LOOP_SECONDS else ""

    return check


def progress(oldest: Callable[[], float | None], clock: Callable[[], float]) -> Check:
    """Fail when a pool has been worked on for so long that no time-out can explain it."""

    def check() -> str:
        began = oldest()
        if began is None or clock() - began <= RECONCILE_SECONDS:
            return ""
        return f"a pool has been worked on for {clock() - began:.0f} s"

    return check


def sweeping(attempted: Callable[[], float], every_seconds: float, clock: Callable[[], float]) -> Check:
    """Fail when no sweep was even tried; one that fails because the API server is away is no fault of ours."""

    def check() -> str:
        seconds = clock() - attempted()
        return f"no sweep was tried for {seconds:.0f} s" if seconds > SWEEP_FACTOR * every_seconds else ""

    return check

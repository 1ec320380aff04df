"""/livez, /readyz and /metrics. An answer at all proves that the main loop turns; the checks prove the rest."""

import logging
from collections.abc import Callable, Mapping

from aiohttp import web

#: A check returns what is wrong as a sentence, or "".
Check = Callable[[], str]

#: Seconds after which kopf's loop counts as stuck, and one pool's reconciliation, and the sweep.
WATCH_LOOP_SECONDS = 60.0
RECONCILE_SECONDS = 300.0
SWEEP_FACTOR = 3.0

log = logging.getLogger(__name__)


class HealthServer:
    """A plain HTTP server for kubelet and Prometheus. Port 0 takes a free one; `port` then says which."""

    def __init__(
        self, live: Mapping[str, Check], ready: Mapping[str, Check], metrics: Callable[[], bytes], host: str, port: int
    ) -> None:
        self._checks = {"/livez": live, "/readyz": ready}
        self._metrics = metrics
        self._host = host
        self.port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen; raises OSError when the port is taken."""
        app = web.Application()
        for path in self._checks:
            app.router.add_get(path, self._answer)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        wrong = {name: said for name, check in self._checks[request.path].items() if (said := check())}
        if not wrong:
            return web.Response(text="ok\n")
        text = "".join(f"{name}: {said}\n" for name, said in wrong.items())
        log.warning("%s fails: %s", request.path, text.strip())
        return web.Response(status=503, text=text)

    async def _scrape(self, _: web.Request) -> web.Response:
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

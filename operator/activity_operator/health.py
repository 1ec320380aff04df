"""The pages /livez, /readyz and /metrics. Any answer proves that the main loop runs; the checks prove the rest."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from activity_worker.wire.plain_request import PlainResponse
from activity_worker.wire.plain_server import Page, PlainLimits, PlainServer

#: A check returns its problem as a sentence, or "".
Check = Callable[[], str]

#: Seconds without a beat after which kopf's loop is stuck; seconds after which a reconciliation is stuck; intervals
#: without a resync after which the resync is stuck.
WATCH_LOOP_SECONDS = 60.0
RECONCILE_SECONDS = 300.0
SWEEP_FACTOR = 3.0

log = logging.getLogger(__name__)


class OperatorHealthServer:
    """The pages for the kubelet and Prometheus. Callers are not authenticated, so the pages hold nothing confidential.

    With port 0 the system chooses a free port, and `port` then has its number. `limits` defaults to `PlainLimits()`.
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
        self._metrics = ThreadedPage(metrics)
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
        """Start to listen; raises OSError if the port is in use."""
        await self._server.start(self._host, self.port)
        self.port = self._server.port

    async def stop(self) -> None:
        """Stop listening."""
        await self._server.stop()

    def _answer(self, path: str, checks: Mapping[str, Check]) -> PlainResponse:
        wrong = {name: problem for name, check in checks.items() if (problem := check())}
        text = "".join(f"{name}: {problem}\n" for name, problem in wrong.items())
        self._note(path, wrong, text)
        return PlainResponse.text(text, 503) if wrong else PlainResponse.text("ok\n")

    def _note(self, path: str, wrong: Mapping[str, str], text: str) -> None:
        """Log a change of the failing checks, instead of each request."""
        before, self._wrong[path] = self._wrong.get(path, frozenset()), frozenset(wrong)
        if wrong and before != self._wrong[path]:
            log.warning("%s fails: %s", path, text.strip())
        elif before and not wrong:
            log.info("%s succeeds again", path)

    async def _scrape(self) -> PlainResponse:
        return PlainResponse(await self._metrics(), content_type="text/plain; version=0.0.4; charset=utf-8")


class ThreadedPage:
    """A page that takes long to make: made in a thread, for at most a tenth of the time.

    The main loop goes on meanwhile. Requests that arrive meanwhile share the page; those that arrive soon after get the
    last one. The time is processor time, because by the `clock` a busy machine would make the page less often.
    """

    def __init__(self, make: Callable[[], bytes], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._making: asyncio.Task[bytes] | None = None
        self._made = b""
        self._again = float("-inf")

    async def __call__(self) -> bytes:
        """Return the page; raises the error of `make`."""
        if self._making is None and self._clock() < self._again:
            return self._made
        if self._making is None:
            self._making = asyncio.create_task(self._renew())
        # A client that leaves must not end the page of the others.
        return await asyncio.shield(self._making)

    async def _renew(self) -> bytes:
        try:
            self._made, spent = await asyncio.to_thread(self._measured)
            self._again = self._clock() + 9 * spent
            return self._made
        finally:
            self._making = None

    def _measured(self) -> tuple[bytes, float]:
        began = time.thread_time()
        return self._make(), time.thread_time() - began


def watch_loop(silence: Callable[[], float]) -> Check:
    """Return a check that fails if kopf's loop has stopped; `silence()` is seconds since its last beat."""

    def check() -> str:
        seconds = silence()
        return f"the loop of the watches has not run for {seconds:.0f} s" if seconds > WATCH_LOOP_SECONDS else ""

    return check


def progress(oldest: Callable[[], float | None], clock: Callable[[], float]) -> Check:
    """Return a check that fails if a reconciliation takes longer than its time-outs allow."""

    def check() -> str:
        began = oldest()
        if began is None or clock() - began <= RECONCILE_SECONDS:
            return ""
        return f"a reconciliation has taken {clock() - began:.0f} s"

    return check


def resync_is_recent(attempted: Callable[[], float], every_seconds: float, clock: Callable[[], float]) -> Check:
    """Return a check that fails if no resync was tried; a try that the API server does not answer counts, too."""

    def check() -> str:
        seconds = clock() - attempted()
        return f"no sweep was tried for {seconds:.0f} s" if seconds > SWEEP_FACTOR * every_seconds else ""

    return check

"""The I/O around `report_state`: sends reports over HTTPS and passes on the instructions of the replies.

The worker goes on working while the operator is unreachable or answers with errors. Certificates are verified against
the mounted CA file, which is read again when it changes. The token file is read for every report, because the kubelet
rotates it.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from activity_worker.config.settings import ReportSettings
from activity_worker.contract import REPORT_PATH, ContractError, Reply, Report
from activity_worker.supervisor.metrics import WorkerMetrics
from activity_worker.supervisor.report_state import Instructions, ReportState, WorkerSnapshot
from activity_worker.wire.errors import WireError
from activity_worker.wire.http_response import HttpResponse
from activity_worker.wire.transport import Transport

#: For one report with its connection: longer than the operator takes to write a lease's owner, shorter than a task can
#: be without a heartbeat.
REPORT_TIMEOUT_SECONDS = 5.0
#: How long the last word may take: time for a second try, and within the margin of the pod's grace (90 s, of which an
#: open poll takes at most 76).
LAST_REPORT_SECONDS = 10.0
#: How long a starting worker waits for the operator's first answer before it polls anyway.
SILENCE_SECONDS = 2.0

#: How long a change waits for further changes, so that one report carries them all.
COALESCE_SECONDS = 0.02

_MISDIRECTED = 421
#: The connection is kept between two reports; the operator closes it later than that.
_KEEP_SECONDS = 120.0

log = logging.getLogger(__name__)


class Reporter:
    """Sends reports. `snapshot` returns the worker's state; `on_instructions` gets the instructions of each reply."""

    def __init__(
        self,
        settings: ReportSettings,
        state: ReportState,
        snapshot: Callable[[], WorkerSnapshot],
        on_instructions: Callable[[Instructions], None],
        metrics: WorkerMetrics,
    ) -> None:
        self._url = settings.url if settings.url.endswith(REPORT_PATH) else settings.url + REPORT_PATH
        self._token_file = settings.token_file
        self._trust = _Trust(settings.ca_file)
        self._state = state
        self._snapshot = snapshot
        self._on_instructions = on_instructions
        self._metrics = metrics
        self._transport: Transport | None = None
        self._wake = asyncio.Event()
        self._delivered = asyncio.Event()
        self._silent = False

    def changed(self) -> None:
        """Signal that a report would have other contents now; `ReportState` decides whether one is sent."""
        self._wake.set()

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                self._wake.clear()
                now = _now()
                snapshot = self._snapshot()
                delay = self._state.due_at(snapshot) - now
                if delay <= 0:
                    await self._send(self._state.compose(snapshot, now))
                else:
                    await _wait(self._wake, delay)
                    # A busy worker has thousands of changes a second; one look covers many of them.
                    await asyncio.sleep(COALESCE_SECONDS)
        finally:
            await self._disconnect()

    async def first_answer(self) -> None:
        """Wait for the first answer of a leader, at most `SILENCE_SECONDS`."""
        await _wait(self._delivered, SILENCE_SECONDS)
        if not self._delivered.is_set():
            log.warning("the operator has been silent for %g s: polling anyway", SILENCE_SECONDS)

    async def send_last_report(self, timeout_seconds: float = LAST_REPORT_SECONDS) -> None:
        """Wait until the worker's present state and exit output are delivered, at most `timeout_seconds`."""
        deadline = _now() + timeout_seconds
        self.changed()
        while not self._state.is_known(self._snapshot()) and _now() < deadline:
            self._delivered.clear()
            await _wait(self._delivered, deadline - _now())

    async def _send(self, report: Report) -> None:
        try:
            async with asyncio.timeout(REPORT_TIMEOUT_SECONDS):
                reply = await self._exchange(report)
        except (WireError, OSError, ContractError, ValueError, TimeoutError) as error:
            self._state.failed(_now())
            self._metrics.reported("failed")
            self._log_failure(f"{type(error).__name__}: {error}")
            await self._disconnect()
            return
        if reply is None:
            self._state.misdirected(_now())
            self._metrics.reported("misdirected")
            await self._disconnect()
            return
        self._metrics.reported("answered")
        if self._silent:
            log.info("the operator answers again")
            self._silent = False
        self._on_instructions(self._state.answered(reply))
        self._delivered.set()

    async def _exchange(self, report: Report) -> Reply | None:
        """Return the leader's reply, or None if a standby answered."""
        transport = await self._connected()
        body = json.dumps(report.to_wire()).encode()
        response = await transport.post(self._headers(), body, timeout_seconds=REPORT_TIMEOUT_SECONDS)
        if response.status == _MISDIRECTED:
            return None
        if response.status != 200:
            raise ValueError(f"the operator answered {response.status}: {_start_of(response)!r}")
        return Reply.from_wire(json.loads(response.body))

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._token_file:
            headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
        return headers

    async def _connected(self) -> Transport:
        context, changed = self._trust.current()
        if self._transport is not None and changed:
            # Connections made under the old bundle end with this transport.
            await self._disconnect()
        if self._transport is None:
            # The operator is in the cluster: a proxy is for the world outside.
            self._transport = Transport(self._url, tls=context, idle_seconds=_KEEP_SECONDS, direct=True)
        return self._transport

    async def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    def _log_failure(self, problem: str) -> None:
        # One warning for each silence, not for each try: a fleet without an operator must not flood the logs.
        log.log(logging.DEBUG if self._silent else logging.WARNING, "no answer to a report: %s", problem)
        self._silent = True


class _Trust:
    """The certificates to trust: the CA file alone, or the system's when there is none."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._stamp: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> tuple[ssl.SSLContext, bool]:
        """Return the context, and whether the file has changed since the last call."""
        if self._ca_file is None:
            self._context = self._context or ssl.create_default_context()
            return self._context, False
        stat = self._ca_file.stat()
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._context is not None and stamp == self._stamp:
            return self._context, False
        self._context = ssl.create_default_context(cafile=str(self._ca_file))
        self._stamp = stamp
        return self._context, True


def _start_of(response: HttpResponse) -> str:
    return response.body[:200].decode(errors="replace").strip()


async def _wait(event: asyncio.Event, timeout_seconds: float) -> None:
    try:
        async with asyncio.timeout(None if timeout_seconds == float("inf") else timeout_seconds):
            await event.wait()
    except TimeoutError:
        return


def _now() -> float:
    return asyncio.get_running_loop().time()

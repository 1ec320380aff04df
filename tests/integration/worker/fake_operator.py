"""An operator for tests: it gives the test's answers to reports, and records the reports."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from activity_worker.contract import REPORT_PATH, Reply, Report

Answer = Callable[[Report], Reply | web.Response]


class FakeOperator:
    """`answers` are used once each, in order; then `answer` is used for every report."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.tokens: list[str] = []
        self.connections: set[object] = set()
        self.answers: deque[Answer] = deque()
        self.answer: Answer = lambda report: Reply(term=1, next_report_seconds=0.1, ack=_last_event(report))
        self.in_flight = 0
        self.most_in_flight = 0
        self.port = 0
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self, tls: ssl.SSLContext | None = None, port: int = 0) -> Self:
        """Listen on 127.0.0.1."""
        app = web.Application()
        app.add_routes([web.post(REPORT_PATH, self._report)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls).start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def report_with(self, wanted: Callable[[Report], bool]) -> Report:
        """Wait for a report that fits; earlier reports count, too."""
        async with self._news:
            await self._news.wait_for(lambda: any(wanted(report) for report in self.reports))
        return next(report for report in self.reports if wanted(report))

    async def further(self, count: int = 1) -> Report:
        """Wait until `count` more reports have come; return the last one."""
        goal = len(self.reports) + count
        async with self._news:
            await self._news.wait_for(lambda: len(self.reports) >= goal)
        return self.reports[-1]

    async def _report(self, request: web.Request) -> web.Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            report = Report.from_wire(await request.json())
            self.connections.add(request.transport)
            self.tokens.append(request.headers.get("Authorization", ""))
            answer = (self.answers.popleft() if self.answers else self.answer)(report)
            async with self._news:
                self.reports.append(report)
                self._news.notify_all()
            return answer if isinstance(answer, web.Response) else web.json_response(answer.to_wire())
        finally:
            self.in_flight -= 1


def _last_event(report: Report) -> int:
    return report.events[-1].sequence if report.events else 0


def make_authority(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """Return a CA file, and a server context for 127.0.0.1 with a certificate of that CA."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca, both = folder / "ca.crt", folder / "server.pem"
    ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    both.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + ca.read_bytes()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return ca, context

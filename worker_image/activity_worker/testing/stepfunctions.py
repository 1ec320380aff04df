"""The Step Functions fake as a process: `python -m activity_worker.testing.stepfunctions --port 4566`."""

import argparse
import asyncio
import contextlib
import signal
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

from activity_worker.testing.fake_clock import VirtualClock
from activity_worker.testing.fake_faults import Fault
from activity_worker.testing.fake_operations import FakeSettings
from activity_worker.testing.fake_server import StepFunctionsFake
from activity_worker.testing.fake_tasks import FakeTask

__all__ = ["FakeSettings", "FakeTask", "Fault", "StepFunctionsFake", "VirtualClock", "main"]


async def _serve(fake: StepFunctionsFake) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with fake:
        print(f"Step Functions fake listening on {fake.url}", flush=True)  # noqa: T201 - what the process is for
        await stop.wait()


def main(arguments: list[str] | None = None) -> None:
    """Run the fake as a process until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m activity_worker.testing.stepfunctions", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=4566, help="port, 0 for a free one (default: %(default)s)")
    parser.add_argument("--region", default="us-east-1", help="region of the ARNs it makes (default: %(default)s)")
    parser.add_argument("--account", default="123456789012", help="account of the ARNs it makes (default: %(default)s)")
    parser.add_argument("--poll-hold-seconds", type=float, default=60.0, help="how long a poll waits (default: 60)")
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM certificate: serve HTTPS (default: HTTP)")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM key of that certificate (default: in the same file)")
    args = parser.parse_args(arguments)
    if args.tls_key and not args.tls_certificate:
        parser.error("--tls-key: give --tls-certificate too, or leave both away for HTTP")
    settings = FakeSettings(poll_hold_seconds=args.poll_hold_seconds, region=args.region, account=args.account)
    run: Callable[[Awaitable[None]], Any] = cast("Any", asyncio.run)
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - faster where it exists

        run = cast("Any", uvloop.run)
    tls = _tls(args.tls_certificate, args.tls_key) if args.tls_certificate else None
    run(_serve(StepFunctionsFake(settings=settings, host=args.host, port=args.port, tls=tls)))


def _tls(certificate: str, key: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


if __name__ == "__main__":
    main()

"""A fake as a process: the flags that every fake has, and its life until a signal."""

import argparse
import asyncio
import contextlib
import signal
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

from activity_worker.testing.fake_http import HttpFake


def fake_parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that every fake has: host, port, poll hold, and TLS."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=4566, help="port, 0 for a free one (default: %(default)s)")
    parser.add_argument("--poll-hold-seconds", type=float, default=60.0, help="how long a poll waits (default: 60)")
    parser.add_argument("--tls-certificate", metavar="FILE", help="PEM certificate: serve HTTPS (default: HTTP)")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM key of that certificate (default: in the same file)")
    return parser


def tls_of(parser: argparse.ArgumentParser, args: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context of the flags, None for HTTP. Ends the process for a key without a certificate."""
    if args.tls_key and not args.tls_certificate:
        parser.error("--tls-key: give --tls-certificate too, or leave both away for HTTP")
    if not args.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(args.tls_certificate, args.tls_key)
    return context


def run_fake(fake: HttpFake, title: str) -> None:
    """Print the address and serve until SIGINT or SIGTERM."""
    run: Callable[[Awaitable[None]], Any] = cast("Any", asyncio.run)
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - faster where it exists

        run = cast("Any", uvloop.run)
    run(_serve(fake, title))


async def _serve(fake: HttpFake, title: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with fake:
        print(f"{title} fake listening on {fake.url}", flush=True)  # noqa: T201 - what the process is for
        await stop.wait()

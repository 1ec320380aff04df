"""Connections to a task store's PostgreSQL database, made in one way by workers and operator."""

import getpass
import os
import ssl
from typing import Any

import asyncpg  # type: ignore[import-untyped]

from activity_worker.wire.store_limits import AnswerLimit, LimitedLoop
from activity_worker.wire.store_url import CHECKED, SslMode, StoreUrl, StoreUrlError


async def connect_to_store(
    url: StoreUrl, *, command_seconds: float | None = None, name: str = "", limit: AnswerLimit | None = None
) -> Any:
    """Return a connection of asyncpg. `command_seconds` is how long a statement may take (default: for ever).

    `name` is the application_name, unless the URL has one. `limit` bounds the bytes of the server (default: unbounded).
    Raises StoreUrlError when the URL cannot be used here, asyncpg's errors, and OSError.
    """
    settings = {**({"application_name": name} if name else {}), **dict(url.settings)}
    return await asyncpg.connect(
        host=[host for host, _ in url.hosts],
        port=[port for _, port in url.hosts],
        user=url.user or _own_name(),
        password=url.password,
        database=url.database,
        ssl=_tls(url),
        timeout=url.connect_seconds,
        command_timeout=command_seconds,
        server_settings=settings or None,
        loop=None if limit is None else LimitedLoop(limit),
        target_session_attrs=url.target,
    )


def _own_name() -> str:
    """Return the user that the process runs as: the user when the URL names none, as everywhere with PostgreSQL."""
    try:
        return os.environ.get("PGUSER") or getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container's user has a number and no name.
        raise StoreUrlError("the task store's URL names no user: write postgresql://USER@HOST/DATABASE") from None


def _tls(url: StoreUrl) -> ssl.SSLContext | str:
    tls = url.tls
    if tls.mode not in CHECKED:
        return tls.mode.value
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.mode is SslMode.VERIFY_FULL
    try:
        if tls.root_text is not None:
            context.load_verify_locations(cadata=tls.root_text)
        elif tls.root_file is not None and tls.root_file != "system":
            context.load_verify_locations(cafile=tls.root_file)
        elif tls.root_file == "system" or tls.mode is not SslMode.REQUIRE:
            context.load_default_certs()
        else:
            # As in libpq: without a CA, this mode is against listeners only.
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ValueError) as error:
        names = ", ".join(tls.files) or "ssl_ca_data"
        text = f"the task store's URL: what {names} says cannot be read here ({type(error).__name__})"
        raise StoreUrlError(text) from error
    return context

"""A PostgreSQL server of a test's own."""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import column, func, select, table, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tests import packages
from tests.cluster import certificates
from tests.eventually import eventually
from tests.servers import server_user
from tests.servers.ports import free_port
from tests.servers.start import end, start


@dataclass
class PostgresServer:
    """A server on 127.0.0.1 and on `also`. It may be stopped and restarted with the same port and folder."""

    folder: Path
    port: int
    settings: dict[str, str]
    ca: certificates.Authority | None = None
    also: str = ""
    _running: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of its administrator, without a password."""
        return self.url_of("test")

    def url_of(
        self, user: str, *, password: str = "", database: str = "postgres", options: str = "", host: str = "127.0.0.1"
    ) -> str:
        """Return the URL of a user."""
        who = f"{user}:{password}" if password else user
        return f"postgresql://{who}@{host}:{self.port}/{database}{'?' if options else ''}{options}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        server = _program("postgres")
        addresses = ",".join(filter(None, ("127.0.0.1", self.also)))
        command: list[str | Path] = [server, "-D", self.folder / "data", "-k", self.folder, "-h", addresses]
        command += ["-p", str(self.port)]
        for name, value in self.settings.items():
            command += ["-c", f"{name}={value}"]
        asked = [str(_program("pg_isready")), "-h", "127.0.0.1", "-p", str(self.port), "-U", "test", "-t", "1"]

        def answers() -> bool:
            return subprocess.run(asked, capture_output=True, check=False).returncode == 0

        self._running = start("PostgreSQL", command, self.folder, answers)

    def stop(self) -> None:
        """End it without waiting for its clients."""
        if self._running is not None:
            end(self._running, signal.SIGINT)
            self._running = None

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to each of its processes. Stopped processes keep their connections and answer nothing."""
        assert self._running is not None
        children = Path(f"/proc/{self._running.pid}/task/{self._running.pid}/children").read_text().split()
        for pid in (self._running.pid, *map(int, children)):
            os.kill(pid, number)


@contextmanager
def postgres_server(
    *, durable: bool = True, tls: bool = False, logins: str = "", also: str = ""
) -> Iterator[PostgresServer]:
    """Yield a running server; it is ended and removed afterwards.

    Without `durable` it does not wait for the disk: for tests that are not about crashes of the server. `tls`: it
    accepts TLS, with a CA of its own, as 127.0.0.1. `logins` are lines of its pg_hba.conf for all users but `test`, who
    is always let in from this machine. `also` is a further address on which it listens.
    """
    top = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    server_user.own(top)
    settings = {"max_connections": "200"}
    if not durable:
        settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    authority = None
    try:
        initdb: list[str | Path] = [
            "-D",
            top / "data",
            "-U",
            "test",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        _run([_program("initdb"), *initdb], top)
        if logins:
            (top / "data" / "pg_hba.conf").write_text(f"host all test 127.0.0.1/32 trust\n{logins}\n")
        if tls:
            authority = certificates.authority(top, "ca")
            own = certificates.issue(authority, top, "db", user="db", addresses=["127.0.0.1"])
            for file in (own.certificate, own.key):
                server_user.own(file)
            settings |= {"ssl": "on", "ssl_cert_file": str(own.certificate), "ssl_key_file": str(own.key)}
        server = PostgresServer(top, free_port(), settings, authority, also)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def standby_of(server: PostgresServer) -> Iterator[PostgresServer]:
    """Yield a running read-only server that follows another one."""
    top = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    server_user.own(top)
    follower = PostgresServer(top, free_port(), server.settings)
    try:
        source = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "test"]
        _run([_program("pg_basebackup"), "-D", top / "data", "-R", "-X", "stream", "-c", "fast", *source], top)
        follower.start()
        yield follower
    finally:
        follower.stop()
        shutil.rmtree(top, ignore_errors=True)


@contextmanager
def postgres(*, durable: bool = True) -> Iterator[str]:
    """Yield the URL of a fresh server on 127.0.0.1, as `postgres_server` makes it."""
    with postgres_server(durable=durable) as server:
        yield server.url


async def new_database(server: str) -> str:
    """Make an empty database on a server of `postgres`; return its URL."""
    name = f"t{uuid.uuid4().hex[:8]}"
    await execute(server, f"CREATE DATABASE {name}")
    return server.removesuffix("postgres") + name


async def execute(url: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg", 1), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    await engine.dispose()


def _program(name: str) -> Path:
    return packages.find("initdb").with_name(name)


def _run(command: list[str | Path], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **server_user.unprivileged())
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-800:]}{done.stderr[-800:]}"


async def wait_for_listeners(engine: AsyncEngine, count: int) -> None:
    """Wait until `count` connections to the engine's database listen for notifications."""
    listening = (
        select(func.count())
        .select_from(table("pg_stat_activity"))
        .where(column("datname") == func.current_database(), column("query").startswith("LISTEN"))
    )

    async def enough() -> bool:
        async with engine.connect() as connection:
            return int((await connection.execute(listening)).scalar_one()) >= count

    await eventually(f"{count} connections listen for notifications", enough)

"""A PostgreSQL server of a test's own."""

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.servers import debian
from tests.servers.ports import free_port


@contextmanager
def postgres(*, durable: bool = True) -> Iterator[str]:
    """Yield the URL of a fresh server on 127.0.0.1; it is stopped and removed afterwards.

    Without `durable` it does not wait for the disk: for tests that are not about crashes of the server.
    """
    folders = ("/usr/lib/postgresql/*/bin",)
    initdb = debian.find("initdb", "postgresql", *folders)
    server = initdb.with_name("postgres")
    top = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    debian.own(top)
    try:
        _run([initdb, "-D", top / "data", "-U", "test", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"], top)
        port = free_port()
        command: list[str | Path] = [server, "-D", top / "data", "-k", top, "-h", "127.0.0.1", "-p", str(port)]
        command += ["-c", "max_connections=200"]
        if not durable:
            command += ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"]
        with (top / "log").open("w") as log:
            running: subprocess.Popen[bytes] = subprocess.Popen(
                command, cwd=top, stdout=log, stderr=subprocess.STDOUT, **debian.unprivileged()
            )
        try:
            _wait(initdb.with_name("pg_isready"), port, running, top / "log")
            yield f"postgresql://test@127.0.0.1:{port}/postgres"
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
    finally:
        shutil.rmtree(top, ignore_errors=True)


async def new_database(server: str) -> str:
    """Make an empty database on a server that `postgres` yielded; returns its URL."""
    name = f"t{uuid.uuid4().hex[:8]}"
    engine = create_async_engine(server.replace("postgresql", "postgresql+asyncpg"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        await connection.execute(text(f"CREATE DATABASE {name}"))
    await engine.dispose()
    return server.removesuffix("postgres") + name


def _run(command: list[str | Path], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **debian.unprivileged())
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-800:]}{done.stderr[-800:]}"


def _wait(isready: Path, port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    asked = [str(isready), "-h", "127.0.0.1", "-p", str(port), "-U", "test", "-t", "1"]
    for _ in range(60):
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            return
        assert running.poll() is None, log.read_text()[-800:]
    raise AssertionError(f"PostgreSQL did not answer: {log.read_text()[-800:]}")

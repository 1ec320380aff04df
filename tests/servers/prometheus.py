"""A Prometheus server of a test's own; it scrapes itself and the test's targets."""

import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests import packages
from tests.servers import server_user
from tests.servers.ports import free_port
from tests.servers.start import end, start


@dataclass
class PrometheusServer:
    """A server on 127.0.0.1. It may be stopped and restarted with the same port and folder."""

    folder: Path
    port: int
    scheme: str = "http"
    _running: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command: list[str | Path] = [packages.find("prometheus")]
        command += [f"--config.file={self.folder / 'prometheus.yml'}", f"--storage.tsdb.path={self.folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}", "--query.lookback-delta=1m"]
        if (self.folder / "web.yml").exists():
            command.append(f"--web.config.file={self.folder / 'web.yml'}")
        self._running = start("Prometheus", command, self.folder, self._ready)

    def stop(self) -> None:
        """End it."""
        if self._running is not None:
            end(self._running)
            self._running = None

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as reply:
                return int(reply.status) == 200
        except urllib.error.HTTPError as refused:
            # A server that asks for credentials is up.
            return refused.code == 401
        except OSError:
            return False


@contextmanager
def prometheus_server(
    *, targets: Sequence[str] = (), users: dict[str, str] | None = None
) -> Iterator[PrometheusServer]:
    """Yield a running server that scrapes itself and these HOST:PORTs every second; it is ended and removed afterwards.

    `users` are names with the bcrypt hashes of their passwords; without users, no password is needed.
    """
    folder = Path(tempfile.mkdtemp(prefix="prometheus-", dir="/tmp"))
    server = PrometheusServer(folder, free_port())
    jobs = [{"job_name": "self", "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}]
    if targets:
        jobs.append({"job_name": "shop", "static_configs": [{"targets": list(targets)}]})
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    if users is not None:
        (folder / "web.yml").write_text(yaml.safe_dump({"basic_auth_users": users}))
    (folder / "data").mkdir()
    for path in (folder, *folder.iterdir()):
        server_user.own(path)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)

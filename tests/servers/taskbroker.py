"""`activity-worker broker` as a process, which a test can kill and start again."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.request import urlopen

from tests.eventually import eventually
from tests.servers.ports import free_port


class BrokerProcess:
    """A broker on a store. `folder` gets its log; `options` are further ones of the command."""

    def __init__(self, url: str, folder: Path, options: Sequence[str] = ()) -> None:
        self.url, self.folder, self.options = url, folder, tuple(options)
        self.port, self.health_port = free_port(), free_port()
        self.running: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The log of all its processes."""
        return self.folder / f"broker-{self.port}.log"

    async def start(self) -> None:
        """Start the broker, and wait until it is ready."""
        ports = ("--address", f"127.0.0.1:{self.port}", "--health-port", str(self.health_port))
        arguments = (sys.executable, "-m", "activity_worker", "broker", "--store", self.url, *ports, *self.options)
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(arguments, stderr=log, env=environment())  # noqa: ASYNC220 - a short test
        await eventually("the broker is ready", self.ready, details=self.log.read_text)

    def ready(self) -> bool:
        """Return whether the broker takes calls; a broker that has ended fails the test."""
        assert self.running is not None
        assert self.running.poll() is None, self.log.read_text()
        try:
            return self.page("readyz") == "running\n"
        except OSError:
            return False

    def page(self, name: str) -> str:
        """Return a page of its health port."""
        with urlopen(f"http://127.0.0.1:{self.health_port}/{name}", timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        assert self.running is not None
        self.running.send_signal(number)
        code = self.running.wait(timeout=30)
        self.running = None
        return code

    def stop(self) -> None:
        """End the broker if it runs."""
        if self.running is not None:
            self.end(signal.SIGKILL)


def environment() -> dict[str, str]:
    """Return the environment without settings of a broker."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ACTIVITY_BROKER_")}

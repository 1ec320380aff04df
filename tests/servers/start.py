"""Starting and ending a server process that writes its log into a folder of its own."""

import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.eventually import SECONDS, eventually_sync
from tests.servers import server_user

#: Seconds that a server may take to end before it is killed.
END_SECONDS = 20.0


def start(
    name: str, argv: Sequence[str | Path], folder: Path, answers: Callable[[], bool]
) -> "subprocess.Popen[bytes]":
    """Start a server as an unprivileged user, append its output to `folder`/log, and wait until it answers."""
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=subprocess.STDOUT, **server_user.unprivileged())
    try:
        wait_until_up(name, process, answers, lambda: last_lines(folder))
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def wait_until_up(
    name: str,
    process: "subprocess.Popen[bytes]",
    answers: Callable[[], bool],
    log: Callable[[], str],
    *,
    seconds: float = SECONDS,
) -> None:
    """Wait until a server answers; a failure shows its log.

    Raises:
        AssertionError: the process has ended.
        NotInTimeError: the process runs, and does not answer in time.
    """

    def up() -> bool:
        assert process.poll() is None, f"{name} has ended: {log()}"
        return answers()

    eventually_sync(f"{name} answers", up, seconds=seconds, details=log)


def end(process: "subprocess.Popen[bytes]", number: signal.Signals = signal.SIGTERM) -> None:
    """Send a signal that ends a server, and wait; a server that does not end in time is killed."""
    process.send_signal(number)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_lines(folder: Path) -> str:
    """Return the end of a server's log."""
    return (folder / "log").read_text(errors="replace")[-1500:]

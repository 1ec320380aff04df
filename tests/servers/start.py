"""Waiting for a server process that a test starts."""

from collections.abc import Callable
from subprocess import Popen

from tests.eventually import eventually_sync


def wait_until_up(name: str, process: "Popen[bytes]", answers: Callable[[], bool], log: Callable[[], str]) -> None:
    """Wait until a server answers; a failure shows its log.

    Raises:
        AssertionError: the process has ended.
        NotInTimeError: the process runs, and does not answer in time.
    """

    def up() -> bool:
        assert process.poll() is None, f"{name} has ended: {log()}"
        return answers()

    eventually_sync(f"{name} answers", up, details=log)

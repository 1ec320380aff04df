"""Runs commands: without output when they succeed, with their last lines when they fail."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.eventually import NotInTimeError, eventually_sync

TAIL_LINES = 30


class ClusterError(RuntimeError):
    """The local cluster cannot be used as asked; the message says what is missing or which log to read."""


class MissingError(ClusterError):
    """Something is missing that `command` makes; the message names both."""

    def __init__(self, what: str, command: str = "make prepare") -> None:
        super().__init__(f"{what}: run `{command}`")


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    timeout_seconds: float | None = None,
) -> str:
    """Run a command and return its standard output.

    `env` is added to this process's environment. Raises ClusterError with the last lines of both
    outputs when the command fails or outlives `timeout_seconds` (default: no limit).
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            check=False,
        )
    except FileNotFoundError as missing:
        raise ClusterError(f"{words[0]} is not installed") from missing
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"`{' '.join(words[:6])}` did not end within {timeout_seconds:.0f} s") from late
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-TAIL_LINES:])
        raise ClusterError(f"`{' '.join(words[:8])}` ended with status {done.returncode}:\n{tail}")
    return done.stdout


def succeeds(argv: Sequence[str | Path], *, stdin: str | None = None, timeout_seconds: float = 20.0) -> bool:
    """Whether the command exists and ends with status 0 in time."""
    try:
        run(argv, stdin=stdin, timeout_seconds=timeout_seconds)
    except ClusterError:
        return False
    return True


def wait_until(
    holds: Callable[[], bool],
    what: str,
    *,
    timeout_seconds: float,
    every_seconds: float = 0.1,
    details: Callable[[], object] | None = None,
) -> None:
    """Call `eventually_sync`; raises ClusterError, which the command line shows without a traceback."""
    try:
        eventually_sync(what, holds, seconds=timeout_seconds, every_seconds=every_seconds, details=details)
    except NotInTimeError as error:
        raise ClusterError(str(error)) from None

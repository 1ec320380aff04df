"""A running job: its process group, its output file, and its processor time."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.suites import outcome
from tests.suites.jobs import Job, Result


class Child:
    """A job that runs. It leads a process group, and gets SIGINT when the runner dies."""

    def __init__(self, job: Job, folder: Path, environment: Mapping[str, str]) -> None:
        self.job = job
        self.output = folder / f"{job.name.replace(' ', '-')}.log"
        self._report = folder / f"{job.name}.xml"
        self._began = time.monotonic()
        # pytest's cache names the failed tests to a second run of the same suite.
        cache = folder / f"{job.name}.cache"
        report = (f"--junitxml={self._report}", "-o", f"cache_dir={cache}") if job.is_suite else ()
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *job.arguments, *report],
                env={**environment, **job.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_interrupt_with_parent,  # noqa: PLW1509 - the runner has one thread
            )

    @property
    def seconds(self) -> float:
        """Seconds since it started."""
        return time.monotonic() - self._began

    def result(self) -> Result | None:
        """Return the result of the job, or None while it runs. Do not call it again after a result."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        self._process.returncode = code
        found = outcome.read(self._report)
        self._report.unlink(missing_ok=True)
        return Result(self.job, code if code >= 0 else 128 - code, self.seconds, usage.ru_utime + usage.ru_stime, found)

    def signal(self, number: signal.Signals) -> None:
        """Signal every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _interrupt_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGINT)

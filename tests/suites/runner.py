"""Runs jobs side by side, prints their progress, and returns the result of each."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tests.suites.child import Child
from tests.suites.jobs import CLUSTER_DOWN, Job, Result, may_start

POLL_SECONDS = 0.2
HEARTBEAT_SECONDS = 30.0
#: Seconds that an interrupted suite has for the teardown of its fixtures before it is killed.
TEARDOWN_SECONDS = 60.0
#: The exit code of a job that did not run, and that of an interrupted run.
NOT_RUN, INTERRUPTED = 1, 130


class Runner:
    """Runs each job once.

    `folder` is for the output files. `environment` is added to every job's own. `lanes` is how many jobs run beside the
    cluster's lane. `say` prints a line.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str], lanes: int, say: Callable[[str], None] = print
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._lanes = lanes
        self._print = say
        self._began = time.monotonic()
        self._running: list[Child] = []
        self._results: list[Result] = []
        self.interrupted = False

    def run(self, jobs: Sequence[Job]) -> list[Result]:
        """Run the jobs; returns their results in the order in which they ended.

        SIGINT and SIGTERM end the run early: running suites tear down what they started, the cluster is stopped if
        this run had booted it, and `interrupted` is True.
        """
        former = signal.signal(signal.SIGTERM, _interrupt)
        try:
            self._run(list(jobs))
        except KeyboardInterrupt:
            self.interrupted = True
            self._end_all()
        finally:
            signal.signal(signal.SIGTERM, former)
        return self._results

    def _run(self, waiting: list[Job]) -> None:
        heartbeat = self._began + HEARTBEAT_SECONDS
        while waiting or self._running:
            for job in may_start(waiting, [child.job for child in self._running], self._lanes):
                waiting.remove(job)
                self._start(job)
            time.sleep(POLL_SECONDS)
            for result in self._collect():
                if result.job.required and result.code != 0:
                    self._give_up(waiting, result.job)
            if time.monotonic() >= heartbeat:
                heartbeat += HEARTBEAT_SECONDS
                self._heartbeat(waiting)

    def _start(self, job: Job) -> None:
        child = Child(job, self._folder, self._environment)
        self._running.append(child)
        self._say(f"{job.name} starts: {child.output}")

    def _collect(self) -> list[Result]:
        """Move ended jobs to the results; return the new results."""
        ended = [(child, result) for child in self._running if (result := child.result()) is not None]
        for child, result in ended:
            self._running.remove(child)
            self._results.append(result)
            result_text = "ok" if result.code == 0 else f"FAILED ({result.code}), see {child.output}"
            self._say(f"{result.job.name} ends after {result.seconds:.0f} s: {result_text}")
        return [result for _, result in ended]

    def _give_up(self, waiting: list[Job], failed: Job) -> None:
        for job in [job for job in waiting if job.cluster]:
            waiting.remove(job)
            if job.is_suite:
                self._results.append(Result(job, NOT_RUN, 0.0, 0.0))
                self._say(f"{job.name} does not run: '{failed.name}' failed")

    def _heartbeat(self, waiting: Sequence[Job]) -> None:
        running = ", ".join(f"{child.job.name} ({child.seconds:.0f} s)" for child in self._running)
        later = ", ".join(job.name for job in waiting)
        self._say(f"running: {running}" + (f"; waiting: {later}" if later else ""))

    def _end_all(self) -> None:
        names = ", ".join(child.job.name for child in self._running)
        self._say(f"interrupted: {names} end; once more Ctrl-C kills them")
        for child in self._running:
            child.signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            self._await_ends(TEARDOWN_SECONDS)
        for child in self._running:
            child.signal(signal.SIGKILL)
        self._await_ends(TEARDOWN_SECONDS)
        if any(result.job.name == "cluster up" for result in self._results):
            self._start(CLUSTER_DOWN)
            self._await_ends(TEARDOWN_SECONDS * 2)

    def _await_ends(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._running and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
            self._collect()

    def _say(self, line: str) -> None:
        self._print(f"[{time.monotonic() - self._began:5.0f} s] {line}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

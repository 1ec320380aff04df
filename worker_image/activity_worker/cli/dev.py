"""`activity-worker dev`: a local Step Functions, a worker on it, and inputs that a person types or keeps in files.

The worker is `activity-worker run` as a process. It is started again when a Python file of the handler's folders is
saved; then the inputs of the files and the last typed one run again.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from activity_worker.cli.invoke import check_json, read_json
from activity_worker.cli.source_files import SourceFiles
from activity_worker.config.reader import SettingsReader, UsageError
from activity_worker.config.settings import CallSettings, read_call_settings
from activity_worker.contract import EXIT_ERROR, EXIT_OK
from activity_worker.testing.fake_operations import FakeSettings
from activity_worker.testing.fake_server import StepFunctionsFake
from activity_worker.testing.fake_tasks import FakeTask

_REGION = "us-east-1"
#: Short, because a worker that is replaced waits for its open poll.
_POLL_HOLD_SECONDS = 0.5
_HEARTBEAT_SECONDS = 30.0
_LOOK_SECONDS = 0.3
#: For a worker that is asked to stop, before it is killed.
_STOP_SECONDS = 10.0


def run(args: Mapping[str, Any]) -> int:
    """Run until Ctrl-C or the end of the inputs; returns 1 if a task of piped inputs failed, else 0.

    Raises `UsageError` and `SettingsError`.
    """
    settings = read_call_settings(args)
    port = SettingsReader(args, {}).count("port", "", 0, 0, 65_535) or 0
    for file in args["input-file"]:
        read_json(file)
    with contextlib.suppress(asyncio.CancelledError):
        return asyncio.run(_Session(settings, port, args["input-file"]).run())
    return EXIT_OK


class _Session:
    """One run of the command."""

    def __init__(self, settings: CallSettings, port: int, files: list[str]) -> None:
        self._settings = settings
        self._files = files
        self._fake = StepFunctionsFake(settings=FakeSettings(poll_hold_seconds=_POLL_HOLD_SECONDS), port=port)
        self._arn = ""
        self._worker: asyncio.subprocess.Process | None = None
        self._at_terminal = sys.stdin.isatty()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._last: str | None = None
        self._failed = False
        self._running: set[asyncio.Task[None]] = set()
        #: Held while the worker is replaced, and at the end, when it is replaced no more.
        self._replacing = asyncio.Lock()
        self._interrupted = False

    async def run(self) -> int:
        """Serve inputs until their end. Ctrl-C cancels it, and it stops the worker before it ends."""
        session = asyncio.current_task()
        assert session is not None  # noqa: S101 - it runs
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt, session)
        try:
            await self._fake.start()
        except OSError as error:
            raise UsageError(f"--port: the local Step Functions cannot listen: {error.strerror}") from None
        watching = asyncio.create_task(self._watch())
        try:
            self._arn = self._fake.create_activity(self._settings.activity)
            _say(f"A local Step Functions listens on {self._fake.url}; the activity is {self._arn}.")
            if self._at_terminal:
                _say("Type JSON and Enter for a task, @FILE for a file, Enter alone for the last one; Ctrl-C ends.")
            await self._start_worker()
            self._submit_files()
            threading.Thread(target=self._read_lines, args=(asyncio.get_running_loop(),), daemon=True).start()
            while (line := await self._lines.get()) is not None:
                self._take(line.strip())
            async with self._replacing:
                return await self._finish()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._stop_worker()
            await self._fake.close()

    def _interrupt(self, session: "asyncio.Task[Any]") -> None:
        if not self._interrupted:
            self._interrupted = True
            _say("Stopping the worker; Ctrl-C again ends it at once.")
            session.cancel()
        elif self._worker is not None:
            self._kill(self._worker)

    async def _finish(self) -> int:
        """Wait for the tasks of piped inputs. A worker that has ended runs no further one."""
        assert self._worker is not None  # noqa: S101 - it was started before
        ended = asyncio.create_task(self._worker.wait())
        while self._running and not ended.done():
            await asyncio.wait({*self._running, ended}, return_when=asyncio.FIRST_COMPLETED)
        unfinished = bool(self._running)
        for waiting in (*self._running, ended):
            waiting.cancel()
        return EXIT_ERROR if self._failed or unfinished else EXIT_OK

    def _read_lines(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._lines.put_nowait, line)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _take(self, line: str) -> None:
        try:
            text = (
                read_json(line[1:]) if line.startswith("@") else check_json(line, "the input") if line else self._last
            )
        except UsageError as error:
            _say(str(error))
            return
        if text is not None:
            self._last = text
            self._submit(text)

    def _submit_files(self) -> None:
        for file in self._files:
            try:
                self._submit(read_json(file), file)
            except UsageError as error:
                _say(str(error))

    def _submit(self, text: str, name: str = "") -> None:
        (task,) = self._fake.schedule(self._arn, text, heartbeat_seconds=_HEARTBEAT_SECONDS)
        showing = asyncio.create_task(self._show(task, name))
        self._running.add(showing)
        showing.add_done_callback(self._running.discard)

    async def _show(self, task: FakeTask, name: str) -> None:
        await self._fake.until(lambda: task.ended_at is not None)
        prefix = f"{name}: " if name else ""
        if task.state == "succeeded":
            _print(prefix + json.dumps(json.loads(task.output), indent=2))
            return
        self._failed = True
        reason = f"failed as {task.error}: {task.cause}" if task.state == "failed" else task.state.replace("_", " ")
        _say(prefix + reason)

    async def _watch(self) -> None:
        """Start the worker again when a file is saved."""
        python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        files = SourceFiles([Path.cwd(), *(Path(folder) for folder in python_path if folder)], self._files)
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            changed = await asyncio.to_thread(files.changed)
            if changed is None or self._worker is None:
                continue
            async with self._replacing:
                _say(f"{changed} has changed: reloading")
                await self._stop_worker()
                await self._start_worker()
                self._submit_files()
                if self._last is not None:
                    self._submit(self._last)

    async def _start_worker(self) -> None:
        settings = self._settings
        options = {
            "--activity-arn": self._arn,
            "--endpoint-url": self._fake.url,
            "--region": _REGION,
            "--drain-timeout-seconds": "0",
            "--task-deadline-seconds": f"{settings.deadline_seconds or 0:g}",
            "--log-format": "text",
            "--log-level": settings.logging.level,
        }
        if settings.python:
            options["--handler-python"] = settings.python
        words = [word for pair in options.items() for word in pair]
        self._worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "activity_worker", "run", settings.handler, *words),
            stdin=asyncio.subprocess.DEVNULL,
            env={**os.environ, **settings.environment, **_credentials()},
        )

    async def _stop_worker(self) -> None:
        worker = self._worker
        if worker is None or worker.returncode is not None:
            return
        worker.send_signal(signal.SIGTERM)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await worker.wait()
        finally:
            self._kill(worker)
        await worker.wait()

    @staticmethod
    def _kill(worker: asyncio.subprocess.Process) -> None:
        if worker.returncode is None:
            worker.kill()


def _credentials() -> dict[str, str]:
    """Return keys for the local service where the user has none: it accepts any."""
    known = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if any(os.environ.get(name) for name in known) or (Path.home() / ".aws").is_dir():
        return {}
    return {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - what the command is for


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - as above

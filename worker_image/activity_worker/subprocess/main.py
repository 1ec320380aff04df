"""The child process of a slot: imports the handler once, then runs one task after the other.

`subprocess.process` starts it through `bootstrap.py`, with the interpreter of the handler's environment. That
environment may lack the supervisor's libraries or have other releases of them. So the modules that this one imports at
its top need the standard library alone.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from activity_worker.config.logging import set_up_handler_logs
from activity_worker.config.printed import capture_printed, finish_lines
from activity_worker.contract import Env, LeasedTask, ScheduledActivity
from activity_worker.errors import UnknownActivityError
from activity_worker.events import EventEmitter
from activity_worker.handlers.loader import HandlerLoadError, is_tasks, load_handler
from activity_worker.handlers.table import CompiledHandler
from activity_worker.runtime.cancellation import CancellationSignal, CancelReason
from activity_worker.runtime.encoding import parse_task_input
from activity_worker.runtime.inline_runner import InlineRunner
from activity_worker.runtime.lifespan import ResourceError
from activity_worker.runtime.toolkit import TaskResponseToolkit
from activity_worker.subprocess import errors
from activity_worker.subprocess.child_channel import ChildChannel, die_with_parent, prefer_for_oom_kill
from activity_worker.subprocess.protocol import CHILD_UNUSABLE, Message
from activity_worker.subprocess.start_flag import StartFlag
from activity_worker.subprocess.task_keys import TaskKeys
from activity_worker.task import TaskRequest, take_origin

if TYPE_CHECKING:
    from activity_worker.steps.runner.child_handler import InstanceHandler

#: Seconds between two progress messages to the supervisor, however often a handler reports progress.
PROGRESS_SPACING_SECONDS = 0.5
#: The longest text of progress that leaves this process: what Amazon SWF takes.
MAX_DETAILS_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class _ChildWorker:
    worker_name: str
    activity_arn: str


class _ParentTaskChannel:
    """A toolkit's channel to the task's source. The supervisor makes the calls, for the task with the id `number`."""

    def __init__(self, parent: ChildChannel, number: int) -> None:
        self._parent = parent
        self._number = number
        self._sent_at = 0.0
        self.progress: Callable[[], Any] = lambda: None

    async def heartbeat(self) -> None:
        """Send a task heartbeat and wait for its result."""
        await self._ask("heartbeat", details=_plain(self.progress()))

    def heartbeat_soon(self) -> None:
        """Report progress to the supervisor, unless a report has just gone out. From any thread."""
        now = time.monotonic()
        if now - self._sent_at >= PROGRESS_SPACING_SECONDS:
            self._sent_at = now
            self._parent.send({"kind": "progress", "id": self._number, "details": _plain(self.progress())})

    async def succeed(self, output: str) -> None:
        """Conclude with JSON text."""
        await self._ask("succeed", output=output)

    async def fail(self, error: str, cause: str) -> None:
        """Conclude with a failure."""
        await self._ask("fail", error=error, cause=cause)

    async def confirm_cancellation(self, details: str) -> None:
        """Conclude as cancelled."""
        await self._ask("confirm_cancellation", details=details)

    async def _ask(self, what: str, **arguments: object) -> None:
        reply = await self._parent.call(what, id=self._number, **arguments)
        if reply["error"] is not None:
            raise errors.from_wire(reply["error"])


class _ReturnChannel(_ParentTaskChannel):
    """The channel of a handler that returns its output: the `done` message carries the output."""

    output: str | None = None

    async def succeed(self, output: str) -> None:
        """Keep JSON text for the supervisor, which concludes with it."""
        self.output = output


class _Child:
    """Runs the tasks that the supervisor sends."""

    def __init__(self, handler: Any, fd: int, keys: TaskKeys, start_flag: StartFlag) -> None:
        self._keys = keys
        self._start_flag = start_flag
        self.parent = ChildChannel(fd, self._take)
        self._instances = _instance_handler(handler, self.parent) if is_tasks(handler) else None
        if self._instances is not None:
            handler = _with_registry(handler, self._instances.handle)
        self._runner = InlineRunner(handler)
        self._current: int | None = None
        self._signal = CancellationSignal()
        self._task: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Run tasks until the supervisor sends `stop`; the current task is finished first."""
        await self._runner.start()
        self.parent.start()
        self.parent.send(
            {"kind": "ready", "activities": self._runner.activities}
            if self._instances is None
            else {"kind": "ready", "capabilities": self._instances.capabilities}
        )
        await self._over
        if self._task is not None:
            await self._task
        if self._instances is not None:
            await self._instances.close()
        await self._runner.stop()

    async def _run(self, message: Message) -> None:
        scheduled = message.get("activity")
        task = LeasedTask(message["token"], message["input"], scheduled and ScheduledActivity.from_wire(scheduled))
        value, origin = take_origin(parse_task_input(task), task.activity)
        identity = _ChildWorker(message["worker"], message["arn"])
        request = TaskRequest(identity, task, value, origin, message.get("deadline"))
        handler = self._find(request)
        policy = None if handler is None else handler.activity.retry
        if policy is not None:
            terms = policy.terms
            self.parent.send({"kind": "retry", "terms": [terms.attempts, terms.delay, terms.on_deadline]})
        self._start_flag.set(message["id"])
        self._keys.begin(request)
        responds = handler is not None and handler.signature.responds
        channel = (_ParentTaskChannel if responds else _ReturnChannel)(self.parent, message["id"])
        respond = TaskResponseToolkit(request, channel, events=EventEmitter(), signal=self._signal)
        channel.progress = lambda: respond.progress.details if respond.progress else None
        error = None
        try:
            await self._runner.run(request, respond)
        except BaseException as raised:  # noqa: BLE001 - a handler's SystemExit is its task's failure
            error = errors.to_wire(raised)
        finish_lines()
        self._keys.end()
        output = channel.output if isinstance(channel, _ReturnChannel) and error is None else None
        done: Message = {"kind": "done", "id": message["id"], "error": error, "output": output}
        if request.log_keys and _is_small(request.log_keys):
            done["logKeys"] = request.log_keys
        if respond.retry_wanted is not None:
            done["retry"] = respond.retry_wanted
        self.parent.send(done)

    def _find(self, request: TaskRequest) -> CompiledHandler | None:
        try:
            return self._runner.find(request)
        except UnknownActivityError:
            # The runner does not find the activity either, and fails the task.
            return None

    def _take(self, message: Message) -> None:
        if message["kind"] == "run":
            # The supervisor sends the next task after the end of this one.
            self._current, self._signal = message["id"], CancellationSignal()
            self._signal.set_draining(message.get("draining", False))
            if self._instances is not None:
                self._instances.begin(stopping=message.get("draining", False))
            self._task = asyncio.get_running_loop().create_task(self._run(message))
            self._task.add_done_callback(self._ran)
        elif message["kind"] == "stop":
            self._end()
        elif message["kind"] == "drain" and message["id"] == self._current:
            self._signal.set_draining(message["on"])
            if self._instances is not None and message["on"]:
                self._instances.stop()
        elif message["kind"] == "cancel" and message["id"] == self._current and self._task is not None:
            if self._instances is not None:
                self._instances.stop()
            self._signal.cancel(CancelReason(message["reason"]), message["detail"])
            # Later: a task that comes with its cancellation would be cancelled before its first step, without an end.
            asyncio.get_running_loop().call_soon(self._task.cancel)

    def _ran(self, task: "asyncio.Task[None]") -> None:
        if task is self._task:
            self._current = None
        if task.cancelled() or task.exception() is not None:
            # This is an error of this module, not of the handler: the process ends, and the supervisor starts another.
            self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


def _plain(details: Any) -> Any:
    """Return progress details if they are plain and short, else None: other values stay in this process."""
    return details if isinstance(details, int | float | bool | None) or _is_small(details) else None


def _is_small(details: Any) -> bool:
    if isinstance(details, str):
        return len(details) <= MAX_DETAILS_LENGTH
    return (
        isinstance(details, dict)
        and len(details) <= 20
        and all(
            isinstance(key, str)
            and (isinstance(value, int | float | bool) or (isinstance(value, str) and len(value) <= 200))
            for key, value in details.items()
        )
    )


def _instance_handler(tasks: Any, parent: ChildChannel) -> "InstanceHandler":
    from activity_worker.steps.runner.child_handler import InstanceHandler  # noqa: PLC0415 - of an extra, and for `Tasks` alone

    def send_call(note: Mapping[str, Any]) -> None:
        parent.send({"kind": "measured", "note": note})

    return InstanceHandler(tasks, os.environ.get(Env.STORE_URL, ""), send_call)


def _with_registry(tasks: Any, handle: Callable[[TaskRequest], Any]) -> Any:
    """Return what runs instances: the function, within the middleware and resources of the registry if there is one."""
    if tasks.registry is None:
        return handle
    tasks.registry.activity(name="instances", default=True)(handle)
    return tasks.registry


async def _serve(fd: int, name: str, handler: Any, keys: TaskKeys, start_flag: StartFlag) -> int:
    child = _Child(handler, fd, keys, start_flag)
    try:
        await child.serve()
    except ResourceError as error:
        child.parent.send({"kind": "unusable", "message": f"{name}: {error}"})
        return CHILD_UNUSABLE
    return 0


def main() -> int:
    """Run the child; returns its exit code."""
    fd, flag_fd, name, supervisor = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    die_with_parent(supervisor)
    start_flag = StartFlag(flag_fd)
    os.close(flag_fd)
    prefer_for_oom_kill()
    keys = TaskKeys(os.environ)
    set_up_handler_logs(keys)
    capture_printed()
    try:
        handler = load_handler(name)
    except HandlerLoadError as error:
        ChildChannel(fd, lambda _: None).send({"kind": "unusable", "message": str(error)})
        return CHILD_UNUSABLE
    return asyncio.run(_serve(fd, name, handler, keys, start_flag))

"""Handlers for tests: correct ones, and ones with every kind of misbehaviour. Run in child processes only."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from activity_worker import activity
from activity_worker.activity import Context, TaskRequest
from activity_worker.errors import TaskFailed

CALLS = 0


def doubles(request: TaskRequest) -> dict[str, Any]:
    return {"doubled": request.input["n"] * 2, "pid": os.getpid()}


async def doubles_async(request: TaskRequest) -> int:
    await asyncio.sleep(0)
    return int(request.input["n"]) * 2


def answers(request: TaskRequest, respond: Any) -> None:
    respond.heartbeat({"done": 1})
    respond.success({"answered": request.input})


async def answers_async(request: TaskRequest, respond: Any) -> None:
    await respond.heartbeat()
    await respond.failure("Custom.Error", "because")


async def answers_twice(request: TaskRequest, respond: Any) -> None:
    await respond.success(1)
    await respond.success(2)


_unanswered: list[Any] = []


async def answers_too_late(request: TaskRequest, respond: Any) -> None:
    """Leave the first task without an answer, and answer it during the second one."""
    if not _unanswered:
        _unanswered.append(respond)
        return
    try:
        await _unanswered[0].heartbeat("of the first task")
        await _unanswered[0].success("of the first task")
    except Exception as error:  # noqa: BLE001 - what it is, the test asks
        await respond.success(type(error).__name__)


def throws(request: TaskRequest) -> None:
    raise LookupError("no such thing")


def fails_by_name(request: TaskRequest) -> None:
    raise TaskFailed("Shop.SoldOut", "none left")


def returns_a_set(request: TaskRequest) -> Any:
    return {1, object()}


def counts(request: TaskRequest) -> int:
    global CALLS  # noqa: PLW0603 - the point is that the module stays
    CALLS += 1
    return CALLS


def tells_where(request: TaskRequest) -> dict[str, Any]:
    return {"oom": Path("/proc/self/oom_score_adj").read_text().strip(), "session": os.getsid(0) == os.getpid()}


def exits(request: TaskRequest) -> None:
    os._exit(7)


def raises_system_exit(request: TaskRequest) -> None:
    sys.exit(3)


def crashes(request: TaskRequest) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def is_killed(request: TaskRequest) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(request: TaskRequest) -> None:
    _say(request)
    threading.Event().wait()


async def hangs_politely(request: TaskRequest) -> None:
    _say(request)
    try:
        await asyncio.Event().wait()
    finally:
        Path(request.input["file"]).write_text("ended by itself")  # noqa: ASYNC240 - a test


def watches_the_signal(request: TaskRequest, respond: Any) -> None:
    _say(request)
    respond.signal.wait()
    Path(request.input["file"]).write_text(f"{respond.signal.reason}: {respond.signal.detail}")


def holds_the_interpreter(request: TaskRequest) -> int:
    """Sleep in C without releasing the interpreter lock: no thread of this process runs."""
    _say(request)
    return int(ctypes.PyDLL(None).sleep(int(request.input.get("seconds", 3600))))


def leaves_a_grandchild(request: TaskRequest) -> None:
    grandchild = subprocess.Popen(["sleep", "3600"])
    Path(request.input["file"]).write_text(str(grandchild.pid))
    threading.Event().wait()


def floods(request: TaskRequest) -> int:
    for number in range(200_000):
        activity.heartbeat({"number": number})
    return 200_000


async def floods_with_calls(request: TaskRequest, respond: Any) -> None:
    await asyncio.gather(*(respond.heartbeat(number) for number in range(5_000)))
    await respond.success(5_000)


def sleeps(request: TaskRequest) -> str:
    time.sleep(request.input["seconds"])
    return "slept"


def waits_at_the_gate(request: TaskRequest) -> str:
    """Continue when the file that the input names exists."""
    while not Path(request.input["gate"]).exists():
        time.sleep(0.02)
    return "went on"


def waits_for_the_drain(request: TaskRequest) -> str:
    """Save the state and end when the worker drains."""
    _say(request)
    while not activity.draining():
        time.sleep(0.02)
    return "saved"


def _say(request: TaskRequest) -> None:
    """Tell the test that the handler is running."""
    if "started" in request.input:
        Path(request.input["started"]).write_text(str(os.getpid()))


def logs_and_prints(request: TaskRequest) -> None:
    log = logging.getLogger("shop")
    log.info("resized %s", "a.png", extra={"bucket": "photos", "lease": "mine"})
    log.debug("not at this level")
    print("printed", 1, sep="-", end="\nand more")
    print("to standard error", file=sys.stderr)
    warnings.warn("old and gone", stacklevel=1)
    thread = threading.Thread(target=_fails_in_a_thread, name="side")
    thread.start()
    thread.join()


def _fails_in_a_thread() -> None:
    raise OSError("the side failed")


def _finds_nothing() -> None:
    raise KeyError("missing part")


def raises_from(request: TaskRequest) -> None:
    try:
        _finds_nothing()
    except KeyError as error:
        raise ValueError("no such picture") from error


def answers_and_throws(request: TaskRequest, respond: Any) -> None:
    respond.success("done")
    raise RuntimeError("after the answer")


async def throws_when_cancelled(request: TaskRequest) -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise RuntimeError("could not clean up") from None


def reports_progress(job: dict[str, Any], ctx: Context) -> dict[str, Any]:
    logging.getLogger("shop").info("at work")
    ctx.heartbeat({"lines": 7})
    waits_at_the_gate(ctx.request)
    return {"execution": ctx.execution, "remaining": ctx.remaining_seconds(), "keys": sorted(job)}

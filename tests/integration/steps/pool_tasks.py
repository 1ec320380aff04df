"""Tasks for worker processes: each instance appends lines to its own file, in POOL_FOLDER.

Loaded in handler processes; the tests create instances with them, too.
"""

import asyncio
import ctypes
import fcntl
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from activity_worker import Activities, Context
from activity_worker.steps import FinalError, StepError, Task, Tasks, current, step
from tests.integration.steps.effect_files import EffectFiles

FOLDER = Path(os.environ.get("POOL_FOLDER", "/nonexistent"))
CHECKED: dict[str, Any] = {"retry": {"retries": 8, "delays": ["1s"]}, "check": "was_done"}


def say(**line: Any) -> None:
    """Append to the instance's file, in one write."""
    here = {"step": current().step_num, "sub": current().sub_step, "runner": current().runner, "pid": os.getpid()}
    file = os.open(FOLDER / f"{current().instance_id}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, (json.dumps({**line, **here, "at": time.time()}) + "\n").encode())
    finally:
        os.close(file)


def lines(instance_id: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Return the lines of an instance."""
    path = folder / f"{instance_id}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def alone() -> Iterator[None]:
    """Hold a lock that ends with the process; a lock that another process holds is recorded as a line."""
    file = os.open(FOLDER / f"{current().instance_id}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(overlap=True)
        yield
    finally:
        os.close(file)


def was_done(_: dict[str, Any]) -> bool | None:
    say(asked=True)
    return True if any(line.get("effect") == current().key for line in lines(current().instance_id)) else None


def visit(data: dict[str, Any]) -> None:
    """Wait at the gate if this step has one, then have the effect."""
    with alone():
        say(call=True)
        while current().step_num in data.get("gates", []) and not (FOLDER / "gate").exists():
            time.sleep(0.02)
        say(effect=current().key)


async def visit_async(data: dict[str, Any]) -> None:
    with alone():
        say(call=True)
        while current().step_num in data.get("gates", []) and not (FOLDER / "gate").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        say(effect=current().key)


def hold_the_interpreter(data: dict[str, Any]) -> None:
    """Sleep in C without releasing the interpreter lock: no thread of this process runs."""
    with alone():
        say(call=True)
        ctypes.PyDLL(None).sleep(data["seconds"])
        say(effect=current().key)


def die(data: dict[str, Any]) -> None:
    """Kill the own process as often as the data asks; then have the effect."""
    with alone():
        say(call=True)
        if sum("call" in line for line in lines(current().instance_id)) <= data["deaths"]:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        say(effect=current().key)


def fail_once(_: dict[str, Any]) -> None:
    say(call=True)
    if sum("call" in line for line in lines(current().instance_id)) == 1:
        raise StepError("Later", "not yet")


def refuse(_: dict[str, Any]) -> None:
    raise FinalError("SoldOut", "the last one has gone, and card ruby-moon is not charged")


METHODS = {
    method.__name__: method for method in (visit, visit_async, hold_the_interpreter, die, fail_once, refuse, was_done)
}
TASKS = [
    Task("walk", [step("visit", **CHECKED), step("visit_async", **CHECKED), step("visit", **CHECKED)], methods=METHODS),
    Task("gil", [step("hold_the_interpreter")], methods=METHODS),
    Task("dies", [step("die")], methods=METHODS),
    Task("waits", [step("fail_once", retry={"delays": ["3s"]})], methods=METHODS),
    Task("fails", [step("visit", reverse="visit"), step("refuse")], methods=METHODS),
]
tasks = Tasks(TASKS)


def versioned(*steps: str) -> Tasks:
    """Return a task with this version's steps."""
    return Tasks([Task("versioned", [step(name) for name in steps], methods=dict.fromkeys(steps, visit))])


old, new = versioned("first"), versioned("first", "second")
NO_TASKS = {"tasks": "in a map"}


def with_registry() -> Tasks:
    """Return the tasks within a middleware and a resource, which append to their own file."""
    app = Activities()

    def say_around(**line: Any) -> None:
        with (FOLDER / "around.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    @app.resource
    def pen() -> Iterator[str]:
        yield "blue"
        say_around(closed=True)

    @app.middleware
    async def around(ctx: Context, pen: str) -> AsyncIterator[None]:
        ctx.log_keys["pen"] = pen
        try:
            yield
        finally:
            say_around(instance=ctx.execution)

    return Tasks(TASKS, registry=app)


registered = with_registry()


class SlowEffectFiles(EffectFiles):
    """Files of which each line takes a moment, so that many runners die during a call."""

    def _write(self, line: dict[str, Any]) -> None:
        time.sleep(0.03)
        super()._write(line)
        time.sleep(0.03)


files = SlowEffectFiles(FOLDER).tasks()

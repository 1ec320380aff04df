"""A registry of activities for tests with Amazon SWF. Its functions run in child processes only."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from activity_worker import Activities, ConcludeLater, Context, TaskCancelled, TaskRequest
from tests.eventually import eventually_sync

app = Activities()


@app.activity(name="double", version="1")
def double(n: int) -> int:
    return n * 2


@app.activity(name="double", version="2")
def double_as_text(n: int) -> dict[str, int]:
    return {"doubled": n * 2}


@app.activity(name="echo")
def echo(request: TaskRequest) -> Any:
    return request.input


@app.activity(name="which", version="1")
def which(request: TaskRequest) -> dict[str, str]:
    assert request.task.activity is not None
    scheduled = request.task.activity
    return {"id": scheduled.id, "workflow": scheduled.workflow_id, "version": scheduled.version}


@app.activity(name="watch", version="1")
def watch(context: Context) -> str:
    """End when asked to; the input names a file that says that it runs."""
    Path(context.request.input["started"]).touch()
    for step in range(3000):
        context.heartbeat({"step": step})
        if context.cancelled():
            raise TaskCancelled(f"stopped in step {'some' if step else 'none'}")
        time.sleep(0.02)
    return "never asked"


@app.activity(name="wait", version="1")
async def wait(request: TaskRequest) -> None:
    Path(request.input["started"]).touch()  # noqa: ASYNC240 - a test
    await asyncio.Event().wait()


@app.activity(name="finish", version="1")
async def finish(request: TaskRequest) -> str:
    """Finish the work although the task's cancellation is requested."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "finished all the same"
    return "never asked"


@app.activity(name="gate", version="1")
def gate(request: TaskRequest) -> str:
    """Wait for a file."""
    Path(request.input["started"]).touch()
    eventually_sync("the gate is open", Path(request.input["gate"]).exists)
    return "through"


@app.activity(name="long", version="1")
def long(n: int) -> str:
    return "x" * n


@app.activity(name="shout", version="1")
def shout(n: int) -> None:
    """Fail with a name and a message that are too long."""
    raise type("LongName" * 40, (Exception,), {})("x" * n)


@app.activity(name="die", version="1")
def die(request: TaskRequest) -> None:
    os._exit(7)


@app.activity(name="later", version="1")
def later(request: TaskRequest) -> None:
    """Hand the task's token away, in a file."""
    Path(request.input["token"]).write_text(request.task.token)
    raise ConcludeLater


@app.activity(name="twice", version="1")
def twice(call: dict[str, Any]) -> int:
    """An activity as simpleflow schedules it: its input has the function's arguments."""
    (number,) = call["args"]
    return int(number) * 2


@app.activity(name="refuse", version="1")
def refuse(request: TaskRequest) -> None:
    raise LookupError("no such order")


with_default = Activities()


@with_default.activity(name="double", version="1")
def known(n: int) -> int:
    return n * 2


@with_default.activity(default=True)
def anything_else(request: TaskRequest) -> str:
    assert request.task.activity is not None
    return f"default for {request.task.activity.name}"

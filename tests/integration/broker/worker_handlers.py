"""Tasks of a taskbroker for tests: each writes a line to the file that it gets. They run in child processes only."""

import os
from pathlib import Path

from activity_worker import Activities, Context, Retry, RetryTask, TaskNamespace, TaskRequest
from tests.eventually import eventually_sync

app = Activities()
shop = TaskNamespace(app, "shop", retry=Retry(attempts=2, on=(LookupError,), delay=0, on_deadline=False))
mail = TaskNamespace(app, "mail")


def note(path: str, *words: object) -> None:
    """Append a line, whole or not at all."""
    line = " ".join(str(word) for word in (*words, os.getpid())) + "\n"
    with Path(path).open("ab", buffering=0) as file:
        file.write(line.encode())


@shop.register(name="pack")
def pack(path: str, *parcels: bytes, urgent: bool = False) -> object:
    note(path, "shop.pack", *(parcel.hex() for parcel in parcels), urgent)
    # Nothing that JSON has: it is dropped.
    return object()


@mail.register(name="pack")
async def post(path: str) -> None:
    note(path, "mail.pack")


@app.activity(name="plain", namespace="shop")
def plain(request: TaskRequest) -> dict[str, int]:
    """A handler in this project's own form gets the keyword arguments as its input."""
    note(request.input["path"], "plain", request.input["n"])
    return {"n": request.input["n"]}


@app.activity(name="trace", namespace="shop")
def trace(request: TaskRequest, ctx: Context) -> None:
    note(request.input["path"], "trace", ctx.traceparent)


@shop.register(name="fail")
def fail(path: str, kind: str) -> None:
    note(path, kind)
    raise {"lookup": LookupError, "value": ValueError, "retry": RetryTask}[kind](kind)


@app.activity(name="raise", namespace="shop")
def raise_without_policy(request: TaskRequest) -> None:
    note(request.input["path"], "raise")
    raise ValueError("without a policy")


@shop.register(name="spin")
def spin(path: str) -> None:
    note(path, "spin")
    while True:
        pass


@shop.register(name="spin-again", retry=Retry(attempts=2, delay=0))
def spin_again(path: str) -> None:
    note(path, "spin-again")
    while True:
        pass


@shop.register(name="wait")
def wait(path: str, gate: str) -> None:
    note(path, "began")
    eventually_sync("the gate is open", Path(gate).exists)
    note(path, "ended")

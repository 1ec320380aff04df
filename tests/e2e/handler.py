"""The handler of the end-to-end tests: it works for `seconds`, and when `gated` until the gate is open.

With `do` in the input it misbehaves, but only in the first attempt, if the state machine passes the attempt (see
`task_input.py`). The execution's own Retry then completes the task.
"""

import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from activity_worker.activity import heartbeat
from activity_worker.errors import TaskFailed

Work = dict[str, Any]

#: The least seconds of every task: LocalEmu loses an answer that comes before it has recorded the task's start, and the
#: task then times out.
LEAST_SECONDS = 0.5
#: A file; once it exists, the gated tasks of its worker end.
GATE = "/tmp/go"


def handle(request: Any) -> Any:
    """Work for `seconds` and until the gate is open; return `n` and the pod's name. Or misbehave as `do` says."""
    work: Work = request.input
    time.sleep(LEAST_SECONDS)
    if not work.get("do"):
        time.sleep(max((work.get("seconds") or 0) - LEAST_SECONDS, 0))
        while work.get("gated") and not Path(GATE).exists():
            time.sleep(0.2)
    elif work.get("attempt", 0) == 0:
        return MISDEEDS[work["do"]](work)
    return {"task": work.get("n"), "pod": socket.gethostname()}


def throw(_: Work) -> NoReturn:
    """Fail with an exception."""
    raise LookupError("no picture of that name")


def refuse(_: Work) -> NoReturn:
    """Fail with a name that the handler chooses."""
    raise TaskFailed("Shop.SoldOut", "none left")


def hang(_: Work) -> NoReturn:
    """Never end, whatever exception is raised here."""
    while True:
        try:
            time.sleep(3600)
        except BaseException:  # noqa: BLE001 - this is what it is for
            continue


def hold(work: Work) -> Work:
    """Hold the interpreter lock for `seconds`: no other Python thread of this process runs meanwhile."""
    ctypes.PyDLL(None).sleep(work["seconds"])
    return {"task": work.get("n")}


def linger(work: Work) -> Work:
    """Work for `seconds` like a normal long task; the next attempt is short."""
    time.sleep(work["seconds"])
    return {"task": work.get("n")}


def leave(_: Work) -> NoReturn:
    """Exit by SystemExit."""
    sys.exit(3)


def vanish(_: Work) -> NoReturn:
    """End the process at once."""
    os._exit(7)


def hog(_: Work) -> NoReturn:
    """Allocate memory until the kernel kills the process."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 10)) * (8 << 10))


def flood(work: Work) -> Work:
    """Write log lines and report progress, tens of thousands of each, small and large."""
    for line in range(20_000):
        print(f"line {line} {'x' * (line % 200)}")
        heartbeat({"line": line, "text": "y" * (line % 300)})
    return {"task": work.get("n")}


def swell(_: Work) -> str:
    """Return more than the service accepts."""
    return "z" * 262_145


def babble(_: Work) -> Any:
    """Return a value that JSON cannot express."""
    return {"when": object()}


MISDEEDS: dict[str, Callable[[Work], Any]] = {
    misdeed.__name__: misdeed
    for misdeed in (throw, refuse, hang, hold, linger, leave, vanish, hog, flood, swell, babble)
}

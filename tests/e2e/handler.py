"""The handler of the end-to-end tests: works for `seconds`, and when `gated` until the gate is open, unless the input
says to `do` something worse.

A handler that misbehaves does so in its first attempt only, where the state machine passes the attempt (see
`misdeeds.py`): the execution's own Retry then brings the task through.
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

#: Nobody is quicker: LocalEmu loses an answer that comes before it has noted that the task was started, and lets the
#: task time out.
LEAST_SECONDS = 0.5
#: A file: once it is there, the gated tasks of its worker end.
GATE = "/tmp/go"


def handle(request: Any) -> Any:
    """Take `seconds`, and as long as the gate is shut; give back `n` and the pod's name. Or misbehave as `do` says."""
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
    """Fail under a name of the handler's choice."""
    raise TaskFailed("Shop.SoldOut", "none left")


def hang(_: Work) -> NoReturn:
    """Never end, whatever is raised here."""
    while True:
        try:
            time.sleep(3600)
        except BaseException:  # noqa: BLE001 - this is what it is for
            continue


def hold(work: Work) -> Work:
    """Keep the interpreter's lock for whole `seconds`: no other Python thread of this process runs meanwhile."""
    ctypes.PyDLL(None).sleep(work["seconds"])
    return {"task": work.get("n")}


def linger(work: Work) -> Work:
    """Take `seconds`, as a task that is well and long; the next attempt is short."""
    time.sleep(work["seconds"])
    return {"task": work.get("n")}


def leave(_: Work) -> NoReturn:
    """Ask the interpreter to exit."""
    sys.exit(3)


def vanish(_: Work) -> NoReturn:
    """End the process with no more ado."""
    os._exit(7)


def hog(_: Work) -> NoReturn:
    """Take memory until the kernel objects."""
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 10)) * (8 << 10))


def flood(work: Work) -> Work:
    """Write log lines and tell of progress, tens of thousands of each, small and large."""
    for line in range(20_000):
        print(f"line {line} {'x' * (line % 200)}")
        heartbeat({"line": line, "said": "y" * (line % 300)})
    return {"task": work.get("n")}


def swell(_: Work) -> str:
    """Give back more than the service takes."""
    return "z" * 262_145


def babble(_: Work) -> Any:
    """Give back what JSON cannot say."""
    return {"when": {1, 2, 3}}


MISDEEDS: dict[str, Callable[[Work], Any]] = {
    misdeed.__name__: misdeed
    for misdeed in (throw, refuse, hang, hold, linger, leave, vanish, hog, flood, swell, babble)
}

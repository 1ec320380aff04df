"""`activity-worker status`: the running tasks of the worker in this pod or on this machine, from its page `/tasks`."""

import http.client
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

from activity_worker.config.reader import SettingsReader, UsageError
from activity_worker.contract import EXIT_ERROR, EXIT_OK, Env

_TIMEOUT_SECONDS: Final = 10.0
_LEASE_CHARACTERS: Final = 8


def run(args: Mapping[str, Any], env: Mapping[str, str]) -> int:
    """Print the tasks; returns 0, or 1 if no worker answers. Raises `UsageError` and `SettingsError`."""
    flags = {"health-port": args["health-port"]}
    port = SettingsReader(flags, env).count("health-port", Env.HEALTH_PORT, None, 1, 65535)
    if port is None:
        raise UsageError(f"no port: give --health-port as the worker has it, or set {Env.HEALTH_PORT}")
    try:
        text = _page(port)
    except (OSError, http.client.HTTPException) as error:
        print(f"activity-worker status: no worker answers at 127.0.0.1:{port}: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_ERROR
    tasks = json.loads(text)
    lines = [text] if args["json"] else [describe(task) for task in tasks] or ["no task runs"]
    print("\n".join(lines))  # noqa: T201 - what was asked for
    return EXIT_OK


def describe(task: Mapping[str, Any]) -> str:
    """Return a task as a line for people."""
    named = {key: value for key, value in task.items() if key != "heartbeat"}
    named["lease"] = str(task["lease"])[:_LEASE_CHARACTERS]
    line = "  ".join(f"{key}={value}" for key, value in named.items())
    heartbeat = task.get("heartbeat")
    if heartbeat is None:
        return f"{line}  no heartbeat of the handler yet"
    return f"{line}  heartbeat {heartbeat['secondsAgo']:g} s ago: {json.dumps(heartbeat['details'])}"


def _page(port: int) -> str:
    # Without proxies: the page answers callers on the loopback address only.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/tasks")
        answer = connection.getresponse()
        body = answer.read().decode()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"status {answer.status}")
    return body

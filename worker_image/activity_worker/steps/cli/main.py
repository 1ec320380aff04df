"""`activity-worker steps …`: run tasks, and look after their instances."""

import asyncio
import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.config.logging import set_up_logs
from activity_worker.config.reader import UsageError
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE
from activity_worker.steps.cli import show
from activity_worker.steps.cli.parser import STORE
from activity_worker.steps.cli.runner_process import PortError, serve
from activity_worker.steps.model.definition_parser import DefinitionError, parse_seconds
from activity_worker.steps.model.transitions import CannotRetryError
from activity_worker.steps.runner import tasks
from activity_worker.steps.runner.runner import RunnerOptions
from activity_worker.steps.runner.tasks import Tasks, UnknownTaskError
from activity_worker.steps.store.database import file_of
from activity_worker.steps.store.db_errors import describe_error
from activity_worker.steps.store.task_store import TaskStore, UnknownInstanceError
from activity_worker.wire.store_url import StoreUrlError

#: Commands that make a store where there is none.
_MAKERS = {"new", "run"}
#: The highest port there is.
_LAST_PORT = 65_535


class CompleteError(Exception):
    """The instance is complete: there is nothing left to cancel, to pause or to resume."""


_REFUSALS = (
    UnknownInstanceError,
    UnknownTaskError,
    CannotRetryError,
    CompleteError,
    DefinitionError,
    StoreUrlError,
    LookupError,
)


def main(args: Mapping[str, Any]) -> int:
    """Run a command and return the exit code: 0, 1 (error), 2 (usage)."""
    if args["steps_command"] is None:
        args["steps_parser"].print_help(sys.stderr)
        return EXIT_USAGE
    url = args["store"] or os.environ.get(STORE, "")
    if not url:
        return _say(f"no task store: give --store, or set {STORE}; for example sqlite:///tasks.db", EXIT_USAGE)
    try:
        asyncio.run(_with_store(url, args))
    except (UsageError, PortError) as error:
        return _say(error, EXIT_USAGE)
    except _REFUSALS as error:
        return _say(error, EXIT_ERROR)
    except (SQLAlchemyError, OSError) as error:
        return _say(
            f"the task store cannot be used: {describe_error(error, '--store' if args['store'] else STORE)}", EXIT_ERROR
        )
    return 0


def _say(error: object, code: int) -> int:
    print(f"activity-worker steps: {error}", file=sys.stderr)  # noqa: T201 - a command line's answer
    return code


async def _with_store(url: str, args: Mapping[str, Any]) -> None:
    file = file_of(url)
    if args["steps_command"] not in _MAKERS and file is not None and not file.exists():
        # Opening it would create an empty store, and a mistyped path would show no instances instead of an error.
        raise UsageError(f"there is no task store at {file}: correct the path; `steps new` and `steps run` make one")
    store = await TaskStore.open(url)
    try:
        command: Callable[[TaskStore, Mapping[str, Any]], Awaitable[str]] = _COMMANDS[args["steps_command"]]
        if text := await command(store, args):
            print(text)  # noqa: T201 - what was asked for
    finally:
        await store.close()


async def _run(store: TaskStore, args: Mapping[str, Any]) -> str:
    tasks = _load(args["tasks"])
    name = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"
    try:
        options = RunnerOptions(name, slots=args["slots"], lease_seconds=args["lease_seconds"])
    except ValueError as error:
        raise UsageError(error) from None
    if (port := args["health_port"]) is not None and not 0 <= port <= _LAST_PORT:
        # The system takes a larger number modulo 65,536 and would listen on another port.
        raise UsageError(f"--health-port is a number from 0 to {_LAST_PORT}, not {port}")
    set_up_logs("auto")
    await serve(tasks, store, options, args["health_port"])
    return ""


async def _new(store: TaskStore, args: Mapping[str, Any]) -> str:
    try:
        data = json.loads(args["data"])
    except ValueError as error:
        raise UsageError(f"the data is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise UsageError("the data is not a JSON object such as '{\"order\": 1}'")
    at = None if args["later"] is None else time.time() + _span("--in", args["later"])
    try:
        return await _load(args["tasks"]).new(store, args["task"], data, instance_id=args["id"], at=at)
    except ValueError as error:
        raise UsageError(error) from None


async def _ls(store: TaskStore, args: Mapping[str, Any]) -> str:
    if args["limit"] < 1:
        raise UsageError(f"--limit is at least 1, not {args['limit']}")
    found = await store.listed(args["task"], limit=args["limit"])
    return show.instances(found, time.time()) if found else "no instances"


async def _show(store: TaskStore, args: Mapping[str, Any]) -> str:
    stored = await store.get(args["id"])
    definition = await store.definition(stored.instance.definition_id)
    return show.instance(stored, definition, await store.history(args["id"]), time.time())


async def _history(store: TaskStore, args: Mapping[str, Any]) -> str:
    await store.get(args["id"])
    return show.revisions(await store.history(args["id"]))


async def _retry(store: TaskStore, args: Mapping[str, Any]) -> str:
    stored = await tasks.retry(store, args["id"], time.time())
    return f"{args['id']} goes on from step {stored.instance.status.step_num}"


async def _cancel(store: TaskStore, args: Mapping[str, Any]) -> str:
    await _incomplete(store, args)
    stored = await tasks.cancel(store, args["id"], time.time())
    return f"{args['id']} is {show.state(stored)}"


async def _pause(store: TaskStore, args: Mapping[str, Any]) -> str:
    await _incomplete(store, args)
    stored = await tasks.pause(store, args["id"], time.time(), paused=args["steps_command"] == "pause")
    return f"{args['id']} is {show.state(stored)}"


async def _incomplete(store: TaskStore, args: Mapping[str, Any]) -> None:
    stored = await store.get(args["id"])
    if stored.instance.complete:
        command = args["steps_command"]
        ended = show.state(stored).replace("canceled", "was canceled")
        raise CompleteError(f"instance {args['id']} {ended} already: there is nothing left to {command}")


async def _prune(store: TaskStore, args: Mapping[str, Any]) -> str:
    before = time.time() - _span("--older-than", args["older_than"])
    count = await store.prune(before, keep_failed=args["keep_failed"])
    return f"{count} instance{'' if count == 1 else 's'} deleted"


_COMMANDS = {
    "run": _run,
    "new": _new,
    "ls": _ls,
    "show": _show,
    "history": _history,
    "retry": _retry,
    "cancel": _cancel,
    "pause": _pause,
    "resume": _pause,
    "prune": _prune,
}


def _span(flag: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is not a span of time with its unit, such as '12h' or '30d'") from None


def _load(name: str) -> Tasks:
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds text
    try:
        found = getattr(importlib.import_module(module), attribute or "tasks")
    except DefinitionError:
        raise
    except Exception as error:  # noqa: BLE001 - a module may raise whatever it likes
        raise UsageError(f"{name!r} cannot be loaded as module:tasks: {_why(error)}") from None
    if not isinstance(found, Tasks):
        raise UsageError(f"{name!r} is a {type(found).__name__}; give a Tasks object, such as Tasks([order])")
    return found


def _why(error: Exception) -> str:
    """Return what stands in the way of loading a module, with the place when it was the module that raised."""
    words = (str(error).splitlines() or [""])[0]
    if isinstance(error, ImportError | AttributeError | ValueError | SyntaxError):
        return words
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {words} ({last.filename}, line {last.lineno})"

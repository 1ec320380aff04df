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
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.config.logging import set_up_logs
from activity_worker.config.reader import UsageError
from activity_worker.config.spans import parse_seconds
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE
from activity_worker.database.engine import file_of
from activity_worker.errors import PortError
from activity_worker.steps.cli import json_output, text
from activity_worker.steps.cli.parser import STORE
from activity_worker.steps.cli.runner_process import serve
from activity_worker.steps.model.definition_parser import DefinitionError
from activity_worker.steps.model.transitions import CannotRetryError, InstanceCompleteError
from activity_worker.steps.runner import tasks
from activity_worker.steps.runner.runner import RunnerOptions
from activity_worker.steps.runner.tasks import InstanceConflictError, Tasks, UnknownTaskError
from activity_worker.steps.store.db_errors import describe_error
from activity_worker.steps.store.task_store import TaskStore, UnknownInstanceError
from activity_worker.wire.store_url import StoreUrlError

#: Commands that make a store where there is none.
_MAKERS = {"new", "run"}
#: The highest port there is.
_LAST_PORT = 65_535


_REFUSALS = (
    UnknownInstanceError,
    UnknownTaskError,
    CannotRetryError,
    InstanceCompleteError,
    InstanceConflictError,
    DefinitionError,
    StoreUrlError,
    LookupError,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints: text for a person, or with `--json` the data."""

    text: str
    data: Mapping[str, Any]


def main(args: Mapping[str, Any]) -> int:
    """Run a command and return the exit code: 0, 1 (error), 2 (usage)."""
    if args["steps_command"] is None:
        args["steps_parser"].print_help(sys.stderr)
        return EXIT_USAGE
    try:
        asyncio.run(_with_store(args["store"] or os.environ.get(STORE, ""), args))
    except (UsageError, PortError) as error:
        return _fail(args, error, EXIT_USAGE)
    except _REFUSALS as error:
        return _fail(args, error, EXIT_ERROR)
    except (SQLAlchemyError, OSError) as error:
        why = describe_error(error, "--store" if args["store"] else STORE)
        return _fail(args, f"the task store cannot be used: {why}", EXIT_ERROR)
    return 0


def _fail(args: Mapping[str, Any], error: object, code: int) -> int:
    line = json.dumps({"error": str(error)}) if args["json"] else f"activity-worker steps: {error}"
    print(line, file=sys.stderr)  # noqa: T201 - a command line's answer
    return code


async def _with_store(url: str, args: Mapping[str, Any]) -> None:
    if not url:
        raise UsageError(f"no task store: give --store, or set {STORE}; for example sqlite:///tasks.db")
    file = file_of(url)
    if args["steps_command"] not in _MAKERS and file is not None and not file.exists():
        # Opening it would create an empty store, and a mistyped path would show no instances instead of an error.
        raise UsageError(f"there is no task store at {file}: correct the path; `steps new` and `steps run` make one")
    store = await TaskStore.open(url)
    try:
        answer = await _COMMANDS[args["steps_command"]](store, args)
        if answer is not None:
            print(json.dumps(answer.data) if args["json"] else answer.text)  # noqa: T201 - what was asked for
    finally:
        await store.close()


async def _run(store: TaskStore, args: Mapping[str, Any]) -> None:
    tasks = _load(args["tasks"])
    name = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{os.getpid()}"
    try:
        options = RunnerOptions(name, slots=args["slots"], lease_seconds=args["lease_seconds"])
    except ValueError as error:
        raise UsageError(error) from None
    if (port := args["health_port"]) is not None and not 0 <= port <= _LAST_PORT:
        # The system takes a larger number modulo 65,536 and would listen on another port.
        raise UsageError(f"--health-port is a number from 0 to {_LAST_PORT}, not {port}")
    set_up_logs("json" if args["json"] else "auto")
    await serve(tasks, store, options, args["health_port"])


async def _new(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    try:
        data = json.loads(args["data"])
    except ValueError as error:
        raise UsageError(f"the data is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise UsageError("the data is not a JSON object such as '{\"order\": 1}'")
    at = None if args["later"] is None else time.time() + _span("--in", args["later"])
    tasks = _load(args["tasks"])
    try:
        created = await tasks.create(store, args["task"], data, instance_id=args["id"], at=at)
    except InstanceConflictError:
        raise
    except ValueError as error:
        raise UsageError(error) from None
    stored = await store.get(created.instance_id)
    return Answer(created.instance_id, {**json_output.instance(stored), "isNew": created.is_new})


async def _ls(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    if args["limit"] < 1:
        raise UsageError(f"--limit is at least 1, not {args['limit']}")
    found = await store.listed(args["task"], limit=args["limit"])
    table = text.instances(found, time.time()) if found else "no instances"
    return Answer(table, {"instances": [json_output.instance(one) for one in found]})


async def _show(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    stored = await store.get(args["id"])
    definition = await store.definition(stored.instance.definition_id)
    history = await store.history(args["id"])
    table = text.instance(stored, definition, history, time.time())
    return Answer(table, json_output.instance_with_steps(stored, definition, history))


async def _history(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    stored = await store.get(args["id"])
    history = await store.history(args["id"])
    revisions = [json_output.revision(one) for one in history]
    return Answer(text.revisions(history), {**json_output.instance(stored), "revisions": revisions})


async def _retry(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    stored = await tasks.retry(store, args["id"])
    instance = stored.instance
    how = "succeeded: no step was left" if instance.complete else f"goes on from step {instance.status.step_num}"
    return Answer(f"{args['id']} {how}", json_output.instance(stored))


async def _change(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    change = {"cancel": tasks.cancel, "pause": tasks.pause, "resume": tasks.resume}[args["steps_command"]]
    stored = await change(store, args["id"])
    return Answer(f"{args['id']} is {text.state(stored)}", json_output.instance(stored))


async def _prune(store: TaskStore, args: Mapping[str, Any]) -> Answer:
    before = time.time() - _span("--older-than", args["older_than"])
    count = await store.prune(before, keep_failed=args["keep_failed"])
    return Answer(f"{count} instance{'' if count == 1 else 's'} deleted", {"deleted": count})


_COMMANDS: Mapping[str, Callable[[TaskStore, Mapping[str, Any]], Awaitable[Answer | None]]] = {
    "run": _run,
    "new": _new,
    "ls": _ls,
    "show": _show,
    "history": _history,
    "retry": _retry,
    "cancel": _change,
    "pause": _change,
    "resume": _change,
    "prune": _prune,
}


def _span(flag: str, given: str) -> float:
    try:
        return parse_seconds(given)
    except ValueError:
        raise UsageError(f"{flag}: {given!r} is not a span of time with its unit, such as '12h' or '30d'") from None


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

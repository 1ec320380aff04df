"""`activity-worker invoke`: one call of the handler. Its output goes to standard output, all else to standard error."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from activity_worker.config.logging import set_up_logs
from activity_worker.config.reader import UsageError
from activity_worker.config.settings import CallSettings, read_call_settings
from activity_worker.contract import EXIT_ERROR, EXIT_OK
from activity_worker.runtime.failure import FAILURE_LOGGER
from activity_worker.supervisor.one_call import CallResult, HandlerUnusableError, call_once

#: The first characters of JSON that no handler's name begins with; `-` stands for standard input.
_STARTS_JSON = frozenset('{["-0123456789')


def run(args: Mapping[str, Any]) -> int:
    """Call the handler; returns 0 after an output and 1 after a failure. Raises `UsageError` and `SettingsError`."""
    args = _sorted_arguments(args)
    settings = read_call_settings(args)
    text = _read_input(args["input"], args["input-file"])
    set_up_logs("text", level=settings.logging.level)
    # What fails is said below, once.
    logging.getLogger(FAILURE_LOGGER).disabled = True
    # What the handler prints must not be mixed with its output.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with output:
        try:
            result = asyncio.run(_call(settings, text))
        except HandlerUnusableError as error:
            _say(str(error))
            return EXIT_ERROR
        if result.output is None:
            _say(f"failed as {result.error}: {result.cause}")
            return EXIT_ERROR
        if result.error:
            _say(f"the handler raised after its task had ended: {result.error}: {result.cause}")
        output.write(json.dumps(json.loads(result.output), indent=2) + "\n")
    return EXIT_OK


def _sorted_arguments(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take a single argument that is JSON as the input of the default handler."""
    only: str | None = args["handler"]
    if only is not None and args["input"] is None and only[:1] in _STARTS_JSON:
        return {**args, "handler": None, "input": only}
    return args


async def _call(settings: CallSettings, text: str) -> CallResult:
    return await call_once(
        settings.handler,
        text,
        activity=settings.activity,
        python=settings.python,
        environment=settings.environment,
        deadline_seconds=settings.deadline_seconds,
        on_progress=lambda details: _say(f"heartbeat: {json.dumps(details)}"),
    )


def _read_input(argument: str | None, file: str | None) -> str:
    """Return the input as JSON text: from the argument, a file, or standard input. Raises `UsageError`."""
    if argument is not None and file is not None:
        raise UsageError("an input and --input-file: give one of them")
    if file is not None:
        return read_json(file)
    if argument is None and sys.stdin.isatty():
        raise UsageError("no input: give JSON as an argument, with --input-file, or on standard input")
    return check_json(sys.stdin.read() if argument in {None, "-"} else argument or "", "the input")


def read_json(file: str) -> str:
    """Return the JSON text of a file. Raises `UsageError`."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{file}: it cannot be read: {error}") from None
    return check_json(text, file)


def check_json(text: str, origin: str) -> str:
    """Return `text` if it is JSON. Raises `UsageError` with the place of the error, without the text."""
    try:
        json.loads(text)
    except ValueError as error:
        raise UsageError(f"""{origin} is not JSON ({error}); quote it, as in '{{"name": "Ann"}}'""") from None
    return text


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - what the command is for

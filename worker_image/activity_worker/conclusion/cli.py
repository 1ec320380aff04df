"""`activity-worker conclude success|failure|cancelled|heartbeat`: one call about one task, by its token.

The token comes from a file, standard input or the environment, because others on the machine can read a command line.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from activity_worker.conclusion.conclusions import Conclusions
from activity_worker.conclusion.parser import STEP_FUNCTIONS, SWF, TOKEN_VARIABLE
from activity_worker.config.reader import UsageError
from activity_worker.contract import EXIT_ERROR, EXIT_OK
from activity_worker.errors import ActivityError
from activity_worker.wire.errors import WireError

_OPEN: Final = {SWF: Conclusions.of_swf, STEP_FUNCTIONS: Conclusions.of_step_functions}


def run(args: Mapping[str, Any]) -> int:
    """Run the command; returns 0, or 1 when the service refuses. Raises `UsageError`."""
    token = _token(args["token_file"])
    output = _output(args["output"]) if args["action"] == "success" else None
    try:
        return asyncio.run(_conclude(args, token, output))
    except (ActivityError, WireError) as error:
        print(f"activity-worker conclude: {error}", file=sys.stderr)  # noqa: T201 - the command's answer
        return EXIT_ERROR


async def _conclude(args: Mapping[str, Any], token: str, output: Any) -> int:
    opened = _OPEN[args["service"]](region=args["region"], endpoint_url=args["endpoint_url"], profile=args["profile"])
    async with opened as tasks:
        match args["action"]:
            case "success":
                await tasks.succeed(token, output)
            case "failure":
                await tasks.fail(token, args["error"], args["cause"])
            case "cancelled":
                await tasks.confirm_cancellation(token, args["details"])
            case "heartbeat":
                if await tasks.heartbeat(token, args["details"] or None):
                    print("cancellation requested")  # noqa: T201 - what was asked
    return EXIT_OK


def _token(file: str | None) -> str:
    try:
        if file is None:
            text = os.environ.get(TOKEN_VARIABLE, "")
        else:
            text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"--token-file={file}: it cannot be read: {error}") from error
    if not text.strip():
        raise UsageError(f"no token: give --token-file, or set {TOKEN_VARIABLE}")
    return text.strip()


def _output(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"--output: expected JSON, such as '{{\"size\": 3}}' or '\"a text\"': {error}") from error

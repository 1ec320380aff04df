"""Finds the command and runs it; each module is imported by the command that needs it."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from activity_worker.cli.parser import make_parser
from activity_worker.config import extras
from activity_worker.config.logging import set_up_logs
from activity_worker.config.reader import SettingsError, UsageError
from activity_worker.config.settings import read_settings
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE, VERSION

#: The extra that each command needs.
_EXTRAS = {
    "run": "worker",
    "invoke": "worker",
    "dev": "worker",
    "conclude": "worker",
    "steps": "steps",
    "flows": "redis",
    "broker": "taskbroker",
    "dead-letters": "taskbroker",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1 (error), 2 (usage)."""
    parser = make_parser()
    # The arguments of a command whose extra is missing are not known.
    found, unknown = parser.parse_known_args(arguments)
    args = vars(found)
    command: str | None = args["command"]
    if command is not None and extras.missing(_EXTRAS.get(command, "worker")) and command in _EXTRAS:
        return _refuse(f"activity-worker: {extras.message(command, _EXTRAS[command])}")
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if args["version"]:
        print(f"activity-worker {VERSION}")  # noqa: T201 - what was asked for
        return 0
    if command is None:
        parser.print_usage(sys.stderr)
        return EXIT_USAGE
    try:
        return _run_command(command, args)
    except (SettingsError, UsageError) as error:
        return _refuse(f"activity-worker: {error}")
    except KeyboardInterrupt:
        return EXIT_ERROR


def _run_command(command: str, args: Mapping[str, Any]) -> int:
    # Imported late, so that a usage error and --help answer at once.
    match command:
        case "steps":
            from activity_worker.steps.cli import main as steps  # noqa: PLC0415

            return steps.main(dict(args))
        case "flows":
            from activity_worker.flows import cli as flows  # noqa: PLC0415

            return flows.main(dict(args))
        case "broker" | "dead-letters":
            from activity_worker.taskbroker.cli import main as taskbroker  # noqa: PLC0415

            return taskbroker.main(args)
        case "conclude":
            from activity_worker.conclusion import cli as conclusion  # noqa: PLC0415

            return conclusion.run(args)
        case "init":
            from activity_worker.cli import init  # noqa: PLC0415

            return init.run(args["folder"], args["name"])
        case "invoke":
            from activity_worker.cli import invoke  # noqa: PLC0415

            return invoke.run(args)
        case "status":
            from activity_worker.cli import status  # noqa: PLC0415

            return status.run(args, os.environ)
        case "dev":
            from activity_worker.cli import dev  # noqa: PLC0415

            return dev.run(args)
    settings = read_settings(args)
    from activity_worker.supervisor.supervisor import run_until_stopped  # noqa: PLC0415

    set_up_logs(settings.logging.format, level=settings.logging.level, keys=settings.log_keys)
    return run_until_stopped(settings)


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)  # noqa: T201 - before logs are set up
    return EXIT_USAGE

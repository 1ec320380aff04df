"""The command line: `activity-worker run [module:function] …`, `… steps …`, `… flows …` and `… --version`."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from activity_worker.config.logging import LOG_FAILURES, LOG_FORMATS, LOG_LEVELS, set_up_logs
from activity_worker.config.reader import SettingsError
from activity_worker.config.settings import DEFAULT_HANDLER, HANDLER_PYTHON, read_settings
from activity_worker.config.sources import ATOMIC, DIALECT
from activity_worker.contract import EXIT_ERROR, EXIT_USAGE, Env

_STEP_FUNCTIONS = (
    ("activity-arn", "ARN", f"the activity to poll (environment: {Env.ACTIVITY_ARN})"),
    ("region", "REGION", f"default: the ARN's (environment: {Env.REGION})"),
    ("endpoint-url", "URL", f"another Step Functions, such as an emulator (environment: {Env.ENDPOINT_URL})"),
    ("profile", "NAME", "a profile of the AWS configuration (environment: AWS_PROFILE)"),
)
_REDIS = (
    ("redis-url", "URL", f"the server; with a password better as {Env.REDIS_URL} than as a flag"),
    ("redis-flow", "NAME", f"the flow that the jobs belong to (environment: {Env.REDIS_FLOW})"),
    ("redis-queue", "NAME", f"the queue to work on (environment: {Env.REDIS_QUEUE})"),
    ("redis-attributes", "A,B", f"fields of a job that the handler gets (environment: {Env.REDIS_ATTRIBUTES})"),
    ("redis-next-queue", "NAME", f"where a job goes that does not say so (environment: {Env.REDIS_NEXT_QUEUE})"),
    ("redis-lock-seconds", "SECONDS", f"a job is this worker's for; default 180 (env.: {Env.REDIS_LOCK_SECONDS})"),
    ("redis-renew-lock", "true|false", f"prolong it while the handler works (env.: {Env.REDIS_RENEW_LOCK})"),
    ("redis-conclude", "HOW", f"{DIALECT} (default) or {ATOMIC} (environment: {Env.REDIS_CONCLUDE})"),
)
_TASK_STORE = (
    ("store-url", "URL", f"the task store; with a password better as {Env.STORE_URL} than as a flag"),
    ("store-lease-seconds", "SECONDS", f"an instance is this worker's for; default 60 ({Env.STORE_LEASE_SECONDS})"),
)
_WORKER = (
    ("slots", "N", f"tasks at a time, a process each; default 1 (environment: {Env.SLOTS})"),
    ("handler-python", "PATH", f"interpreter of the handler's environment; default: this one (env.: {HANDLER_PYTHON})"),
    ("name", "NAME", f"prefix of the worker names that Step Functions shows (environment: {Env.POD_NAME})"),
    ("task-heartbeat-seconds", "SECONDS", f"between task heartbeats; default 10 (env.: {Env.TASK_HEARTBEAT_SECONDS})"),
    ("task-deadline-seconds", "SECONDS", f"kill a handler after it; default never (env.: {Env.TASK_DEADLINE_SECONDS})"),
    ("drain-timeout-seconds", "SECONDS", f"to finish after SIGTERM; default 1800 (env.: {Env.DRAIN_TIMEOUT_SECONDS})"),
    ("health-port", "PORT", f"for /livez /readyz /metrics; default none (environment: {Env.HEALTH_PORT})"),
    ("log-level", "LEVEL", f"{', '.join(LOG_LEVELS)}; default info (environment: {Env.LOG_LEVEL})"),
    ("log-format", "FORMAT", f"{', '.join(LOG_FORMATS)}; auto is text on a terminal, else json ({Env.LOG_FORMAT})"),
    ("log-failures", "HOW", f"{', '.join(LOG_FAILURES)}: how much a failed task's line says ({Env.LOG_FAILURES})"),
)
_GROUPS = (
    ("tasks of a Step Functions activity", _STEP_FUNCTIONS),
    ("jobs of a Redis queue", _REDIS),
    ("instances of durable multi-step tasks", _TASK_STORE),
    ("the worker", _WORKER),
)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; it leaves values as text, because settings words the errors."""
    parser = argparse.ArgumentParser(prog="activity-worker", description="Run a handler on the tasks of a source.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_steps(commands)
    _add_flows(commands)
    run = commands.add_parser("run", help="poll, run the handler, conclude; until SIGTERM or Ctrl-C")
    run.add_argument(
        "handler",
        nargs="?",
        metavar="module:function",
        help=f"the handler, with a task store a Tasks object (environment: {Env.HANDLER}; default {DEFAULT_HANDLER})",
    )
    for title, flags in _GROUPS:
        group = run.add_argument_group(title)
        for name, value, text in flags:
            group.add_argument(f"--{name}", dest=name, metavar=value, help=text)
    return parser


def _add_steps(commands: Any) -> None:
    """Add `steps` where its extra is installed."""
    if importlib.util.find_spec("sqlalchemy") is not None:
        from activity_worker.steps.cli.parser import add_parser  # noqa: PLC0415

        add_parser(commands)


def _add_flows(commands: Any) -> None:
    """Add `flows` where its extra is installed."""
    if importlib.util.find_spec("hiredis") is not None:
        from activity_worker.flows.parser import add_parser  # noqa: PLC0415

        add_parser(commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, 1 (error), 2 (usage)."""
    parser = make_parser()
    args = vars(parser.parse_args(arguments))
    if args["command"] == "steps":
        from activity_worker.steps.cli import main as steps  # noqa: PLC0415 - needs the extra of that name

        return steps.main(args)
    if args["command"] == "flows":
        from activity_worker.flows import cli as flows  # noqa: PLC0415 - needs the extra redis

        return flows.main(args)
    # Imported late, so that a usage error and --help answer at once.
    from activity_worker.supervisor.supervisor import run_until_stopped, version  # noqa: PLC0415

    if args["version"]:
        print(f"activity-worker {version()}")  # noqa: T201 - what was asked for
        return 0
    if args["command"] is None:
        parser.print_usage(sys.stderr)
        return EXIT_USAGE
    try:
        settings = read_settings(args)
    except SettingsError as error:
        print(f"activity-worker: {error}", file=sys.stderr)  # noqa: T201 - before logs are set up
        return EXIT_USAGE
    set_up_logs(settings.logging.format, level=settings.logging.level, keys=settings.log_keys)
    try:
        return run_until_stopped(settings)
    except SettingsError as error:
        print(f"activity-worker: {error}", file=sys.stderr)  # noqa: T201 - as above
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_ERROR

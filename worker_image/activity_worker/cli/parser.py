"""The arguments of every command."""

import argparse
from collections.abc import Iterable
from typing import Any

from activity_worker.conclusion.parser import add_conclude
from activity_worker.config import extras
from activity_worker.config.logging import LOG_FAILURES, LOG_FORMATS, LOG_LEVELS
from activity_worker.config.settings import DEFAULT_HANDLER, HANDLER_PYTHON, MAX_TASKS_PER_PROCESS
from activity_worker.config.sources import ATOMIC, DEFAULT_PUSH_ADDRESS, DIALECT
from activity_worker.contract import Env

_STEP_FUNCTIONS = (
    ("activity-arn", "ARN", f"the activity to poll (environment: {Env.ACTIVITY_ARN})"),
    ("region", "REGION", f"default: the ARN's (environment: {Env.REGION})"),
    ("endpoint-url", "URL", f"an emulator, say (environment: {Env.ENDPOINT_URL}, {Env.SWF_ENDPOINT_URL})"),
    ("profile", "NAME", "a profile of the AWS configuration (environment: AWS_PROFILE)"),
)
_SWF = (
    ("swf-domain", "NAME", f"the domain (environment: {Env.SWF_DOMAIN})"),
    ("swf-task-list", "NAME", f"the task list to poll (environment: {Env.SWF_TASK_LIST})"),
    ("swf-register-activity-types", "true|false", f"register them at the start; default false ({Env.SWF_REGISTER})"),
)
_REDIS = (
    ("redis-url", "URL", f"the server; with a password better as {Env.REDIS_URL} than as a flag"),
    ("redis-flow", "NAME", f"the flow that the jobs belong to (environment: {Env.REDIS_FLOW})"),
    ("redis-queue", "NAME", f"the queue to work on (environment: {Env.REDIS_QUEUE})"),
    ("redis-attributes", "A,B", f"fields of a job that the handler gets (environment: {Env.REDIS_ATTRIBUTES})"),
    ("redis-next-queue", "NAME", f"where a job goes that does not say so (environment: {Env.REDIS_NEXT_QUEUE})"),
    ("redis-lock-seconds", "SECONDS", f"a job is this worker's for; default 180 (env.: {Env.REDIS_LOCK_SECONDS})"),
    ("redis-renew-lock", "true|false", f"prolong it while the handler works (env.: {Env.REDIS_RENEW_LOCK})"),
    ("redis-block-seconds", "SECONDS", f"a poll waits so long for a job; default 3 (env.: {Env.REDIS_BLOCK_SECONDS})"),
    ("redis-conclude", "HOW", f"{DIALECT} (default) or {ATOMIC} (environment: {Env.REDIS_CONCLUDE})"),
)
_TASK_STORE = (
    ("store-url", "URL", f"the task store; with a password better as {Env.STORE_URL} than as a flag"),
    ("store-lease-seconds", "SECONDS", f"an instance is this worker's for; default 60 ({Env.STORE_LEASE_SECONDS})"),
)
_TASKBROKER = (
    ("taskbroker", "HOST:PORT,...", f"the brokers (environment: {Env.TASKBROKER})"),
    ("taskbroker-application", "NAME", f"tasks of this one; default every one ({Env.TASKBROKER_APPLICATION})"),
    ("taskbroker-namespace", "NAME", f"tasks of this one; default every one ({Env.TASKBROKER_NAMESPACE})"),
    ("taskbroker-secrets-file", "FILE", f"a JSON list of secrets; the list itself as {Env.TASKBROKER_SECRETS}"),
    ("taskbroker-tls", "true|false", f"whether the brokers speak TLS; default: with a CA ({Env.TASKBROKER_TLS})"),
    ("taskbroker-ca-file", "FILE", f"the brokers' CA in PEM; the PEM itself as {Env.TASKBROKER_CA}"),
    (
        "taskbroker-delivery",
        "pull|push",
        f"ask for tasks, or listen for pushes; default pull ({Env.TASKBROKER_DELIVERY})",
    ),
    (
        "taskbroker-push-address",
        "HOST:PORT",
        f"for pushes; default {DEFAULT_PUSH_ADDRESS} ({Env.TASKBROKER_PUSH_ADDRESS})",
    ),
    ("taskbroker-advertise", "HOST", f"register as this host; default: do not ({Env.TASKBROKER_ADVERTISE})"),
    (
        "taskbroker-push-certificate-file",
        "FILE",
        f"a chain; the PEM as {Env.TASKBROKER_PUSH_CERTIFICATE}; default no TLS",
    ),
    ("taskbroker-push-key-file", "FILE", f"its key in PEM; the PEM itself as {Env.TASKBROKER_PUSH_KEY}"),
)
_HANDLER_PYTHON = (
    "handler-python",
    "PATH",
    f"interpreter of the handler's environment; default: this one (environment: {HANDLER_PYTHON})",
)
_DEADLINE = (
    "task-deadline-seconds",
    "SECONDS",
    f"kill a handler after it; default never (env.: {Env.TASK_DEADLINE_SECONDS})",
)
_REGION = ("region", "REGION", f"the AWS region of the handler's clients (environment: {Env.REGION})")
_ACTIVITY = ("activity", "NAME", "the activity that the tasks are of, for a registry of several; default: dev")
_LOG_LEVEL = ("log-level", "LEVEL", f"{', '.join(LOG_LEVELS)}; default info (environment: {Env.LOG_LEVEL})")
#: Of the commands that run a handler without a source of its own.
_HANDLER = (_LOG_LEVEL, _ACTIVITY, _REGION, _DEADLINE, _HANDLER_PYTHON)
_WORKER = (
    ("slots", "N", f"tasks at a time, a process each; default 1 (environment: {Env.SLOTS})"),
    _HANDLER_PYTHON,
    ("name", "NAME", f"prefix of the worker names that Step Functions shows (environment: {Env.POD_NAME})"),
    ("task-heartbeat-seconds", "SECONDS", f"between task heartbeats; default 10 (env.: {Env.TASK_HEARTBEAT_SECONDS})"),
    _DEADLINE,
    ("drain-timeout-seconds", "SECONDS", f"to finish after SIGTERM; default 1800 (env.: {Env.DRAIN_TIMEOUT_SECONDS})"),
    (
        "cancel-grace-seconds",
        "SECONDS",
        f"for a cancelled handler to end; default 5 (env.: {Env.CANCEL_GRACE_SECONDS})",
    ),
    ("on-error", "fail|leave", f"a task whose handler raised: fail it (default), or leave it (env.: {Env.ON_ERROR})"),
    ("poll-attempts", "N", f"failed polls in a row that end the worker; 0: any number (env.: {Env.POLL_ATTEMPTS})"),
    ("poll-max-pause-seconds", "SECONDS", f"between failed polls; default 30 (env.: {Env.POLL_MAX_PAUSE_SECONDS})"),
    ("max-tasks-per-process", "N", f"replace a handler's process after N; default never ({MAX_TASKS_PER_PROCESS})"),
    ("health-port", "PORT", f"for /livez /readyz /metrics; default none (environment: {Env.HEALTH_PORT})"),
    _LOG_LEVEL,
    ("log-format", "FORMAT", f"{', '.join(LOG_FORMATS)}; auto is text on a terminal, else json ({Env.LOG_FORMAT})"),
    ("log-failures", "HOW", f"{', '.join(LOG_FAILURES)}: how much a failed task's line says ({Env.LOG_FAILURES})"),
)
_GROUPS = (
    ("tasks of a Step Functions activity", _STEP_FUNCTIONS),
    ("activity tasks of Amazon SWF; --region, --endpoint-url and --profile as above", _SWF),
    ("jobs of a Redis queue", _REDIS),
    ("instances of durable multi-step tasks", _TASK_STORE),
    ("tasks of a taskbroker", _TASKBROKER),
    ("the worker", _WORKER),
)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; it leaves values as text, because settings words the errors."""
    parser = argparse.ArgumentParser(prog="activity-worker", description="Run a handler on the tasks of a source.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_init(commands)
    _add_invoke(commands)
    _add_dev(commands)
    _add_run(commands)
    _add_status(commands)
    _add_steps(commands)
    _add_flows(commands)
    _add_broker(commands)
    add_conclude(commands)
    return parser


def _add_init(commands: Any) -> None:
    parser = commands.add_parser("init", help="write a handler, its test, its image, its pool and its state machine")
    parser.add_argument("folder", metavar="DIR", help="a folder that is new or empty")
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="of the activity and of the pool; default: the folder's"
    )


def _add_invoke(commands: Any) -> None:
    parser = commands.add_parser("invoke", help="call the handler once, as a worker does, and print its output")
    _add_handler(parser)
    parser.add_argument("input", nargs="?", metavar="JSON", help="the task's input; default: standard input")
    parser.add_argument("--input-file", dest="input-file", metavar="FILE", help="read the input from a file")
    _add_flags(parser, _HANDLER)


def _add_dev(commands: Any) -> None:
    parser = commands.add_parser(
        "dev",
        help="run the handler on inputs that you type, against a local Step Functions; reload it when it is saved",
    )
    _add_handler(parser)
    parser.add_argument(
        "--input-file", dest="input-file", metavar="FILE", action="append", default=[], help="an input; may be repeated"
    )
    parser.add_argument("--port", metavar="PORT", default="0", help="of the local Step Functions; default: a free one")
    _add_flags(parser, _HANDLER)


def _add_run(commands: Any) -> None:
    parser = commands.add_parser("run", help="poll, run the handler, conclude; until SIGTERM or Ctrl-C")
    _add_handler(parser)
    for title, flags in _GROUPS:
        _add_flags(parser.add_argument_group(title), flags)


def _add_status(commands: Any) -> None:
    parser = commands.add_parser(
        "status", help="print the running tasks of a worker on this machine, with the details of their last heartbeats"
    )
    _add_flags(parser, (("health-port", "PORT", f"as the worker has it (environment: {Env.HEALTH_PORT})"),))
    parser.add_argument("--json", action="store_true", help="print the page /tasks as it is")


def _add_handler(parser: Any) -> None:
    parser.add_argument(
        "handler",
        nargs="?",
        metavar="module:function",
        help=f"the handler, with a task store a Tasks object (environment: {Env.HANDLER}; default {DEFAULT_HANDLER})",
    )


def _add_flags(parser: Any, flags: Iterable[tuple[str, str, str]]) -> None:
    for name, value, text in flags:
        parser.add_argument(f"--{name}", dest=name, metavar=value, help=text)


def _add_steps(commands: Any) -> None:
    """Add `steps`: with its arguments where its extra is installed, else so that it names the extra."""
    if extras.missing("steps"):
        commands.add_parser("steps", add_help=False, help=f"durable tasks of several steps; {extras.fix('steps')}")
        return
    from activity_worker.steps.cli.parser import add_parser  # noqa: PLC0415 - needs the extra

    add_parser(commands)


def _add_flows(commands: Any) -> None:
    """Add `flows`: with its arguments where its extra is installed, else so that it names the extra."""
    if extras.missing("redis"):
        commands.add_parser("flows", add_help=False, help=f"flows of Redis queues; {extras.fix('redis')}")
        return
    from activity_worker.flows.parser import add_parser  # noqa: PLC0415 - needs the extra

    add_parser(commands)


def _add_broker(commands: Any) -> None:
    """Add `broker` and `dead-letters`: with arguments where their extra is installed, else so that they name it."""
    if extras.missing("taskbroker"):
        for name, text in (("broker", "a taskbroker"), ("dead-letters", "failed tasks that a broker keeps")):
            commands.add_parser(name, add_help=False, help=f"{text}; {extras.fix('taskbroker')}")
        return
    from activity_worker.taskbroker.cli.parser import add_parser  # noqa: PLC0415 - needs the extra

    add_parser(commands)

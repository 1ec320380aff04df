"""All settings: flags first, then the environment, read once into one frozen `WorkerSettings`.

In a pod the operator sets the environment (`contract.Env`); on a laptop flags do. A value that cannot be used raises
`SettingsError`, which names where the value came from, the value and what to write instead.
"""

import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from activity_worker.config.logging import LOG_FAILURES, LOG_FORMATS, LOG_LEVELS, LogSettings
from activity_worker.config.reader import SettingsError, SettingsReader
from activity_worker.config.sources import (
    SourceSettings,
    StepFunctionsSettings,
    aws_environment,
    longest_heartbeat,
    longest_task,
    read_source,
)
from activity_worker.contract import DEFAULT_CANCEL_GRACE_SECONDS, Env

__all__ = ["ReportSettings", "SettingsError", "WorkerSettings", "read_settings"]

DEFAULT_HANDLER = "handler:handle"
#: The interpreter of the handler's environment. The image sets it; the operator does not.
HANDLER_PYTHON = "ACTIVITY_HANDLER_PYTHON"
DEFAULT_SLOTS = 1
DEFAULT_TASK_HEARTBEAT_SECONDS = 10.0
DEFAULT_DRAIN_TIMEOUT_SECONDS = 1800.0
DEFAULT_POLL_MAX_PAUSE_SECONDS = 30.0
#: A variable that the operator leaves to the user's podTemplate.
MAX_TASKS_PER_PROCESS = "ACTIVITY_MAX_TASKS_PER_PROCESS"
#: What becomes of the task of a handler that raised: it is failed, or left to its time-out.
ON_ERROR_CHOICES = ("fail", "leave")
MAX_SLOTS = 1000
#: The service's own limit on `workerName`; eight characters are kept for the slot's suffix.
MAX_NAME_LENGTH = 72

_ACTIVITY = re.compile(r"[^\s:]{1,80}")
_HANDLER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """The operator's URL, and the pod's identity.

    The token's file is read for every report, the CA's file after each change.
    """

    url: str
    token_file: Path | None
    ca_file: Path | None
    namespace: str
    pool: str
    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What one `activity-worker run` does. Times are in seconds.

    `task_deadline_seconds` None means no hard deadline; `health_port` None means no health server, 0 any free port;
    `report` None means that the worker runs without an operator, as on a laptop. `handler_python` is the interpreter of
    the handler's environment; empty: the worker's own. `poll_attempts` is how many polls in a row may fail: 0 for any
    number, None for 5, in a pod for any number. A handler's process is replaced after `max_tasks_per_process` tasks;
    None: never.
    """

    source: SourceSettings
    handler: str = DEFAULT_HANDLER
    handler_python: str = ""
    slots: int = DEFAULT_SLOTS
    name: str = "activity-worker"
    task_heartbeat_seconds: float = DEFAULT_TASK_HEARTBEAT_SECONDS
    task_deadline_seconds: float | None = None
    drain_timeout_seconds: float = DEFAULT_DRAIN_TIMEOUT_SECONDS
    health_port: int | None = None
    logging: LogSettings = field(default_factory=LogSettings)
    report: ReportSettings | None = None
    cancel_grace_seconds: float = DEFAULT_CANCEL_GRACE_SECONDS
    on_error: str = "fail"
    poll_attempts: int | None = None
    poll_max_pause_seconds: float = DEFAULT_POLL_MAX_PAUSE_SECONDS
    max_tasks_per_process: int | None = None

    @property
    def log_keys(self) -> dict[str, str]:
        """What each log line of a worker in a pool has."""
        if self.report is None:
            return {}
        return {"namespace": self.report.namespace, "pool": self.report.pool, "worker": self.name}


def read_settings(flags: Mapping[str, str | None], env: Mapping[str, str] | None = None) -> WorkerSettings:
    """Read flags (by their long names without dashes, as typed) over the environment; raises `SettingsError`."""
    read = SettingsReader(flags, os.environ if env is None else env)
    source = read_source(read)
    heartbeat = read.seconds("task-heartbeat-seconds", Env.TASK_HEARTBEAT_SECONDS, DEFAULT_TASK_HEARTBEAT_SECONDS, 0.1)
    return WorkerSettings(
        source=source,
        handler=_read_handler(read),
        handler_python=_read_python(read),
        slots=read.count("slots", Env.SLOTS, DEFAULT_SLOTS, 1, MAX_SLOTS) or DEFAULT_SLOTS,
        name=(read.text("name", Env.POD_NAME) or socket.gethostname() or "activity-worker")[:MAX_NAME_LENGTH],
        task_heartbeat_seconds=longest_heartbeat(source, heartbeat or DEFAULT_TASK_HEARTBEAT_SECONDS),
        task_deadline_seconds=longest_task(source, _read_deadline(read)),
        drain_timeout_seconds=read.seconds(
            "drain-timeout-seconds", Env.DRAIN_TIMEOUT_SECONDS, DEFAULT_DRAIN_TIMEOUT_SECONDS, 0.0
        )
        or 0.0,
        health_port=read.count("health-port", Env.HEALTH_PORT, None, 0, 65535),
        logging=LogSettings(
            level=read.choice("log-level", "info", LOG_LEVELS, Env.LOG_LEVEL),
            format=read.choice("log-format", "auto", LOG_FORMATS, Env.LOG_FORMAT),
            failures=read.choice("log-failures", "traceback", LOG_FAILURES, Env.LOG_FAILURES),
        ),
        report=_read_report(read),
        cancel_grace_seconds=_or_default(
            read.seconds("cancel-grace-seconds", Env.CANCEL_GRACE_SECONDS, None, 0.0), DEFAULT_CANCEL_GRACE_SECONDS
        ),
        on_error=read.choice("on-error", "fail", ON_ERROR_CHOICES, Env.ON_ERROR),
        poll_attempts=read.count("poll-attempts", Env.POLL_ATTEMPTS, None, 0, 1000),
        poll_max_pause_seconds=_or_default(
            read.seconds("poll-max-pause-seconds", Env.POLL_MAX_PAUSE_SECONDS, None, 1.0),
            DEFAULT_POLL_MAX_PAUSE_SECONDS,
        ),
        max_tasks_per_process=read.count("max-tasks-per-process", MAX_TASKS_PER_PROCESS, None, 1, 999_999_999),
    )


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How `invoke` and `dev` run a handler: its interpreter (empty: this one), its variables and its deadline.

    `activity` is the name of the activity that the tasks are of, by which a registry finds its function.
    """

    handler: str
    python: str
    environment: Mapping[str, str]
    deadline_seconds: float | None
    activity: str = "dev"
    logging: LogSettings = field(default_factory=LogSettings)


def read_call_settings(flags: Mapping[str, str | None], env: Mapping[str, str] | None = None) -> CallSettings:
    """Read the settings of a call, which needs no source; raises `SettingsError`."""
    variables = os.environ if env is None else env
    read = SettingsReader(flags, variables)
    region = read.text("region", Env.REGION)
    # A person reads these lines, on a terminal or not.
    logs = LogSettings(level=read.choice("log-level", "info", LOG_LEVELS, Env.LOG_LEVEL), format="text")
    return CallSettings(
        handler=_read_handler(read),
        python=_read_python(read),
        environment=aws_environment(StepFunctionsSettings("", region), variables) | logs.environment(),
        deadline_seconds=_read_deadline(read),
        logging=logs,
        activity=read.matching("activity", "", _ACTIVITY, "an activity's name", "dev"),
    )


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def _read_handler(read: SettingsReader) -> str:
    return read.matching("handler", Env.HANDLER, _HANDLER, "module:function, such as handler:handle", DEFAULT_HANDLER)


def _read_deadline(read: SettingsReader) -> float | None:
    # The operator sets 0 in the environment of a pod for "no deadline".
    return read.seconds("task-deadline-seconds", Env.TASK_DEADLINE_SECONDS, None, 0.0) or None


def _read_python(read: SettingsReader) -> str:
    value, origin = read.find("handler-python", HANDLER_PYTHON)
    if value is not None and shutil.which(value) is None:
        raise SettingsError(f"{origin}={value!r}: expected a Python interpreter, such as /opt/handler/bin/python3")
    return value or ""


def _read_report(read: SettingsReader) -> ReportSettings | None:
    url = read.url("report-url", Env.REPORT_URL)
    if url is None:
        return None
    named = {env: read.text("", env) for env in (Env.POD_NAMESPACE, Env.POOL, Env.POD_NAME, Env.POD_UID)}
    missing = [env.value for env, value in named.items() if not value]
    if missing:
        raise SettingsError(f"{Env.REPORT_URL}={url!r} needs {', '.join(missing)} too: set them, or unset the URL")
    token, ca = read.text("", Env.REPORT_TOKEN_FILE), read.text("", Env.REPORT_CA_FILE)
    return ReportSettings(
        url=url.rstrip("/"),
        token_file=Path(token) if token else None,
        ca_file=Path(ca) if ca else None,
        namespace=named[Env.POD_NAMESPACE] or "",
        pool=named[Env.POOL] or "",
        pod_name=named[Env.POD_NAME] or "",
        pod_uid=named[Env.POD_UID] or "",
    )

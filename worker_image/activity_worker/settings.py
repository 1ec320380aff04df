"""Everything that can be set from outside: flags first, then the environment, read once into one frozen `Settings`.

In a pod the operator sets the environment (`contract.Env`); on a laptop flags do. A value that cannot be used raises
`SettingsError`, which names where the value came from, the value and what to write instead.
"""

import math
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from activity_worker.contract import Env

DEFAULT_HANDLER = "handler:handle"
DEFAULT_SLOTS = 1
DEFAULT_TASK_HEARTBEAT_SECONDS = 10.0
DEFAULT_DRAIN_TIMEOUT_SECONDS = 1800.0
MAX_SLOTS = 1000
#: The service's own limit on `workerName`; eight characters are kept for the slot's suffix.
MAX_NAME_LENGTH = 72
LOG_FORMATS = ("auto", "text", "json")

_ARN = re.compile(r"arn:aws[a-z-]*:states:(?P<region>[a-z0-9-]+):[0-9]{12}:activity:[^\s:]{1,80}")
_HANDLER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class SettingsError(ValueError):
    """A setting cannot be used. The message names its flag or variable, the value and the fix."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Where and as whom a pod reports to the operator. Files are read again at every report, because they rotate."""

    url: str
    token_file: Path | None
    ca_file: Path | None
    namespace: str
    pool: str
    pod_name: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What one `activity-worker run` does. Times are in seconds.

    `task_deadline_seconds` None means no hard deadline; `health_port` None means no health server, 0 any free port;
    `report` None means that no operator is there (a laptop). `region` falls back to the one in the ARN.
    """

    activity_arn: str
    handler: str = DEFAULT_HANDLER
    slots: int = DEFAULT_SLOTS
    name: str = "activity-worker"
    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    task_heartbeat_seconds: float = DEFAULT_TASK_HEARTBEAT_SECONDS
    task_deadline_seconds: float | None = None
    drain_timeout_seconds: float = DEFAULT_DRAIN_TIMEOUT_SECONDS
    health_port: int | None = None
    log_format: str = "auto"
    report: ReportSettings | None = None


class _Reader:
    """Finds each value, remembers where it came from, and words the error."""

    def __init__(self, flags: Mapping[str, str | None], env: Mapping[str, str]) -> None:
        self._flags = flags
        self._env = env

    def find(self, flag: str, env: str) -> tuple[str | None, str]:
        """Return the value (None when unset or empty) and its origin as a person writes it."""
        value = self._flags.get(flag)
        if value is not None:
            return value, f"--{flag}"
        return self._env.get(env) or None, env or f"--{flag}"

    def text(self, flag: str, env: str = "") -> str | None:
        """Return the value as it is."""
        return self.find(flag, env)[0]

    def matching(self, flag: str, env: str, pattern: re.Pattern[str], expected: str, default: str = "") -> str:
        """Return the value if all of it matches; raises `SettingsError`."""
        found, origin = self.find(flag, env)
        value = found or default
        if not value:
            raise SettingsError(f"no value for --{flag}: expected {expected}; pass --{flag} or set {env}")
        if not pattern.fullmatch(value):
            raise SettingsError(f"{origin}={value!r}: expected {expected}")
        return value

    def count(self, flag: str, env: str, default: int | None, least: int, most: int) -> int | None:
        """Return a whole number within bounds; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is None:
            return default
        if not re.fullmatch(r"[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise SettingsError(f"{origin}={value!r}: expected a whole number from {least} to {most}")
        return int(value)

    def seconds(self, flag: str, env: str, default: float | None, least: float) -> float | None:
        """Return a finite number of seconds; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not least <= number < 1e9:
            raise SettingsError(f"{origin}={value!r}: expected seconds, a number of at least {least:g}, such as 30")
        return number

    def url(self, flag: str, env: str) -> str | None:
        """Return an http or https URL; raises `SettingsError`."""
        value, origin = self.find(flag, env)
        if value is not None and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", value):
            raise SettingsError(f"{origin}={value!r}: expected a URL such as https://host:port")
        return value

    def choice(self, flag: str, default: str, choices: tuple[str, ...]) -> str:
        """Return one of `choices`; raises `SettingsError`."""
        value, origin = self.find(flag, "")
        if value is not None and value not in choices:
            raise SettingsError(f"{origin}={value!r}: expected one of {', '.join(choices)}")
        return value or default


def region_of(arn: str) -> str | None:
    """Return the region that an activity ARN names, or None if `arn` is not one."""
    match = _ARN.fullmatch(arn)
    return match["region"] if match else None


def read_settings(flags: Mapping[str, str | None], env: Mapping[str, str] | None = None) -> Settings:
    """Read flags (by their long names without dashes, as typed) over the environment; raises `SettingsError`."""
    read = _Reader(flags, os.environ if env is None else env)
    arn = read.matching(
        "activity-arn",
        Env.ACTIVITY_ARN,
        _ARN,
        "an activity ARN such as arn:aws:states:us-east-1:123456789012:activity:NAME",
    )
    return Settings(
        activity_arn=arn,
        handler=read.matching(
            "handler", Env.HANDLER, _HANDLER, "module:function, such as handler:handle", DEFAULT_HANDLER
        ),
        slots=read.count("slots", Env.SLOTS, DEFAULT_SLOTS, 1, MAX_SLOTS) or DEFAULT_SLOTS,
        name=(read.text("name", Env.POD_NAME) or socket.gethostname() or "activity-worker")[:MAX_NAME_LENGTH],
        region=read.text("region", Env.REGION) or region_of(arn),
        endpoint_url=read.url("endpoint-url", Env.ENDPOINT_URL),
        profile=read.text("profile", "AWS_PROFILE"),
        task_heartbeat_seconds=read.seconds(
            "task-heartbeat-seconds", Env.TASK_HEARTBEAT_SECONDS, DEFAULT_TASK_HEARTBEAT_SECONDS, 0.1
        )
        or DEFAULT_TASK_HEARTBEAT_SECONDS,
        # 0 is how the environment of a pod says "no deadline".
        task_deadline_seconds=read.seconds("task-deadline-seconds", Env.TASK_DEADLINE_SECONDS, None, 0.0) or None,
        drain_timeout_seconds=read.seconds(
            "drain-timeout-seconds", Env.DRAIN_TIMEOUT_SECONDS, DEFAULT_DRAIN_TIMEOUT_SECONDS, 0.0
        )
        or 0.0,
        health_port=read.count("health-port", Env.HEALTH_PORT, None, 0, 65535),
        log_format=read.choice("log-format", "auto", LOG_FORMATS),
        report=_read_report(read),
    )


def _read_report(read: _Reader) -> ReportSettings | None:
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

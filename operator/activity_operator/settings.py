"""The operator's settings: each from a flag, else from an environment variable, else its default."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


class OperatorSettingsError(ValueError):
    """A setting is invalid; the text names the variable, its value and the fix."""


@dataclass(frozen=True, slots=True)
class _From:
    """A setting's environment variable, its help text, and its limits."""

    variable: str
    text: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


def _setting(default: Any, variable: str, text: str, **limits: Any) -> Any:
    return field(default=default, metadata={"from": _From(variable, text, **limits)})


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The settings of this process. Times are seconds; port 0 means that the system chooses a free port."""

    namespace: str = _setting("activitypool-system", "POD_NAMESPACE", "the operator's own namespace")
    pod_name: str = _setting("", "POD_NAME", "this pod; without it the leader's label is not set")
    kubeconfig: str = _setting("", "KUBECONFIG", "a kubeconfig file; without it the pod's ServiceAccount is used")
    lease_name: str = _setting(
        "activity-operator", "ACTIVITYPOOL_LEASE_NAME", "the Lease that the replicas compete for"
    )
    lease_duration_seconds: float = _setting(
        15.0,
        "ACTIVITYPOOL_LEASE_DURATION_SECONDS",
        "how long an unrenewed Lease keeps the others away",
        low=3,
        high=300,
    )
    lease_renew_deadline_seconds: float = _setting(
        10.0, "ACTIVITYPOOL_LEASE_RENEW_DEADLINE_SECONDS", "when a holder that cannot renew gives up", low=1, high=300
    )
    lease_retry_seconds: float = _setting(
        2.0, "ACTIVITYPOOL_LEASE_RETRY_SECONDS", "how often the Lease is written", low=0.2, high=60
    )
    sweep_seconds: float = _setting(
        300.0,
        "ACTIVITYPOOL_SWEEP_SECONDS",
        "how often all objects are listed, to find missed deletions",
        low=1,
        high=3600,
    )
    watch_grace_seconds: float = _setting(
        100.0,
        "ACTIVITYPOOL_WATCH_GRACE_SECONDS",
        "how long a known change may be missing from a watch before the watch is dead",
        low=1,
        high=3600,
    )
    reconcile_workers: int = _setting(
        8, "ACTIVITYPOOL_RECONCILE_WORKERS", "how many pools are reconciled concurrently", low=1, high=64
    )
    health_port: int = _setting(8080, "ACTIVITYPOOL_HEALTH_PORT", "/livez, /readyz and /metrics", low=0, high=65535)
    health_host: str = _setting("0.0.0.0", "ACTIVITYPOOL_HEALTH_HOST", "address for the health port")  # noqa: S104
    report_port: int = _setting(8443, "ACTIVITYPOOL_REPORT_PORT", "where workers report, HTTPS", low=0, high=65535)
    report_host: str = _setting("0.0.0.0", "ACTIVITYPOOL_REPORT_HOST", "address for the report port")  # noqa: S104
    report_service: str = _setting(
        "activity-operator-reports", "ACTIVITYPOOL_REPORT_SERVICE", "the Service that selects the leader's report port"
    )
    report_service_port: int = _setting(
        443, "ACTIVITYPOOL_REPORT_SERVICE_PORT", "the Service's port", low=1, high=65535
    )
    report_rate: float = _setting(
        200.0, "ACTIVITYPOOL_REPORT_RATE", "reports a second from all workers together", low=1, high=10000
    )
    report_connections: int = _setting(
        22_000,
        "ACTIVITYPOOL_REPORT_CONNECTIONS",
        "open connections on the report port: one of each worker, and a tenth more; 22000 is for 20000 workers",
        low=64,
        high=100_000,
    )
    status_rate: float = _setting(
        50.0,
        "ACTIVITYPOOL_STATUS_RATE",
        "writes of statuses a second for all pools together, conditions before counts",
        low=1,
        high=1000,
    )
    held_leases: int = _setting(
        500, "ACTIVITYPOOL_HELD_LEASES", "how many leases are held for all pools together", low=1, high=1000
    )
    held_leases_mib: int = _setting(
        32, "ACTIVITYPOOL_HELD_LEASES_MIB", "MiB of payloads and tokens held for all pools together", low=1, high=256
    )
    redis_count_seconds: float = _setting(
        0.1, "ACTIVITYPOOL_REDIS_COUNT_SECONDS", "how often the queues of a Redis server are counted", low=0.02, high=60
    )
    swf_counts_per_second: float = _setting(
        5.0,
        "ACTIVITYPOOL_SWF_COUNTS_PER_SECOND",
        "calls of CountPendingActivityTasks a second in an account and a region; Amazon SWF allows 6 to all programs",
        low=0.1,
        high=1000,
    )
    swf_count_seconds: float = _setting(
        0.35, "ACTIVITYPOOL_SWF_COUNT_SECONDS", "how often one task list of Amazon SWF is counted", low=0.1, high=60
    )
    tenancy_file: str = _setting("", "ACTIVITYPOOL_TENANCY_FILE", "the tenancy policy, YAML; without it the default")
    cluster_name: str = _setting(
        "cluster", "ACTIVITYPOOL_CLUSTER_NAME", "first half of the external id with which roles are assumed"
    )
    stop_seconds: float = _setting(
        75.0, "ACTIVITYPOOL_STOP_SECONDS", "how long open polls are awaited at the end", low=0, high=600
    )
    log_level: str = _setting(
        "INFO", "ACTIVITYPOOL_LOG_LEVEL", "which lines are logged", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    log_format: str = _setting("json", "ACTIVITYPOOL_LOG_FORMAT", "how they look", choices=("json", "text"))

    def __post_init__(self) -> None:
        if not self.lease_retry_seconds < self.lease_renew_deadline_seconds < self.lease_duration_seconds:
            raise OperatorSettingsError(
                f"ACTIVITYPOOL_LEASE_RENEW_DEADLINE_SECONDS {self.lease_renew_deadline_seconds:g}: set it above the "
                f"retry ({self.lease_retry_seconds:g}) and below the duration ({self.lease_duration_seconds:g})"
            )

    @property
    def report_url(self) -> str:
        """The URL for reports in the workers' environment."""
        port = "" if self.report_service_port == 443 else f":{self.report_service_port}"
        return f"https://{self.report_service}.{self.namespace}.svc{port}"

    @classmethod
    def read(cls, arguments: Sequence[str], environment: Mapping[str, str]) -> Self:
        """Return the settings from flags and environment; raises `OperatorSettingsError`. `--help` exits."""
        flags = vars(_parser().parse_args(list(arguments)))
        values: dict[str, Any] = {}
        for each in dataclasses.fields(cls):
            source: _From = each.metadata["from"]
            text = flags[each.name] if flags[each.name] is not None else environment.get(source.variable)
            if text is not None and text != "":
                values[each.name] = _convert(text, each.default, source)
        return cls(**values)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="activity-operator", description="Keeps the right number of activity workers.", allow_abbrev=False
    )
    for each in dataclasses.fields(OperatorSettings):
        source: _From = each.metadata["from"]
        text = f"{source.text} ({source.variable}, default {each.default!r})".replace("%", "%%")
        parser.add_argument(f"--{each.name.replace('_', '-')}", dest=each.name, metavar="VALUE", help=text)
    return parser


def _convert(text: str, default: Any, source: _From) -> Any:
    if source.choices:
        if text not in source.choices:
            raise OperatorSettingsError(f"{source.variable} '{text}': use one of {', '.join(source.choices)}")
        return text
    if isinstance(default, str):
        return text
    kind: Callable[[str], float] = int if isinstance(default, int) else float
    try:
        value = kind(text)
    except ValueError:
        raise OperatorSettingsError(f"{source.variable} '{text}': use a {_noun(default)}") from None
    low, high = source.low, source.high
    if low is not None and high is not None and not low <= value <= high:
        raise OperatorSettingsError(f"{source.variable} '{text}': use a {_noun(default)} from {low:g} to {high:g}")
    return value


def _noun(default: Any) -> str:
    return "whole number" if isinstance(default, int) else "number"

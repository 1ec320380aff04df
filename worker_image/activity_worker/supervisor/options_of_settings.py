"""PURE: a worker's settings as the options of its slots."""

from dataclasses import dataclass, replace

from activity_worker.config.settings import WorkerSettings
from activity_worker.contract import pod_grace_seconds
from activity_worker.runtime.options import Polling, TaskOptions

#: The share of a cancelled task's grace after which its child is killed, so that its failure is sent within the grace.
CHILD_GRACE_SHARE = 0.8
#: Seconds of the pod's grace period that are left when no task is concluded any more: for the last report (at most
#: 10 s), the ends of the handlers' processes (5 s), and the worker's own.
END_SECONDS = 20.0
#: Seconds that an open poll takes at most, with some to spare: 76 (Step Functions).
OPEN_POLL_SECONDS = 78.0


def polling_of(settings: WorkerSettings) -> Polling:
    """Return the retry of polls.

    In a pod, polls are retried for ever by default, because the operator reports the error. On a terminal it ends the
    worker.
    """
    polling = Polling.forever() if settings.report else Polling()
    polling = replace(polling, max_sleep_seconds=settings.poll_max_pause_seconds)
    if settings.poll_attempts is None:
        return polling
    return replace(polling, max_attempts=settings.poll_attempts or None)


def task_options_of(settings: WorkerSettings, heartbeat_seconds: float) -> TaskOptions:
    """Return the options of tasks; `heartbeat_seconds` is what the source allows."""
    return TaskOptions(
        heartbeat_seconds=heartbeat_seconds,
        deadline_seconds=settings.task_deadline_seconds,
        on_error="leave" if settings.on_error == "leave" else "fail",
        cancel_grace_seconds=settings.cancel_grace_seconds,
    )


@dataclass(frozen=True, slots=True)
class StopLimits:
    """Until when a stopping worker lets tasks run, concludes them, and waits for open polls."""

    run_until: float
    concluded_until: float
    polled_until: float


def stop_limits_of(settings: WorkerSettings, began: float) -> StopLimits:
    """Return the limits of a stop that began at that time: tasks are concluded as long as a pod's grace period allows.

    A worker outside a pod has the same limits. A second Ctrl-C on a terminal ends it at once.
    """
    grace = pod_grace_seconds(settings.drain_timeout_seconds, settings.cancel_grace_seconds)
    concluded = began + grace - END_SECONDS
    return StopLimits(began + settings.drain_timeout_seconds, concluded, max(concluded, began + OPEN_POLL_SECONDS))

"""Settings of a worker become the options of its slots."""

import pytest

from activity_worker.config.settings import WorkerSettings, read_settings
from activity_worker.config.sources import RedisSettings
from activity_worker.contract import Env
from activity_worker.supervisor.options_of_settings import StopLimits, polling_of, stop_limits_of, task_options_of

ARN = "arn:aws:states:eu-west-1:123456789012:activity:resize"
IN_A_POD = {
    Env.REPORT_URL: "https://operator.example:8443",
    Env.POD_NAMESPACE: "shop",
    Env.POOL: "resize",
    Env.POD_NAME: "resize-1",
    Env.POD_UID: "0a1b",
}


def settings(flags: dict[str, str | None], env: dict[str, str] | None = None) -> WorkerSettings:
    return read_settings({"activity-arn": ARN} | flags, env or {})


@pytest.mark.parametrize(
    ("attempts", "env", "found"),
    [(None, {}, 5), (None, IN_A_POD, None), ("2", {}, 2), ("2", IN_A_POD, 2), ("0", {}, None)],
)
def test_polls_are_retried_as_often_as_asked(attempts: str | None, env: dict[str, str], found: int | None) -> None:
    polling = polling_of(settings({"poll-attempts": attempts, "poll-max-pause-seconds": "7"}, env))

    assert (polling.max_attempts, polling.max_sleep_seconds) == (found, 7.0)


def test_policy_for_errors_and_grace_reach_the_tasks() -> None:
    asked = settings({"on-error": "leave"}, {"ACTIVITY_CANCEL_GRACE_SECONDS": "0"})

    options = task_options_of(asked, heartbeat_seconds=3.0)

    assert (options.on_error, options.cancel_grace_seconds, options.heartbeat_seconds) == ("leave", 0.0, 3.0)


def test_tasks_are_concluded_as_long_as_the_grace_period_of_a_pod_allows() -> None:
    long = settings({"drain-timeout-seconds": "30"}, {"ACTIVITY_CANCEL_GRACE_SECONDS": "65"})

    assert stop_limits_of(settings({"drain-timeout-seconds": "30"}), 5.0) == StopLimits(35.0, 105.0, 105.0)
    assert stop_limits_of(long, 5.0) == StopLimits(35.0, 165.0, 165.0)
    assert stop_limits_of(settings({"drain-timeout-seconds": "0"}), 5.0) == StopLimits(5.0, 75.0, 83.0)


def test_time_that_a_poll_waits_on_redis_is_a_setting() -> None:
    flags = {"redis-url": "redis://r", "redis-flow": "f", "redis-queue": "q", "redis-block-seconds": "0.5"}

    source = read_settings(flags, {}).source

    assert isinstance(source, RedisSettings)
    assert source.block_seconds == 0.5

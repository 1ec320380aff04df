"""Settings of a worker, and the messages for values that cannot be used."""

import pytest

from activity_worker.config.reader import SettingsError
from activity_worker.config.settings import read_settings
from activity_worker.config.sources import RedisSettings, StepFunctionsSettings, TaskStoreSettings, aws_environment
from activity_worker.contract import Env

ARN = "arn:aws:states:eu-west-1:123456789012:activity:resize"
REPORTING: dict[str, str] = {
    Env.ACTIVITY_ARN: ARN,
    Env.REPORT_URL: "https://operator.example:8443/",
    Env.POD_NAMESPACE: "shop",
    Env.POOL: "resize",
    Env.POD_NAME: "resize-1-abc",
    Env.POD_UID: "0a1b",
}


def test_arn_is_the_only_required_setting() -> None:
    settings = read_settings({"activity-arn": ARN}, {})

    assert (
        settings.handler,
        settings.slots,
        settings.source,
        settings.report,
    ) == ("handler:handle", 1, StepFunctionsSettings(ARN, "eu-west-1"), None)


def test_flag_beats_the_environment() -> None:
    settings = read_settings({"activity-arn": ARN, "slots": "4"}, {Env.SLOTS: "2"})

    assert settings.slots == 4


def test_pod_is_configured_by_its_environment_alone() -> None:
    env: dict[str, str] = {**REPORTING, Env.HANDLER: "app.work:run", Env.SLOTS: "3", Env.TASK_DEADLINE_SECONDS: "0"}

    settings = read_settings({}, env)

    assert settings.report is not None
    assert (
        settings.handler,
        settings.slots,
        settings.task_deadline_seconds,
        settings.name,
        settings.report.url,
    ) == ("app.work:run", 3, None, "resize-1-abc", "https://operator.example:8443")


def test_arn_of_step_functions_local_is_accepted() -> None:
    settings = read_settings({"activity-arn": "arn:aws:states:local:0123456789:activity:q"}, {})
    assert settings.source == StepFunctionsSettings("arn:aws:states:local:0123456789:activity:q", "local")


def test_region_setting_beats_the_region_of_the_arn() -> None:
    settings = read_settings({"activity-arn": ARN}, {Env.REGION: "us-east-2"})

    assert settings.source == StepFunctionsSettings(ARN, "us-east-2")


def test_redis_source_is_read_and_its_password_hidden() -> None:
    env: dict[str, str] = {
        Env.REDIS_URL: "rediss://:secret@redis:6379/2",
        Env.REDIS_FLOW: "images",
        Env.REDIS_QUEUE: "resize",
        Env.REDIS_ATTRIBUTES: "url,size",
        Env.REDIS_RENEW_LOCK: "true",
    }

    settings = read_settings({}, env)

    assert settings.source == RedisSettings(
        env[Env.REDIS_URL], "images", "resize", ("url", "size"), lock_seconds=180, renew_lock=True
    )
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("env", "deadline", "heartbeat"),
    [
        ({}, 180.0, 10.0),
        ({Env.REDIS_LOCK_SECONDS: "15"}, 15.0, 5.0),
        ({Env.REDIS_LOCK_SECONDS: "15", Env.TASK_DEADLINE_SECONDS: "4", Env.TASK_HEARTBEAT_SECONDS: "1"}, 4.0, 1.0),
        ({Env.REDIS_RENEW_LOCK: "true", Env.REDIS_LOCK_SECONDS: "15"}, None, 5.0),
    ],
)
def test_redis_jobs_deadline_and_heartbeats_follow_its_lock(
    env: dict[str, str], deadline: float | None, heartbeat: float
) -> None:
    named: dict[str, str] = {Env.REDIS_URL: "redis://r", Env.REDIS_FLOW: "images", Env.REDIS_QUEUE: "resize"}

    settings = read_settings({}, {**named, **env})

    assert (settings.task_deadline_seconds, settings.task_heartbeat_seconds) == (deadline, heartbeat)


def test_invalid_redis_url_is_refused_without_its_password() -> None:
    with pytest.raises(SettingsError, match="--redis-url: the Redis URL's hosts") as caught:
        read_settings({"redis-url": "redis://u:secret/x@h", "redis-flow": "f", "redis-queue": "q"}, {})

    assert "secret" not in str(caught.value)


def test_task_store_source_is_read_and_its_password_hidden() -> None:
    settings = read_settings({"store-url": "postgresql://tasks:secret@db/tasks"}, {})

    assert settings.source == TaskStoreSettings("postgresql://tasks:secret@db/tasks")
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://u:s3cret@h/db", "a task store is a database at sqlite:///FILE or postgresql://USER@HOST/NAME"),
        ("s3cret", "a task store is a database at sqlite:///FILE or postgresql://USER@HOST/NAME"),
        ("postgresql://u:s3cret#x@h/db", "has a # or a second @: percent-encode"),
        ("postgresql://u:s3cret@h/db?ssl=1", "the option ssl is not known"),
    ],
)
def test_invalid_url_of_a_task_store_is_refused_without_its_password(url: str, words: str) -> None:
    for flags, env, origin in (({"store-url": url}, {}, "--store-url"), ({}, {Env.STORE_URL: url}, Env.STORE_URL)):
        with pytest.raises(SettingsError) as caught:
            read_settings(flags, env)  # type: ignore[arg-type]

        assert str(caught.value).startswith(f"{origin}: ")
        assert words in str(caught.value)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "env", "fragments"),
    [
        ({}, {}, ["--activity-arn", Env.ACTIVITY_ARN]),
        ({"activity-arn": "arn:aws:sqs:eu-west-1:123456789012:q"}, {}, ["--activity-arn", "sqs", "activity ARN"]),
        ({"activity-arn": ARN}, {Env.REDIS_URL: "redis://r"}, ["--activity-arn and", Env.REDIS_URL, "keep one"]),
        ({"redis-url": "redis://r", "redis-flow": "f"}, {}, ["--redis-queue", Env.REDIS_QUEUE, "name of the queue"]),
        ({"store-url": "x", "store-lease-seconds": "0"}, {}, ["--store-lease-seconds", "'0'", "at least 1"]),
        ({"activity-arn": ARN}, {Env.SLOTS: "0"}, [Env.SLOTS, "'0'", "1 to 1000"]),
        ({"activity-arn": ARN, "slots": "many"}, {}, ["--slots", "'many'", "1 to 1000"]),
        ({"activity-arn": ARN, "handler": "handler.py"}, {}, ["--handler", "handler.py", "module:function"]),
        ({"activity-arn": ARN}, {Env.DRAIN_TIMEOUT_SECONDS: "5m"}, [Env.DRAIN_TIMEOUT_SECONDS, "'5m'", "seconds"]),
        ({"activity-arn": ARN}, {Env.TASK_HEARTBEAT_SECONDS: "nan"}, [Env.TASK_HEARTBEAT_SECONDS, "'nan'"]),
        ({"activity-arn": ARN, "endpoint-url": "localhost:4566"}, {}, ["--endpoint-url", "localhost:4566", "https://"]),
        ({"activity-arn": ARN, "log-format": "xml"}, {}, ["--log-format", "xml", "json"]),
        ({}, {**REPORTING, Env.POOL: ""}, [Env.REPORT_URL, Env.POOL]),
    ],
)
def test_error_of_an_invalid_value_names_its_origin_and_the_fix(
    flags: dict[str, str | None], env: dict[str, str], fragments: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(flags, env)

    assert [word for word in fragments if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1"}),
        ({"AWS_DEFAULT_REGION": "us-west-2"}, {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-west-2"}),
    ],
)
def test_handler_gets_the_region_of_the_activity(env: dict[str, str], found: dict[str, str]) -> None:
    source = StepFunctionsSettings("arn:aws:states:eu-west-1:123456789012:activity:a", region="eu-west-1")

    assert aws_environment(source, env) == found


def test_handler_of_a_queue_gets_the_region_that_the_worker_has() -> None:
    source = RedisSettings(url="redis://x", flow="f", queue="q")

    assert aws_environment(source, {"AWS_REGION": "eu-west-1"})["AWS_DEFAULT_REGION"] == "eu-west-1"
    assert aws_environment(source, {}) == {}

"""From settings to a source. What a source needs is imported when it is chosen: it takes long, or is an extra."""

from activity_worker.config import extras
from activity_worker.config.reader import SettingsError
from activity_worker.config.sources import (
    ATOMIC,
    PUSH,
    RedisSettings,
    SourceSettings,
    StepFunctionsSettings,
    SwfSettings,
    TaskbrokerSettings,
    TaskStoreSettings,
)
from activity_worker.sources.protocol import Source
from activity_worker.wire.redis_url import parse_redis_url
from activity_worker.wire.store_url import is_sqlite, parse_store_url


async def open_source(settings: SourceSettings) -> Source:
    """Return the source, which is the caller's to close. Raises `SettingsError` when what it needs is not installed."""
    if isinstance(settings, StepFunctionsSettings):
        return _step_functions(settings)
    if isinstance(settings, SwfSettings):
        return _swf(settings)
    if isinstance(settings, TaskStoreSettings):
        return _task_store(settings)
    if isinstance(settings, TaskbrokerSettings):
        return await _taskbroker(settings)
    return _redis(settings)


def source_facts(settings: SourceSettings, source: object) -> dict[str, str]:
    """Return what is polled, and where, for the log: without user names, passwords and options of a URL."""
    if isinstance(settings, StepFunctionsSettings):
        endpoint = getattr(source, "endpoint_url", "") or settings.endpoint_url
        return {"activity": settings.activity_arn} | ({"endpoint": endpoint} if endpoint else {})
    if isinstance(settings, SwfSettings):
        endpoint = getattr(source, "endpoint_url", "") or settings.endpoint_url
        facts = {"domain": settings.domain, "task_list": settings.task_list}
        return facts | ({"endpoint": endpoint} if endpoint else {})
    if isinstance(settings, TaskStoreSettings):
        url = settings.url
        return {"store": url if is_sqlite(url) else parse_store_url(url).shown}
    if isinstance(settings, TaskbrokerSettings):
        facts = {"taskbroker": ",".join(settings.addresses)}
        push = settings.delivery == PUSH
        named = {"application": settings.application, "namespace": settings.namespace}
        named |= {"push_address": settings.push_address, "advertise": settings.advertise} if push else {}
        return facts | {key: value for key, value in named.items() if value}
    return {"flow": settings.flow, "queue": settings.queue, "redis": parse_redis_url(settings.url).shown}


def _require(extra: str, what: str) -> None:
    if extras.missing(extra):
        raise SettingsError(extras.message(what, extra))


def _step_functions(settings: StepFunctionsSettings) -> Source:
    from activity_worker.sources.stepfunctions import StepFunctionsSource  # noqa: PLC0415
    from activity_worker.wire.stepfunctions import StepFunctionsClient  # noqa: PLC0415

    client = StepFunctionsClient.open(
        region=settings.region, endpoint_url=settings.endpoint_url, profile=settings.profile
    )
    return StepFunctionsSource(client, settings.activity_arn, owns_client=True)


def _swf(settings: SwfSettings) -> Source:
    from activity_worker.sources.swf import SwfSource  # noqa: PLC0415
    from activity_worker.wire.swf import SwfClient  # noqa: PLC0415

    client = SwfClient.open(region=settings.region, endpoint_url=settings.endpoint_url, profile=settings.profile)
    return SwfSource(client, settings.domain, settings.task_list, owns_client=True)


def _task_store(settings: TaskStoreSettings) -> Source:
    _require("steps", "a task store")
    from activity_worker.sources.taskstore import TaskStoreSource  # noqa: PLC0415

    return TaskStoreSource(settings)


async def _taskbroker(settings: TaskbrokerSettings) -> Source:
    _require("taskbroker", "a taskbroker")
    if settings.delivery == PUSH:
        from activity_worker.sources.taskbroker_push import TaskbrokerPushSource  # noqa: PLC0415

        try:
            return await TaskbrokerPushSource.open(settings)
        except OSError as error:
            raise SettingsError(f"taskbroker-push-address={error}") from None
    from activity_worker.sources.taskbroker import TaskbrokerSource  # noqa: PLC0415

    return TaskbrokerSource(settings)


def _redis(settings: RedisSettings) -> Source:
    _require("redis", "a Redis queue")
    from activity_worker.sources.redis import RedisSource  # noqa: PLC0415
    from activity_worker.sources.redis_job import RedisQueue  # noqa: PLC0415
    from activity_worker.wire.redis_connection import open_client  # noqa: PLC0415

    queue = RedisQueue(
        flow=settings.flow,
        name=settings.queue,
        attributes=settings.attributes,
        next_queue=settings.next_queue,
        lock_seconds=settings.lock_seconds,
        renew_lock=settings.renew_lock,
        block_seconds=settings.block_seconds,
    )
    try:
        atomic = settings.conclude == ATOMIC
        return RedisSource(open_client(settings.url), queue, atomic=atomic, owns_client=True, recovers=True)
    except ValueError as error:
        raise SettingsError(str(error)) from None

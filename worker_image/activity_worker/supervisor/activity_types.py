"""Registers the activity types of a registry with Amazon SWF when a worker starts, if it is asked to."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from activity_worker.config.settings import WorkerSettings
from activity_worker.config.sources import SwfSettings
from activity_worker.errors import SourceError
from activity_worker.runtime.task_run import conclude
from activity_worker.sources.protocol import Source
from activity_worker.subprocess.process import HandlerUnusableError

if TYPE_CHECKING:
    from activity_worker.wire.swf import ActivityDefaults

#: A worker that misses three heartbeats in a row counts as lost.
MISSED_HEARTBEATS = 3
#: How long a registration that the service cannot take is tried again.
REGISTER_FOR_SECONDS = 60.0

log = logging.getLogger(__name__)


async def register_activity_types(settings: WorkerSettings, source: Source, types: Iterable[tuple[str, str]]) -> None:
    """Register the activity types that have a version. Nothing happens unless `settings` asks for it.

    Raises `HandlerUnusableError` when no activity has a version, and when the service refuses.
    """
    if not (isinstance(settings.source, SwfSettings) and settings.source.register):
        return
    from activity_worker.sources.swf import SwfSource  # noqa: PLC0415 - of no use to workers of other sources

    if not isinstance(source, SwfSource):
        return
    versioned = sorted({(name, version) for name, version in types if version})
    if not versioned:
        raise HandlerUnusableError(
            f"activity types cannot be registered: {settings.handler} has no activity with a version; write "
            '@app.activity(name="...", version="...") or leave --swf-register-activity-types away'
        )
    defaults = default_timeouts(settings, settings.source.task_list)
    added: list[tuple[str, str]] = []

    async def send() -> None:
        added.extend(await source.register(versioned, defaults))

    try:
        await conclude(send, lost=lambda: None, for_seconds=REGISTER_FOR_SECONDS)
    except SourceError as error:
        raise HandlerUnusableError(f"activity types cannot be registered: {error}") from error
    log.info("activity types registered", extra={"facts": {"new": len(added), "known": len(versioned) - len(added)}})


def default_timeouts(settings: WorkerSettings, task_list: str) -> "ActivityDefaults":
    """Return the defaults of the types: lost workers are noticed, and tasks have this worker's deadline, if any.

    A task may wait for a worker for ever, because the pool may have to start one first.
    """
    from activity_worker.wire.swf import ActivityDefaults  # noqa: PLC0415 - as above

    deadline = settings.task_deadline_seconds
    return ActivityDefaults(
        start_to_close_seconds=None if deadline is None else max(round(deadline), 1),
        heartbeat_seconds=max(round(MISSED_HEARTBEATS * settings.task_heartbeat_seconds), 1),
        task_list=task_list,
    )

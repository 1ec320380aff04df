"""The tasks of a worker as its page `/tasks` shows them, to callers in the pod only."""

import asyncio
import time
from typing import Any

from activity_worker.runtime.slot import Slot
from activity_worker.runtime.slot_pool import SlotPool


def running_tasks(pool: SlotPool) -> list[dict[str, Any]]:
    """Return each running task: its names, its seconds, and the details of its handler's last heartbeat."""
    now, monotonic = asyncio.get_running_loop().time(), time.monotonic()
    return [_task(slot, now, monotonic) for slot in pool.members if slot.current is not None]


def _task(slot: Slot, now: float, monotonic: float) -> dict[str, Any]:
    run = slot.current
    assert run is not None  # noqa: S101 - chosen by the caller
    request, progress = run.request, run.respond.progress
    shown: dict[str, Any] = {
        "lease": request.lease_id,
        "task": request.activity,
        "slot": slot.worker_name.rpartition(":")[2],
        "seconds": round(max(now - run.since, 0.0), 3),
        "attempt": request.origin.attempt,
    }
    if request.execution:
        shown["execution"] = request.execution
    if request.origin.state:
        shown["state"] = request.origin.state
    if progress is not None:
        shown["heartbeat"] = {"secondsAgo": round(max(monotonic - progress.at, 0.0), 3), "details": progress.details}
    return shown

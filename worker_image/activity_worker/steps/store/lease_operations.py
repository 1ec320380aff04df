"""Leases that one process holds for another's calls: renewed, and given back when that process has died."""

from typing import Final

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from activity_worker.steps.store.rows import parse_status
from activity_worker.steps.store.task_store import InstanceLeaseLostError, TaskStore
from activity_worker.wire.backoff import pause_after
from activity_worker.wire.taskstore import CHANNEL, INSTANCES

#: Seconds until a lost call is due again; the time doubles with each try, up to the lease's duration.
FIRST_PAUSE_SECONDS: Final = 1.0
#: In an instance's status: its lease was given back, and its runner no longer renews it. The next revision drops it.
GIVEN_BACK: Final = "givenBack"


async def renew(store: TaskStore, instance_id: str, runner: str, until: float) -> None:
    """Move the end of a runner's lease, whichever call runs; no change if none runs, or if it was given back.

    Raises InstanceLeaseLostError if another runner has the instance.
    """
    mine = (INSTANCES.c.id == instance_id, INSTANCES.c.runner == runner)
    status = INSTANCES.c.status
    # A renewal that was sent before the lease was given back may be the later one here.
    held = (status["running"].as_boolean().is_(True), status[GIVEN_BACK].as_boolean().is_not(True))
    async with store.engine.begin() as connection:
        done = await connection.execute(update(INSTANCES).where(*mine, *held).values(next_run_time=until))
        if done.rowcount == 0 and (await connection.execute(select(INSTANCES.c.id).where(*mine))).first() is None:
            raise _lost(instance_id)


async def give_back(store: TaskStore, instance_id: str, runner: str, now: float, lease_seconds: float) -> None:
    """End the lease of a runner whose process is gone, after a pause that grows with each try.

    Its running call counts as lost, unless the process has recorded its outcome all the same. No change if none runs.
    Raises InstanceLeaseLostError.
    """
    mine = (INSTANCES.c.id == instance_id, INSTANCES.c.runner == runner)
    async with store.engine.begin() as connection:
        row = (await connection.execute(select(INSTANCES).where(*mine).with_for_update())).one_or_none()
        if row is None:
            raise _lost(instance_id)
        status = parse_status(row.status)
        if not status.running or row.next_run_time is None:
            return
        tried = status.tries.get(status.sub_step, 0)
        pause = pause_after(tried + 1, first_seconds=FIRST_PAUSE_SECONDS, max_seconds=lease_seconds)
        due = min(row.next_run_time, now + pause)
        given_back = {"next_run_time": due, "status": {**row.status, GIVEN_BACK: True}}
        await connection.execute(update(INSTANCES).where(*mine).values(given_back))
        await _announced(connection, row.task_name)


async def announce(store: TaskStore, task: str) -> None:
    """Have every runner look again: an instance of this task is free for any of them."""
    async with store.engine.begin() as connection:
        await _announced(connection, task)


async def _announced(connection: AsyncConnection, task: str) -> None:
    if connection.dialect.name == "postgresql":
        await connection.execute(text("SELECT pg_notify(:channel, :task)"), {"channel": CHANNEL, "task": task})


def _lost(instance_id: str) -> InstanceLeaseLostError:
    return InstanceLeaseLostError(f"another runner has instance {instance_id}")

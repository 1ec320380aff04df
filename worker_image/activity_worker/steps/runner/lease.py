"""Holding an instance: its lease renewed while a call runs, and what the call came to saved while the lease lasts."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator

from sqlalchemy.exc import SQLAlchemyError

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.instance import Instance
from activity_worker.steps.store.rows import StoredInstance
from activity_worker.steps.store.task_store import InstanceLeaseLostError, TaskStore, Transition

log = logging.getLogger(__name__)

#: Seconds between tries to save an outcome in a store that does not answer.
AGAIN_SECONDS = 1.0


@contextlib.contextmanager
def renewed_lease(
    store: TaskStore, held: StoredInstance, lease_seconds: float, clock: Callable[[], float]
) -> Iterator[None]:
    """Renew the lease three times in it; when it is lost, cancel what runs within. Raises LeaseLostError then."""
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 - a coroutine's
    renewing = asyncio.create_task(_renew(store, held, lease_seconds, clock))
    left, given_up = False, False

    def ended(_: asyncio.Task[None]) -> None:
        nonlocal given_up
        # Called a turn of the loop after the end: the caller may have left meanwhile, and is not to be disturbed.
        if not left and _error(renewing) is not None:
            given_up = True
            caller.cancel()

    renewing.add_done_callback(ended)
    try:
        yield
    except asyncio.CancelledError:
        if not given_up:
            raise
    finally:
        left = True
        renewing.cancel()
    if given_up:
        # Also for a method that ended in spite of being cancelled: what it came to is not ours to record.
        caller.uncancel()
        raise InstanceLeaseLostError(str(_error(renewing)))


async def record_outcome(
    store: TaskStore, held: StoredInstance, turn: Transition, lease_seconds: float, clock: Callable[[], float]
) -> StoredInstance:
    """Save what became of a call, again while the store does not answer and the lease lasts.

    A try that failed may have been saved all the same: then what is there is what we wrote. Raises LeaseLostError.
    """
    written: Instance | None = None

    def noted(definition: Definition, stored: StoredInstance) -> Instance:
        nonlocal written
        written = turn(definition, stored)
        return written

    until = asyncio.get_running_loop().time() + lease_seconds
    tried = False
    while True:
        try:
            return await store.record(held, clock(), noted)
        except InstanceLeaseLostError:
            there = await store.get(held.instance.id) if tried else None
            if there is None or there.revision != held.revision + 1 or there.instance != written:
                raise
            return there
        except (SQLAlchemyError, OSError):
            if asyncio.get_running_loop().time() + AGAIN_SECONDS >= until:
                raise
            tried = True
            log.warning("what instance %s came to could not be saved, again", held.instance.id, exc_info=True)
            await asyncio.sleep(AGAIN_SECONDS)


async def _renew(store: TaskStore, held: StoredInstance, lease_seconds: float, clock: Callable[[], float]) -> None:
    while True:
        await asyncio.sleep(lease_seconds / 3)
        try:
            await store.renew(held, clock() + lease_seconds)
        except InstanceLeaseLostError:
            raise
        except Exception:
            # The lease still runs; the next renewal or the record itself says whether it was kept.
            log.exception("the lease of instance %s could not be renewed", held.instance.id)


def _error(task: "asyncio.Task[None]") -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None

"""The number of due instances by the tables' own rule, to which every other count is compared."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, func, select

from activity_worker.wire.taskstore import INSTANCES, is_due


def count_due(now: float, tasks: Collection[str] = ()) -> Select[Any]:
    """Return the statement that counts due instances: waiting ones, and those whose lease has expired."""
    return select(func.count()).select_from(INSTANCES).where(is_due(now, tasks))

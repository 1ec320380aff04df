"""How many instances are due, as the tables' own rule has it: what every other way of counting is compared with."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Select, func, select

from activity_worker.wire.taskstore import INSTANCES, is_due


def count_due(now: float, tasks: Collection[str] = ()) -> Select[Any]:
    """Return the statement that counts instances due now: waiting ones, and those whose runner fell silent."""
    return select(func.count()).select_from(INSTANCES).where(is_due(now, tasks))

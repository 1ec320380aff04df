"""New instances: the task's default data under the caller's, due now or when it is scheduled."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.definition_parser import SESSION
from activity_worker.steps.model.instance import Instance
from activity_worker.steps.model.paths import merge
from activity_worker.steps.model.storable import as_stored

#: Longest id of an instance, in characters: what the store's column holds.
MAX_ID: Final = 64


def new_id() -> str:
    """Return a new instance's id."""
    return uuid.uuid4().hex


def derived_id(key: str) -> str:
    """Return the id that belongs to a key: the same every time, so that a second instance is not made."""
    return uuid.uuid5(uuid.NAMESPACE_OID, key).hex


def create_instance(
    definition: Definition,
    arguments: Mapping[str, Any],
    *,
    now: float,
    session: Any = None,
    at: float | None = None,
    instance_id: str | None = None,
) -> Instance:
    """Return a new instance; `session` is kept in its data and given to every call, `at` schedules it.

    Raises ValueError when it cannot be stored: arguments that are not JSON, or an id that is too long.
    """
    if instance_id is not None and not 0 < len(instance_id) <= MAX_ID:
        raise ValueError(f"an instance's id has 1 to {MAX_ID} characters, not {len(instance_id)}: derived_id makes one")
    data = merge(dict(definition.data), arguments)
    if session is not None:
        data[SESSION] = session
    try:
        data = as_stored(data)
    except ValueError as error:
        raise ValueError(f"an instance's data is stored as JSON, and this is not: {error}") from None
    return Instance(
        id=instance_id or new_id(),
        task_name=definition.name,
        definition_id=definition.id,
        data=data,
        next_run_time=now if at is None else max(at, now),
    )

"""New instances: the task's default data under the caller's, due now or when it is scheduled."""

import uuid
from collections.abc import Mapping
from typing import Any

from activity_worker.steps.definition import Definition, SubStep
from activity_worker.steps.instance import Instance
from activity_worker.steps.parse import SESSION
from activity_worker.steps.paths import merge


def new_id() -> str:
    """Return a new instance's id."""
    return uuid.uuid4().hex


def child_id(parent: str, step_num: int, sub_step: SubStep) -> str:
    """Return the id of the instance that a step creates: the same at every try, so that a second one is not made."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{parent}/{step_num}/{sub_step}").hex


def instance(
    definition: Definition,
    arguments: Mapping[str, Any],
    *,
    now: float,
    session: Any = None,
    at: float | None = None,
    instance_id: str | None = None,
) -> Instance:
    """Return a new instance; `session` is kept in its data and given to every call, `at` schedules it."""
    data = merge(dict(definition.data), arguments)
    if session is not None:
        data[SESSION] = session
    return Instance(
        id=instance_id or new_id(),
        task_name=definition.name,
        definition_id=definition.id,
        data=data,
        next_run_time=now if at is None else max(at, now),
    )

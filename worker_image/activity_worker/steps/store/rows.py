"""Instances as the store has them, and the rows and JSON that they are read from and written as. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.instance import ErrorRecord, Instance, Status, StepFailure


@dataclass(frozen=True, slots=True)
class StoredInstance:
    """An instance as the store has it. `cancel` says that a person asked for it and it is not yet done."""

    instance: Instance
    revision: int
    runner: str
    cancel: bool
    created: float
    updated: float


@dataclass(frozen=True, slots=True)
class ClaimedInstance:
    """An instance that a runner has taken: as it was `before`, and as it is `held`."""

    before: Instance
    held: StoredInstance


@dataclass(frozen=True, slots=True)
class Revision:
    """One entry of an instance's history; `status` as in `status_record`, `data` None when unchanged."""

    number: int
    at: float
    runner: str
    status: Mapping[str, Any]
    next_run_time: float | None
    data: Mapping[str, Any] | None


def stored_instance(row: Row[Any]) -> StoredInstance:
    """Return what a row of the instances says."""
    instance = Instance(
        id=row.id,
        task_name=row.task_name,
        definition_id=row.definition_id,
        data=row.data,
        next_run_time=row.next_run_time,
        status=parse_status(row.status),
        complete=row.complete,
        success=row.success,
        paused=row.paused,
    )
    return StoredInstance(instance, row.revision, row.runner, row.request == "cancel", row.created, row.updated)


def revision_of(row: Row[Any], definition: Definition) -> Revision:
    """Return what a row of the history says; the step's specification, always the same, is added here."""
    status = with_step(row.status, definition)
    return Revision(row.revision, row.at, row.runner, status, row.next_run_time, row.data)


def new_row(instance: Instance, now: float) -> dict[str, Any]:
    """Return the row of an instance that is created."""
    fixed = {"id": instance.id, "task_name": instance.task_name, "definition_id": instance.definition_id}
    return {
        **fixed,
        **revision_columns(instance),
        "request": "",
        "revision": 1,
        "runner": "",
        "created": now,
        "updated": now,
    }


def revision_columns(instance: Instance) -> dict[str, Any]:
    """Return the columns that a revision may change."""
    return {
        "data": dict(instance.data),
        "status": status_record(instance),
        "next_run_time": instance.next_run_time,
        "complete": instance.complete,
        "success": instance.success,
        "paused": instance.paused,
    }


def history_row(row: Mapping[str, Any], data: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the history's row for a revision that was written as `row`; `data` None says that it has not changed."""
    return {
        "instance_id": row["id"],
        "revision": row["revision"],
        "at": row["updated"],
        "runner": row["runner"],
        "status": row["status"],
        "next_run_time": row["next_run_time"],
        "data": data,
    }


def pending_request(before: StoredInstance, after: Instance) -> str:
    """Return what a person asked for and is not yet done, once an instance has become `after`."""
    return "cancel" if before.cancel and not (after.complete or after.status.success_orig is False) else ""


def status_record(instance: Instance, definition: Definition | None = None) -> dict[str, Any]:
    """Return the status as the text's table has it; with the definition also `step`, the present step as written.

    `done`, `ignored`, `failures` and `round` are ours: which steps stand, which were passed over, every final error,
    and how often a failed instance was started again.
    """
    status = instance.status
    record: dict[str, Any] = {
        "complete": instance.complete,
        "success": instance.success,
        "running": status.running,
        "stepNum": status.step_num,
        "subStep": status.sub_step,
        "retry": status.retry,
        "reverse": status.reverse,
        "successOrig": status.success_orig,
        "try": dict(status.tries),
        "error": {name: _error(error) for name, error in status.errors.items()},
        "done": list(status.done),
        "ignored": list(status.ignored),
        "failures": [
            {
                "stepNum": one.step_num,
                "subStep": one.sub_step,
                "tries": one.tries,
                "error": _error(one.error),
                **({"inDoubt": True} if one.in_doubt else {}),
            }
            for one in status.failures
        ],
    }
    if status.round:
        record["round"] = status.round
    return record if definition is None else with_step(record, definition)


def with_step(record: Mapping[str, Any], definition: Definition) -> dict[str, Any]:
    """Return the status with `step`, the present step as written."""
    number = record.get("stepNum", 0)
    step = {"step": definition.source["steps"][number]} if number < len(definition.steps) else {}
    return {**record, **step}


def parse_status(record: Mapping[str, Any]) -> Status:
    """Return the status of such a record; what is missing has its default."""
    return Status(
        step_num=record.get("stepNum", 0),
        sub_step=record.get("subStep", "method"),
        running=record.get("running", False),
        retry=record.get("retry", False),
        reverse=record.get("reverse", False),
        tries=dict(record.get("try") or {}),
        errors={name: _parse_error(error) for name, error in (record.get("error") or {}).items()},
        success_orig=record.get("successOrig"),
        done=tuple(record.get("done") or ()),
        ignored=tuple(record.get("ignored") or ()),
        failures=tuple(
            StepFailure(
                one["stepNum"], one["subStep"], one["tries"], _parse_error(one["error"]), one.get("inDoubt", False)
            )
            for one in record.get("failures") or ()
        ),
        round=record.get("round", 0),
    )


def _error(error: ErrorRecord) -> dict[str, Any]:
    shown: dict[str, Any] = {"code": error.code, "message": error.message, "data": error.data, "stack": error.stack}
    return {**shown, "final": True} if error.final else shown


def _parse_error(record: Mapping[str, Any]) -> ErrorRecord:
    return ErrorRecord(
        record.get("code", ""),
        record.get("message", ""),
        record.get("data"),
        record.get("stack", ""),
        record.get("final", False),
    )

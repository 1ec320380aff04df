"""A status as plain JSON data: stored, shown and kept as history."""

from collections.abc import Mapping
from typing import Any

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.instance import ErrorRecord, Instance, Status, StepFailure


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
            {"stepNum": one.step_num, "subStep": one.sub_step, "tries": one.tries, "error": _error(one.error)}
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
            StepFailure(one["stepNum"], one["subStep"], one["tries"], _parse_error(one["error"]))
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

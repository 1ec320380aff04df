"""Instances and their histories as JSON data for programs: one form for all commands. Times are Unix seconds. Pure."""

from collections.abc import Sequence
from typing import Any

from activity_worker.steps.cli import text
from activity_worker.steps.model.definition import Definition
from activity_worker.steps.store.rows import Revision, StoredInstance, status_record


def instance(stored: StoredInstance) -> dict[str, Any]:
    """Return an instance without its data; `state` is the word that the tables show."""
    this = stored.instance
    return {
        "id": this.id,
        "task": this.task_name,
        "version": this.definition_id,
        "state": text.state(stored),
        "paused": this.paused,
        "cancelRequested": stored.cancel,
        "nextRunTime": this.next_run_time,
        "revision": stored.revision,
        "runner": stored.runner,
        "created": stored.created,
        "updated": stored.updated,
        "status": status_record(this),
    }


def instance_with_steps(stored: StoredInstance, definition: Definition, history: Sequence[Revision]) -> dict[str, Any]:
    """Return an instance with its data and what became of each step."""
    steps = [
        {
            "stepNum": one.number,
            "method": one.method,
            "state": one.state,
            "calls": dict(one.calls),
            "began": one.began,
            "ended": one.ended,
            "error": None if one.error is None else {"code": one.error.code, "message": one.error.message},
        }
        for one in text.step_summaries(stored, definition, history)
    ]
    return {**instance(stored), "data": dict(stored.instance.data), "steps": steps}


def revision(one: Revision) -> dict[str, Any]:
    """Return a revision; `data` is null where it is as in the revision before."""
    return {
        "revision": one.number,
        "at": one.at,
        "runner": one.runner,
        "nextRunTime": one.next_run_time,
        "status": dict(one.status),
        "data": None if one.data is None else dict(one.data),
    }

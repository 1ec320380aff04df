"""What a call is given, and what of its answer is kept."""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_worker.steps.model import paths
from activity_worker.steps.model.definition import Call, Step, SubStep
from activity_worker.steps.model.definition_parser import SESSION
from activity_worker.steps.model.instance import ErrorRecord, Instance


def of(step: Step, instance: Instance) -> dict[str, Any]:
    """Return the arguments of the call that an instance stands before.

    The nearest input map counts: the call's own, that of the call it checks, that of the step's method; without any,
    all of the task's data. The session is always there, and for an error method and its check the error.
    """
    sub_step = instance.status.sub_step
    pairs = next((call.input for call in _nearest(step, sub_step) if call.input is not None), None)
    given = dict(instance.data) if pairs is None else paths.mapped(instance.data, pairs)
    if SESSION in instance.data:
        given[SESSION] = instance.data[SESSION]
    if sub_step in {"error", "errorCheck"} and instance.status.failures:
        given["error"] = error_argument(instance.status.failures[-1].error)
    return given


def merged(data: Mapping[str, Any], call: Call, sub_step: SubStep, value: Any) -> dict[str, Any]:
    """Return the task's data with what a call returned.

    An output map picks; without one a step's method merges all it returned, if that is a map, and the others nothing.
    The session stays what it was when the instance was created.
    """
    if call.output is not None:
        return paths.placed(dict(data), value, call.output)
    if sub_step != "method" or not isinstance(value, Mapping):
        return dict(data)
    return paths.merge(dict(data), {name: held for name, held in value.items() if name != SESSION})


def error_argument(error: ErrorRecord) -> dict[str, Any]:
    """Return an error as methods see it."""
    return {"code": error.code, "message": error.message, "data": error.data, "stack": error.stack}


def _nearest(step: Step, sub_step: SubStep) -> Iterator[Call]:
    names: Mapping[SubStep, tuple[SubStep, ...]] = {
        "check": ("check", "method"),
        "errorCheck": ("errorCheck", "error", "method"),
        "reverseCheck": ("reverseCheck", "reverse", "method"),
    }
    for name in names.get(sub_step, (sub_step, "method")):
        if (call := step.call(name)) is not None:
            yield call

"""The rules of multi-step tasks: one instance, one outcome, one moment, one answer. No clock, no I/O.

A call is saved as running before it is made and its outcome after. `plan` says which call comes next and with which
arguments, `begin` marks it, `advance` takes in what became of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from activity_worker.steps.model import paths
from activity_worker.steps.model.definition import CHECK_OF, CHECKED, Call, Definition, Step, SubStep
from activity_worker.steps.model.definition_parser import SESSION
from activity_worker.steps.model.instance import (
    CANCELED,
    ErrorRecord,
    Instance,
    Lost,
    Outcome,
    Raised,
    Returned,
    Status,
    StepFailure,
)


def arguments_of(step: Step, instance: Instance) -> dict[str, Any]:
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
        given["error"] = _error_argument(instance.status.failures[-1].error)
    return given


def merged_data(data: Mapping[str, Any], call: Call, sub_step: SubStep, value: Any) -> dict[str, Any]:
    """Return the task's data with what a call returned.

    An output map picks; without one a step's method merges all it returned, if that is a map, and the others nothing.
    The session stays what it was when the instance was created.
    """
    if call.output is not None:
        return paths.placed(dict(data), value, call.output)
    if sub_step != "method" or not isinstance(value, Mapping):
        return dict(data)
    return paths.merge(dict(data), {name: held for name, held in value.items() if name != SESSION})


def _error_argument(error: ErrorRecord) -> dict[str, Any]:
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


#: Times a call may be lost with its runner, where its own retries say nothing: a call that kills every runner must end.
LOST_RETRIES: Final = 8
_LOST: Final = ErrorRecord("RunnerLost", "the runner did not say how the call ended before its lease was over")


@dataclass(frozen=True, slots=True)
class Planned:
    """The next call: which sub-step of which step, the method's name and its arguments."""

    step_num: int
    sub_step: SubStep
    call: Call
    arguments: dict[str, Any]


def plan(definition: Definition, instance: Instance) -> Planned:
    """Return the call that an instance stands before; it must not be complete."""
    status = instance.status
    step = definition.steps[status.step_num]
    call = _call(step, status.sub_step)
    return Planned(status.step_num, status.sub_step, call, arguments_of(step, instance))


def begin(instance: Instance, now: float, lease_seconds: float) -> Instance:
    """Return the instance with its next call marked as running, until the lease ends."""
    return replace(instance, status=replace(instance.status, running=True), next_run_time=now + lease_seconds)


def advance(definition: Definition, instance: Instance, outcome: Outcome, now: float) -> Instance:
    """Return the instance after the call that was running, ready for the next one or complete."""
    instance = replace(instance, status=replace(instance.status, running=False))
    sub_step = instance.status.sub_step
    match outcome:
        case Returned(value=value) if sub_step in CHECKED:
            return _checked(definition, instance, CHECKED[sub_step], value, now)
        case Returned(value=value):
            return _completed(definition, _merged(definition, instance, value), sub_step, now)
        case Raised(error=error):
            return _failed(definition, instance, error, now)
        case Lost():
            return _lost(definition, instance, now)


def cancel(definition: Definition, instance: Instance, now: float, why: str = "canceled") -> Instance:
    """Return the instance on its way back: completed steps are reversed. Nothing changes once that has begun.

    A call that may have been made without our knowing is made certain of first, or nothing would take it back.
    """
    if instance.complete or instance.status.reverse or instance.status.running:
        return instance
    if _in_doubt(definition, instance):
        asked = instance.status.sub_step in instance.status.tries
        return instance if asked else replace(instance, next_run_time=now)
    canceled = _recorded(instance, ErrorRecord(CANCELED, why))
    return _reverse_from(definition, canceled, success=False, now=now)


def retry_failed(definition: Definition, instance: Instance, now: float) -> Instance:
    """Return a failed instance started again from its failed step; steps that were taken back are done again."""
    if not instance.complete or instance.success:
        return instance
    passed = {*instance.status.done, *instance.status.ignored}
    number = next(n for n in range(len(definition.steps)) if n not in passed)
    old = instance.status
    status = Status(step_num=number, done=old.done, ignored=old.ignored, round=old.round + 1)
    return replace(instance, status=status, complete=False, paused=False, next_run_time=now)


def _in_doubt(definition: Definition, instance: Instance) -> bool:
    """Whether a step's method may have been made: its check has not run yet, or the call was lost and has no check."""
    status = instance.status
    if status.sub_step == "check":
        return True
    step, last = definition.steps[status.step_num], status.errors.get("method")
    lost = status.sub_step == "method" and status.retry and last is not None and last.code == _LOST.code
    return lost and step.method.check is None and step.reverse is not None


def _call(step: Step, sub_step: SubStep) -> Call:
    call = step.call(sub_step)
    if call is None:
        raise LookupError(f"the step has no {sub_step}: the definition is not the one the instance was created with")
    return call


def _merged(definition: Definition, instance: Instance, value: Any) -> Instance:
    step = definition.steps[instance.status.step_num]
    data = merged_data(instance.data, _call(step, instance.status.sub_step), instance.status.sub_step, value)
    return replace(instance, data=data)


def _checked(definition: Definition, instance: Instance, owner: SubStep, value: Any, now: float) -> Instance:
    """A check that returned a value: the call had been made. One that returned None: make it again."""
    if value is not None:
        return _completed(definition, _merged(definition, instance, value), owner, now)
    status = instance.status
    tries = {name: count for name, count in status.tries.items() if name != status.sub_step}
    checked = _call(definition.steps[status.step_num], owner)
    if tries.get(owner, 0) > _lost_retries(checked):
        # The last try was lost: now that it was not made is known, no try is left. It is counted when it is recorded.
        last = replace(status, sub_step=owner, tries={**tries, owner: tries[owner] - 1})
        return _exhausted(definition, replace(instance, status=last), status.errors.get(owner, _LOST), now)
    return replace(instance, status=replace(status, sub_step=owner, tries=tries), next_run_time=now)


def _failed(definition: Definition, instance: Instance, error: ErrorRecord, now: float) -> Instance:
    call = _call(definition.steps[instance.status.step_num], instance.status.sub_step)
    tried = instance.status.tries.get(instance.status.sub_step, 0)
    if call.retry is None or error.final or tried >= call.retry.retries:
        return _exhausted(definition, instance, error, now)
    return _again(instance, call, error, now + call.retry.delay(tried))


def _lost(definition: Definition, instance: Instance, now: float) -> Instance:
    """Never assume that a lost call succeeded: ask its check, or make it again, at once."""
    call = _call(definition.steps[instance.status.step_num], instance.status.sub_step)
    tried = instance.status.tries.get(instance.status.sub_step, 0)
    if tried >= _lost_retries(call) and call.check is None:
        return _exhausted(definition, instance, _LOST, now)
    return _again(instance, call, _LOST, now)


def _lost_retries(call: Call) -> int:
    return LOST_RETRIES if call.retry is None else call.retry.retries


def _again(instance: Instance, call: Call, error: ErrorRecord, at: float) -> Instance:
    """The call once more, its check first if it has one."""
    status = instance.status
    sub_step = status.sub_step
    after = replace(
        status,
        sub_step=CHECK_OF[sub_step] if call.check is not None else sub_step,
        retry=True,
        tries={**status.tries, sub_step: status.tries.get(sub_step, 0) + 1},
        errors={**status.errors, sub_step: error},
    )
    return replace(instance, status=after, next_run_time=at)


def _recorded(instance: Instance, error: ErrorRecord) -> Instance:
    status = instance.status
    sub_step = status.sub_step
    failure = StepFailure(status.step_num, sub_step, status.tries.get(sub_step, 0) + 1, error)
    errors = {**status.errors, sub_step: error}
    return replace(instance, status=replace(status, errors=errors, failures=(*status.failures, failure)))


def _exhausted(definition: Definition, instance: Instance, error: ErrorRecord, now: float) -> Instance:
    """No more tries. A check that failed for good ends what it checks: that is not tried again."""
    sub_step = instance.status.sub_step
    owner = CHECKED.get(sub_step, sub_step)
    instance = _recorded(instance, error)
    if owner == "reverse":
        return _next_reverse(definition, instance, now)
    if owner == "method" and definition.steps[instance.status.step_num].error is not None:
        return replace(instance, status=replace(instance.status, sub_step="error", retry=False), next_run_time=now)
    return _after_error(definition, instance, handled=False, now=now)


def _completed(definition: Definition, instance: Instance, sub_step: SubStep, now: float) -> Instance:
    number = instance.status.step_num
    done = instance.status.done
    if sub_step == "method":
        return _forward(definition, replace(instance, status=replace(instance.status, done=(*done, number))), now)
    if sub_step == "error":
        return _after_error(definition, instance, handled=True, now=now)
    kept = tuple(n for n in done if n != number)
    return _next_reverse(definition, replace(instance, status=replace(instance.status, done=kept)), now)


def _after_error(definition: Definition, instance: Instance, *, handled: bool, now: float) -> Instance:
    status = instance.status
    if definition.steps[status.step_num].ignore_error:
        ignored = replace(status, ignored=(*status.ignored, status.step_num))
        return _forward(definition, replace(instance, status=ignored), now)
    return _reverse_from(definition, instance, success=handled, now=now)


def _forward(definition: Definition, instance: Instance, now: float) -> Instance:
    """The first step that is neither done nor passed over; after a retry of a failed instance, steps ahead may be."""
    passed = {*instance.status.done, *instance.status.ignored}
    following = next((n for n in range(instance.status.step_num, len(definition.steps)) if n not in passed), None)
    if following is None:
        return _finished(instance, success=True)
    return _at(instance, following, "method", now)


def _reverse_from(definition: Definition, instance: Instance, *, success: bool, now: float) -> Instance:
    """Take back every completed step that can be, the newest first."""
    status = replace(instance.status, success_orig=success)
    return _next_reverse(definition, replace(instance, status=status), now, below=len(definition.steps))


def _next_reverse(definition: Definition, instance: Instance, now: float, *, below: int | None = None) -> Instance:
    """The reverse of the newest completed step below a step, the present one unless another is given."""
    status = instance.status
    limit = status.step_num if below is None else below
    behind = [n for n in status.done if n < limit and definition.steps[n].reverse is not None]
    if behind:
        return _at(replace(instance, status=replace(status, reverse=True)), max(behind), "reverse", now)
    failed = any(failure.sub_step in {"reverse", "reverseCheck"} for failure in status.failures)
    return _finished(instance, success=bool(status.success_orig) and not failed)


def _at(instance: Instance, number: int, sub_step: SubStep, now: float) -> Instance:
    status = replace(instance.status, step_num=number, sub_step=sub_step, retry=False, tries={}, errors={})
    return replace(instance, status=status, next_run_time=now)


def _finished(instance: Instance, *, success: bool) -> Instance:
    status = replace(instance.status, retry=False)
    return replace(instance, status=status, complete=True, success=success, next_run_time=None)

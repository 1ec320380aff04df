"""PURE: the rules of multi-step tasks: which call comes next, and what its outcome changes in the instance.

A call is stored as running before it is made, and its outcome after it. `plan` returns the next call with its
arguments, `begin` marks it as running, and `advance` applies its outcome.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from activity_worker.steps.model import paths
from activity_worker.steps.model.definition import CHECK_OF, CHECKED, Call, Definition, Step, SubStep
from activity_worker.steps.model.definition_parser import SESSION
from activity_worker.steps.model.instance import (
    CANCELED,
    LOST,
    ErrorRecord,
    Instance,
    Lost,
    Outcome,
    Raised,
    Returned,
    Status,
    StepFailure,
)
from activity_worker.steps.model.storable import MAX_DEPTH, NOT_JSON, max_depth_exceeded


def arguments_of(step: Step, instance: Instance) -> dict[str, Any]:
    """Return the arguments of an instance's next call.

    The first input map that exists picks them from the task's data: that of the call, of the call that it checks, of
    the step's method. Without an input map all of the data is passed. The session is always passed, and an error method
    and its check also get the error.
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
    """Return the task's data with a call's return value merged into it.

    An output map picks what is merged. Without one, a map that a step's method returned is merged whole, and the return
    values of all other calls are dropped. The session never changes.
    """
    if call.output is not None:
        return paths.placed(dict(data), value, call.output)
    if sub_step != "method" or not isinstance(value, Mapping):
        return dict(data)
    return paths.merge(dict(data), {name: held for name, held in value.items() if name != SESSION})


def _error_argument(error: ErrorRecord) -> dict[str, Any]:
    """Return the argument `error` of an error method."""
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


#: Retries of a lost call whose definition has no `retry`. The limit ends a call that kills every runner.
LOST_RETRIES: Final = 8
_LOST: Final = ErrorRecord(LOST, "the runner did not say how the call ended before its lease was over")


@dataclass(frozen=True, slots=True)
class Planned:
    """The next call: which sub-step of which step, the method's name and its arguments."""

    step_num: int
    sub_step: SubStep
    call: Call
    arguments: dict[str, Any]


def plan(definition: Definition, instance: Instance) -> Planned:
    """Return the next call of an instance that is not complete."""
    status = instance.status
    step = definition.steps[status.step_num]
    call = _call(step, status.sub_step)
    return Planned(status.step_num, status.sub_step, call, arguments_of(step, instance))


def begin(instance: Instance, now: float, lease_seconds: float) -> Instance:
    """Return the instance with its next call marked as running, until the lease ends."""
    return replace(instance, status=replace(instance.status, running=True), next_run_time=now + lease_seconds)


def advance(
    definition: Definition, instance: Instance, outcome: Outcome, now: float, *, canceled: bool = False
) -> Instance:
    """Return the instance after the call that was running, ready for the next one or complete.

    `canceled`: a person asked to cancel it, so it does not succeed.
    """
    instance = replace(instance, status=replace(instance.status, running=False))
    if canceled and instance.status.reverse:
        instance = _reversing_for_cancel(instance)
    turn = _Turn(definition, now, canceled=canceled)
    sub_step = instance.status.sub_step
    match outcome:
        case Returned(value=value):
            return _returned(turn, instance, sub_step, value)
        case Raised(error=error):
            return _failed(turn, instance, error)
        case Lost():
            return _lost(turn, instance)


def cancel(definition: Definition, instance: Instance, now: float, why: str = "canceled") -> Instance:
    """Return the instance as canceled: its completed steps are reversed next. Nothing changes while a call runs.

    A call whose outcome is unknown is settled first: its check is called, or the call is made again if it has a
    reverse. If that has no tries left, the step's error method is called.
    """
    status = instance.status
    if instance.complete or status.running:
        return instance
    if status.reverse:
        return _reversing_for_cancel(instance, why)
    if _is_unsettled(definition, instance):
        return instance if status.sub_step in status.tries else replace(instance, next_run_time=now)
    if _is_lost(definition, status):
        # Without a reverse nothing settles the lost call.
        instance = _recorded(instance, _LOST, in_doubt=True)
    return _turned_back(_Turn(definition, now, canceled=True), instance, why)


def retry_failed(definition: Definition, instance: Instance, now: float) -> Instance:
    """Return a failed instance that starts again at its failed step. Reversed steps are made again."""
    if not instance.complete or instance.success:
        return instance
    old = instance.status
    passed = {*old.done, *old.ignored}
    number = next((n for n in range(len(definition.steps)) if n not in passed), None)
    again = Status(step_num=old.step_num, done=old.done, ignored=old.ignored, round=old.round + 1)
    if number is None:
        # It was canceled after its last step, and no step could be reversed.
        return _finished(replace(instance, status=again), success=True)
    return replace(instance, status=replace(again, step_num=number), complete=False, paused=False, next_run_time=now)


@dataclass(frozen=True, slots=True)
class _Turn:
    """What stays the same while one outcome is applied."""

    definition: Definition
    now: float
    canceled: bool

    def step(self, instance: Instance) -> Step:
        """Return the instance's current step."""
        return self.definition.steps[instance.status.step_num]


def _is_unsettled(definition: Definition, instance: Instance) -> bool:
    """Whether another call must settle whether a step's method was made.

    That call is its check, the call itself if it was lost and has a reverse but no check, or the error method of a step
    whose method stayed in doubt.
    """
    status = instance.status
    step = definition.steps[status.step_num]
    if status.sub_step in {"error", "errorCheck"}:
        return bool(status.failures) and status.failures[-1].in_doubt
    return status.sub_step == "check" or (_is_lost(definition, status) and step.reverse is not None)


def _is_lost(definition: Definition, status: Status) -> bool:
    """Whether the last call of the step's method was lost, and no check has found out whether it was made."""
    last = status.errors.get("method")
    lost = status.sub_step == "method" and status.retry and last is not None and last.is_lost
    return lost and definition.steps[status.step_num].method.check is None


def _call(step: Step, sub_step: SubStep) -> Call:
    call = step.call(sub_step)
    if call is None:
        raise LookupError(f"the step has no {sub_step}: the definition is not the one the instance was created with")
    return call


def _returned(turn: _Turn, instance: Instance, sub_step: SubStep, value: Any) -> Instance:
    if sub_step in CHECKED and value is None:
        return _not_made(turn, instance, CHECKED[sub_step])
    call = _call(turn.step(instance), sub_step)
    data = merged_data(instance.data, call, sub_step, value)
    if data != instance.data and max_depth_exceeded(data):
        return _failed(turn, instance, _too_deep(call))
    # A check that returned a value: the call had been made.
    return _completed(turn, replace(instance, data=data), CHECKED.get(sub_step, sub_step))


def _too_deep(call: Call) -> ErrorRecord:
    words = f"what {call.method} returned cannot be stored: with it the data has more than {MAX_DEPTH} levels"
    return ErrorRecord(NOT_JSON, words)


def _not_made(turn: _Turn, instance: Instance, owner: SubStep) -> Instance:
    """A check found that its call was not made: make the call again."""
    status = instance.status
    tries = {name: count for name, count in status.tries.items() if name != status.sub_step}
    checked = _call(turn.step(instance), owner)
    if tries.get(owner, 0) > _lost_retries(checked):
        # The last try was lost, and the check shows that it was not made. `_recorded` counts this try again.
        last = replace(status, sub_step=owner, tries={**tries, owner: tries[owner] - 1})
        return _exhausted(turn, replace(instance, status=last), status.errors.get(owner, _LOST))
    return replace(instance, status=replace(status, sub_step=owner, tries=tries), next_run_time=turn.now)


def _failed(turn: _Turn, instance: Instance, error: ErrorRecord) -> Instance:
    call = _call(turn.step(instance), instance.status.sub_step)
    tried = instance.status.tries.get(instance.status.sub_step, 0)
    if call.retry is None or error.final or tried >= call.retry.retries:
        # A check without tries left leaves open whether its call was made.
        return _exhausted(turn, instance, error, in_doubt=instance.status.sub_step in CHECKED)
    return _again(instance, call, error, turn.now + call.retry.delay(tried))


def _lost(turn: _Turn, instance: Instance) -> Instance:
    """Never assume that a lost call succeeded: ask its check, or make it again, at once."""
    call = _call(turn.step(instance), instance.status.sub_step)
    tried = instance.status.tries.get(instance.status.sub_step, 0)
    if tried >= _lost_retries(call) and call.check is None:
        return _exhausted(turn, instance, _LOST, in_doubt=True)
    return _again(instance, call, _LOST, turn.now)


def _lost_retries(call: Call) -> int:
    return LOST_RETRIES if call.retry is None else call.retry.retries


def _again(instance: Instance, call: Call, error: ErrorRecord, at: float) -> Instance:
    """Make the call again at `at`, but call its check first if it has one."""
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


def _recorded(instance: Instance, error: ErrorRecord, *, in_doubt: bool = False) -> Instance:
    status = instance.status
    sub_step = status.sub_step
    tries = status.tries.get(sub_step, 0) + 1
    failure = StepFailure(status.step_num, sub_step, tries, error, in_doubt=in_doubt)
    errors = {**status.errors, sub_step: error}
    return replace(instance, status=replace(status, errors=errors, failures=(*status.failures, failure)))


def _exhausted(turn: _Turn, instance: Instance, error: ErrorRecord, *, in_doubt: bool = False) -> Instance:
    """Record a call without tries left. If it is a check, the call that it checks is not tried again."""
    sub_step = instance.status.sub_step
    owner = CHECKED.get(sub_step, sub_step)
    instance = _recorded(instance, error, in_doubt=in_doubt)
    if owner == "reverse":
        return _next_reverse(turn, instance)
    if owner == "method" and turn.step(instance).error is not None:
        return replace(instance, status=replace(instance.status, sub_step="error", retry=False), next_run_time=turn.now)
    return _after_error(turn, instance, handled=False)


def _completed(turn: _Turn, instance: Instance, sub_step: SubStep) -> Instance:
    number = instance.status.step_num
    done = instance.status.done
    if sub_step == "method":
        return _forward(turn, replace(instance, status=replace(instance.status, done=(*done, number))))
    if sub_step == "error":
        return _after_error(turn, instance, handled=True)
    kept = tuple(n for n in done if n != number)
    return _next_reverse(turn, replace(instance, status=replace(instance.status, done=kept)))


def _after_error(turn: _Turn, instance: Instance, *, handled: bool) -> Instance:
    status = instance.status
    if turn.step(instance).ignore_error:
        ignored = replace(status, ignored=(*status.ignored, status.step_num))
        return _forward(turn, replace(instance, status=ignored))
    if turn.canceled:
        return _turned_back(turn, instance)
    return _reverse_from(turn, instance, success=handled)


def _forward(turn: _Turn, instance: Instance) -> Instance:
    """Go to the next step that is neither done nor ignored. In a retried instance, later steps may be done already."""
    passed = {*instance.status.done, *instance.status.ignored}
    following = next((n for n in range(instance.status.step_num, len(turn.definition.steps)) if n not in passed), None)
    if following is not None:
        return _at(instance, following, "method", turn.now)
    return _turned_back(turn, instance) if turn.canceled else _finished(instance, success=True)


def _turned_back(turn: _Turn, instance: Instance, why: str = "canceled") -> Instance:
    """Record that a person canceled the instance, and reverse its completed steps.

    It is recorded at a call, not at its check: how the call's outcome became known makes no difference.
    """
    sub_step = instance.status.sub_step
    instance = replace(instance, status=replace(instance.status, sub_step=CHECKED.get(sub_step, sub_step)))
    return _reverse_from(turn, _recorded(instance, ErrorRecord(CANCELED, why)), success=False)


def _reversing_for_cancel(instance: Instance, why: str = "canceled") -> Instance:
    """Record a cancel in an instance that is being reversed after a handled error. It then ends as failed."""
    if not instance.status.success_orig:
        return instance
    recorded = _recorded(instance, ErrorRecord(CANCELED, why)).status
    return replace(instance, status=replace(recorded, errors=instance.status.errors, success_orig=False))


def _reverse_from(turn: _Turn, instance: Instance, *, success: bool) -> Instance:
    """Reverse every completed step that has a reverse, the newest first."""
    status = replace(instance.status, success_orig=success)
    return _next_reverse(turn, replace(instance, status=status), below=len(turn.definition.steps))


def _next_reverse(turn: _Turn, instance: Instance, *, below: int | None = None) -> Instance:
    """Go to the reverse of the newest completed step before step `below`, by default the current one, or finish."""
    status = instance.status
    limit = status.step_num if below is None else below
    behind = [n for n in status.done if n < limit and turn.definition.steps[n].reverse is not None]
    if behind:
        return _at(replace(instance, status=replace(status, reverse=True)), max(behind), "reverse", turn.now)
    failed = any(failure.sub_step in {"reverse", "reverseCheck"} for failure in status.failures)
    return _finished(instance, success=bool(status.success_orig) and not failed)


def _at(instance: Instance, number: int, sub_step: SubStep, now: float) -> Instance:
    status = replace(instance.status, step_num=number, sub_step=sub_step, retry=False, tries={}, errors={})
    return replace(instance, status=status, next_run_time=now)


def _finished(instance: Instance, *, success: bool) -> Instance:
    status = replace(instance.status, retry=False)
    return replace(instance, status=status, complete=True, success=success, next_run_time=None)

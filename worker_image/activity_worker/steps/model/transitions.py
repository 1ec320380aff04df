"""PURE: the changes of an instance: a runner takes it, its call ends, or a person cancels, retries or pauses it."""

from dataclasses import replace

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.instance import Instance, Lost, Outcome
from activity_worker.steps.model.rules import advance, begin, cancel, retry_failed


class CannotRetryError(ValueError):
    """The instance has not failed, so it cannot be retried."""


class InstanceCompleteError(ValueError):
    """The instance is complete: it cannot be canceled, paused or resumed."""


def taken(definition: Definition, instance: Instance, now: float, lease_seconds: float, *, canceled: bool) -> Instance:
    """Return the instance with its due call running; after a lost call, with its check or the call again."""
    if instance.status.running:
        instance = advance(definition, instance, Lost(), now, canceled=canceled)
    return _onward(definition, instance, now, lease_seconds, canceled=canceled)


def left(instance: Instance, now: float) -> Instance:
    """Return an instance that was taken, but whose call was not made: any runner may take it at once."""
    return replace(instance, status=replace(instance.status, running=False), next_run_time=now)


def ended(
    definition: Definition,
    instance: Instance,
    outcome: Outcome,
    now: float,
    lease_seconds: float,
    *,
    canceled: bool,
    stopping: bool = False,
) -> Instance:
    """Return the instance after a call, with the next call running if it is due and the runner is not `stopping`."""
    instance = advance(definition, instance, outcome, now, canceled=canceled)
    if stopping:
        return _canceled(definition, instance, now, canceled=canceled)
    return _onward(definition, instance, now, lease_seconds, canceled=canceled)


def asked_to_cancel(definition: Definition, instance: Instance, now: float) -> Instance:
    """Return the instance as canceled. While a call runs, it is canceled when that call ends.

    Raises InstanceCompleteError.
    """
    _require_incomplete(instance, "cancel")
    return _canceled(definition, replace(instance, paused=False), now, canceled=True)


def asked_to_retry(definition: Definition, instance: Instance, now: float) -> Instance:
    """Return a failed instance that starts again. Raises CannotRetryError if it has not failed."""
    if not instance.complete or instance.success:
        how = "succeeded" if instance.complete else "is not complete"
        raise CannotRetryError(f"instance {instance.id} {how}: only a failed one can be retried")
    return retry_failed(definition, instance, now)


def _onward(
    definition: Definition, instance: Instance, now: float, lease_seconds: float, *, canceled: bool
) -> Instance:
    instance = _canceled(definition, instance, now, canceled=canceled)
    due = instance.next_run_time is not None and instance.next_run_time <= now
    return begin(instance, now, lease_seconds) if due and not instance.paused else instance


def _canceled(definition: Definition, instance: Instance, now: float, *, canceled: bool) -> Instance:
    return cancel(definition, instance, now) if canceled else instance


def paused(instance: Instance, *, paused: bool) -> Instance:
    """Return the instance paused, or resumed. Raises InstanceCompleteError."""
    _require_incomplete(instance, "pause" if paused else "resume")
    return replace(instance, paused=paused)


def _require_incomplete(instance: Instance, command: str) -> None:
    if instance.complete:
        ended = "was canceled" if instance.status.canceled else "failed"
        how = "succeeded" if instance.success else ended
        raise InstanceCompleteError(f"instance {instance.id} {how} already: there is nothing left to {command}")

"""Instances and their histories as text for people."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.instance import ErrorRecord, Instance, Status
from activity_worker.steps.store.rows import Revision, StoredInstance, parse_status
from activity_worker.steps.store.task_store import TaskStore

#: Longest error message in a table, in characters.
SHORT = 60


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What became of a step: its calls by sub-step, when the first began and the last ended (Unix seconds)."""

    number: int
    method: str
    state: str
    calls: Mapping[str, int]
    began: float | None
    ended: float | None
    error: ErrorRecord | None


def state(stored: StoredInstance) -> str:
    """Return in one word or two where an instance stands."""
    instance, status = stored.instance, stored.instance.status
    if instance.complete:
        return _end(status, success=instance.success)
    if stored.cancel:
        return "canceling"
    if instance.paused:
        return "paused"
    if status.reverse:
        return "reversing"
    if status.running:
        return "running"
    return "retrying" if status.retry else "waiting"


def instances(found: Sequence[StoredInstance], now: float) -> str:
    """Return a table of instances."""
    rows = [
        (
            one.instance.id,
            one.instance.task_name,
            state(one),
            _step(one.instance),
            _due(one, now),
            age(now - one.created),
        )
        for one in found
    ]
    return table(("ID", "TASK", "STATE", "STEP", "NEXT RUN", "AGE"), rows)


def instance(stored: StoredInstance, definition: Definition, history: Sequence[Revision], now: float) -> str:
    """Return an instance: its state, a table of its steps with tries, times and errors."""
    this = stored.instance
    head = [
        f"{this.id}  {this.task_name}  {state(stored)}",
        f"version {this.definition_id}, revision {stored.revision}, created {moment(stored.created)}",
    ]
    if this.next_run_time is not None:
        word = "lease ends" if this.status.running else "next run"
        head.append(f"{word} {moment(this.next_run_time)} ({_due(stored, now)}), runner {stored.runner or 'none yet'}")
    rows = [_step_row(one) for one in step_summaries(stored, definition, history)]
    return "\n".join([*head, "", table(("STEP", "METHOD", "STATE", "CALLS", "BEGAN", "ENDED", "ERROR"), rows)])


async def show(store: TaskStore, instance_id: str, *, now: float | None = None) -> str:
    """Return an instance as `activity-worker steps show` prints it.

    `now` is in Unix seconds; default: this machine's clock. Raises UnknownInstanceError.
    """
    stored = await store.get(instance_id)
    definition = await store.definition(stored.instance.definition_id)
    history = await store.history(instance_id)
    return instance(stored, definition, history, time.time() if now is None else now)


def revisions(history: Sequence[Revision]) -> str:
    """Return a table of an instance's revisions."""
    rows = [
        (
            str(one.number),
            moment(one.at),
            one.runner or "-",
            str(one.status.get("stepNum", "")),
            str(one.status.get("subStep", "")),
            _doing(one.status),
            "yes" if one.data is not None else "",
            _went_wrong(before, one.status),
        )
        for before, one in zip([{}, *(one.status for one in history)], history, strict=False)
    ]
    return table(("REVISION", "AT", "RUNNER", "STEP", "SUB-STEP", "STATE", "DATA CHANGED", "ERROR"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return columns as wide as what is in them."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def moment(at: float) -> str:
    """Return a time in UTC."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "beyond any calendar"


def age(seconds: float) -> str:
    """Return a span roughly, as kubectl does."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def _step(this: Instance) -> str:
    return "-" if this.complete else f"{this.status.step_num} {this.status.sub_step}"


def _due(stored: StoredInstance, now: float) -> str:
    at = stored.instance.next_run_time
    if at is None or stored.instance.paused:
        return "-"
    return f"in {age(at - now)}" if at > now else "now"


def _step_row(one: StepSummary) -> tuple[str, ...]:
    return (
        str(one.number),
        one.method,
        one.state,
        ", ".join(f"{count} {sub_step}" for sub_step, count in one.calls.items()),
        moment(one.began) if one.began is not None else "",
        moment(one.ended) if one.ended is not None else "",
        _short(one.error.code, one.error.message) if one.error is not None else "",
    )


def step_summaries(
    stored: StoredInstance, definition: Definition, history: Sequence[Revision]
) -> Sequence[StepSummary]:
    """Return what became of each step of an instance."""
    return [_step_summary(number, definition, stored, history) for number in range(len(definition.steps))]


def _step_summary(
    number: int, definition: Definition, stored: StoredInstance, history: Sequence[Revision]
) -> StepSummary:
    # What a call came to is the next revision, in which the call after it may have begun.
    calls_made = [
        (one, after)
        for one, after in zip_longest(history, history[1:])
        if one.status.get("running") and one.status.get("stepNum") == number
    ]
    begun = [one for one, _ in calls_made]
    last = calls_made[-1][1] if calls_made else None
    this_round = [one for one in begun if one.status.get("round", 0) == stored.instance.status.round]
    reverse_called = any(one.status.get("subStep") == "reverse" for one in this_round)
    errors = [one.error for one in stored.instance.status.failures if one.step_num == number]
    if stored.instance.status.step_num == number and not errors:
        errors = list(stored.instance.status.errors.values())
    return StepSummary(
        number=number,
        method=definition.steps[number].method.method,
        state=_step_state(number, stored, reverse_called=reverse_called),
        calls=Counter(str(one.status["subStep"]) for one in begun),
        began=begun[0].at if begun else None,
        ended=last.at if last is not None else None,
        error=errors[-1] if errors else None,
    )


def _step_state(number: int, stored: StoredInstance, *, reverse_called: bool) -> str:
    this, status = stored.instance, stored.instance.status
    failures = [one for one in status.failures if one.step_num == number]
    if number in status.ignored:
        return "ignored"
    if number in status.done:
        # A cancel after the last step is recorded at that step, and is no failure of it.
        return "not reversed" if any(not one.error.is_cancel for one in failures) else "done"
    if not this.complete and status.step_num == number:
        return state(stored)
    if reverse_called:
        return "reversed"
    if failures:
        return "canceled" if status.canceled else "failed"
    went_on = status.reverse and number < max((one.step_num for one in status.failures), default=0)
    return "reversed" if went_on else ""


def _went_wrong(before: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The error that a revision brought: a final one, or that of a call which is to be tried again."""
    tries, tried = status.get("try") or {}, before.get("try") or {}
    final = [one["error"] for one in (status.get("failures") or [])[len(before.get("failures") or []) :]]
    again = [error for name, error in (status.get("error") or {}).items() if tries.get(name, 0) > tried.get(name, 0)]
    new = final or again
    return _short(new[-1]["code"], new[-1]["message"]) if new else ""


def _short(code: str, message: str) -> str:
    text = " ".join(f"{code}: {message}".split())
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


def _doing(status: Mapping[str, Any]) -> str:
    if status.get("complete"):
        return _end(parse_status(status), success=bool(status.get("success")))
    if status.get("running"):
        return "running"
    return "retry" if status.get("retry") else "waiting"


def _end(status: Status, *, success: bool) -> str:
    if success:
        return "succeeded"
    return "canceled" if status.canceled else "failed"

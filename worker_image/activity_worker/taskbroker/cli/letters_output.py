"""PURE: dead letters as tables and as JSON. A task's arguments are in neither unless asked for."""

from collections.abc import Sequence
from typing import Any

from activity_worker.taskbroker.protocol.activation import parse_activation
from activity_worker.taskbroker.protocol.parameters import ParametersError, decode_parameters
from activity_worker.taskbroker.store.dead_letters import StoredDeadLetter

_HEAD = ("NUMBER", "ID", "NAMESPACE", "TASK", "REASON", "ATTEMPTS", "AGE")


def record(stored: StoredDeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON; times are Unix seconds."""
    letter = stored.letter
    return {
        "number": stored.number,
        "id": letter.id,
        "namespace": letter.namespace,
        "application": letter.application,
        "taskname": letter.taskname,
        "reason": letter.reason.value,
        "attempts": letter.attempts,
        "addedAt": letter.added_at,
        "deadAt": letter.dead_at,
    }


def full_record(stored: StoredDeadLetter, *, parameters: bool) -> dict[str, Any]:
    """Return a dead letter with its headers' names, its size and, if asked for, the arguments as text."""
    activation = parse_activation(stored.letter.data)
    shown = {**record(stored), "headers": sorted(activation.headers), "bytes": len(stored.letter.data)}
    if parameters:
        try:
            found = decode_parameters(activation.parameters, activation.headers, activation.parameters_json)
        except ParametersError as error:
            shown["unreadable"] = str(error)
        else:
            shown["args"], shown["kwargs"] = repr(list(found.args)), repr(dict(found.kwargs))
    return shown


def table(found: Sequence[StoredDeadLetter], now: float) -> str:
    """Return one line for each dead letter, under a head."""
    rows = [_HEAD, *(_row(one, now) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def _row(stored: StoredDeadLetter, now: float) -> tuple[str, ...]:
    letter = stored.letter
    names = (str(stored.number), letter.id, letter.namespace, letter.taskname, letter.reason.value)
    return *names, str(letter.attempts), _age(now - letter.dead_at)


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(int(seconds), 0)} s"

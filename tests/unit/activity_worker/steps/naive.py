"""The rules of seed 004 told a second time, as one would for a single process that never dies: loops, no states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activity_worker.steps.outcome import Lost, Outcome, Raised, Returned

#: Times that a call without retries may be lost, over and above the first.
LOST = 8


@dataclass
class Told:
    """What happened: the methods called, and how it ended."""

    called: list[str] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    ignored: list[int] = field(default_factory=list)
    reversed: list[int] = field(default_factory=list)
    success: bool = True


def tell(task: Mapping[str, Any], outcome: Callable[[str], Outcome]) -> Told:
    """Tell a task whose calls come to these outcomes; every field of a step is a map."""
    told = Told()

    def made(name: str) -> Outcome:
        told.called.append(name)
        return outcome(name)

    for number, step in enumerate(task["steps"]):
        if attempt(step, made):
            told.done.append(number)
            continue
        handled = "error" in step and attempt(step["error"], made)
        if step.get("ignoreError", task.get("ignoreError", False)):
            told.ignored.append(number)
            continue
        told.success = handled
        take_back(task, told, made)
        break
    return told


def take_back(task: Mapping[str, Any], told: Told, made: Callable[[str], Outcome]) -> None:
    """Reverse what was done, the newest first."""
    for number in reversed(told.done):
        if "reverse" not in task["steps"][number]:
            continue
        if attempt(task["steps"][number]["reverse"], made):
            told.reversed.append(number)
        else:
            told.success = False


def attempt(call: Mapping[str, Any], made: Callable[[str], Outcome]) -> bool:
    """Make a call until it is known to have been made, or no try is left."""
    retries = call["retry"]["retries"] if "retry" in call else None
    most = LOST if retries is None else retries
    failed = 0
    while True:
        match made(call["method"]):
            case Returned():
                return True
            case Raised(error=error) if error.final or retries is None or failed >= retries:
                return False
            case Lost() if failed >= most and "check" not in call:
                return False
        failed += 1
        if "check" in call:
            found = ask(call["check"], made)
            if found is not None:
                return found
            if failed > most:
                return False


def ask(check: Mapping[str, Any], made: Callable[[str], Outcome]) -> bool | None:
    """Ask whether a call was made: yes, never to be known, or no (None)."""
    retries = check["retry"]["retries"] if "retry" in check else None
    failed = 0
    while True:
        match made(check["method"]):
            case Returned(value=value):
                return None if value is None else True
            case Raised(error=error) if error.final or retries is None or failed >= retries:
                return False
            case Lost() if failed >= (LOST if retries is None else retries):
                return False
        failed += 1

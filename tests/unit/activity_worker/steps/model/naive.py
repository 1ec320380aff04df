"""A second implementation of the rules of durable tasks, for a process that never dies: loops without state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activity_worker.steps.model.instance import Lost, Outcome, Raised, Returned

#: Retries of a lost call without a retry setting, in addition to the first attempt.
LOST = 8


@dataclass
class Run:
    """The result of a run: the methods called, and the outcome."""

    called: list[str] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    ignored: list[int] = field(default_factory=list)
    reversed: list[int] = field(default_factory=list)
    success: bool = True


def play(task: Mapping[str, Any], outcome: Callable[[str], Outcome]) -> Run:
    """Run a task whose calls have these outcomes; every field of a step is a map."""
    run = Run()

    def made(name: str) -> Outcome:
        run.called.append(name)
        return outcome(name)

    for number, step in enumerate(task["steps"]):
        if attempt(step, made):
            run.done.append(number)
            continue
        handled = "error" in step and attempt(step["error"], made)
        if step.get("ignoreError", task.get("ignoreError", False)):
            run.ignored.append(number)
            continue
        run.success = handled
        reverse_steps(task, run, made)
        break
    return run


def reverse_steps(task: Mapping[str, Any], run: Run, made: Callable[[str], Outcome]) -> None:
    """Reverse the completed steps, the newest first."""
    for number in reversed(run.done):
        if "reverse" not in task["steps"][number]:
            continue
        if attempt(task["steps"][number]["reverse"], made):
            run.reversed.append(number)
        else:
            run.success = False


def attempt(call: Mapping[str, Any], made: Callable[[str], Outcome]) -> bool:
    """Make a call until it is known to have been made, or its retries are used up."""
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
    """Check whether a call was made: True if it was, None if it was not, False if that stays unknown."""
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

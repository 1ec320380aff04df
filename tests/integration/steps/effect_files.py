"""A task whose effects are lines in files, and whose errors are in its data: for runners that die at any moment.

Each instance has a file of its own. A line is appended in one write, so that no reader sees half a line. Each call
records its begin and end there, by the machine's clock, independently of the database.
"""

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activity_worker.steps import FinalError, Task, Tasks, current

#: Steps of the task.
STEPS = 4
#: More retries than the errors in the data and the runners that may die in one call.
SURE = {"retry": {"retries": 40, "delays": [0.05]}, "check": "was_done"}


def random_errors(rng: random.Random) -> dict[str, Any]:
    """Return the data of an instance: how often each step's call fails first, and which step fails for good."""
    return {
        "before": {str(n): rng.choice([0, 0, 0, 1, 2]) for n in range(STEPS)},
        "after": {str(n): rng.choice([0, 0, 0, 1]) for n in range(STEPS)},
        "breaks": rng.choice([None, None, *range(STEPS)]),
    }


@dataclass(frozen=True)
class EffectFiles:
    """The files of all instances, in a folder. `called` is set when a method was called in this process."""

    folder: Path
    called: threading.Event = field(default_factory=threading.Event, compare=False)

    def tasks(self) -> Tasks:
        """Return the task in its two forms: errors count, and errors of the third step are ignored."""
        return Tasks([self._task("strict", ignores=False), self._task("lenient", ignores=True)])

    def lines(self, instance: str) -> list[dict[str, Any]]:
        """Return the lines of an instance, in order."""
        path = self.folder / instance
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def effects(self, instance: str) -> list[str]:
        """Return its effects in order, as sub-step and step."""
        return [line["effect"] for line in self.lines(instance) if "effect" in line]

    def _task(self, name: str, *, ignores: bool) -> Task:
        steps = [
            {
                "method": "work",
                "retry": SURE["retry"],
                # The check returns the output that was lost with the call's answer.
                "check": {"method": "was_done", "output": {"worked": "worked"}},
                "error": {"method": "tell", **SURE},
                "reverse": {"method": "undo", **SURE},
                "ignoreError": ignores and number == 2,
            }
            for number in range(STEPS)
        ]
        methods = {"work": self._work, "undo": self._effect, "tell": self._effect, "was_done": self._was_done}
        return Task(name, steps, methods={name: self._timed(method) for name, method in methods.items()})

    def _timed(self, method: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        def timed(data: dict[str, Any]) -> Any:
            self._write({"call": "begins"})
            try:
                return method(data)
            finally:
                self._write({"call": "ends"})

        return timed

    def _work(self, data: Mapping[str, Any]) -> dict[str, Any]:
        step = str(current().step_num)
        tried = sum(line.get("try") == current().key for line in self.lines(current().instance_id))
        self._write({"try": current().key})
        if tried < data["before"][step]:
            raise RuntimeError("before the effect")
        if data["breaks"] == current().step_num:
            raise FinalError("Broken", "for good")
        self._effect(data)
        if tried < data["before"][step] + data["after"][step]:
            raise RuntimeError("after the effect")
        return {"worked": {step: True}}

    def _effect(self, _: Mapping[str, Any]) -> None:
        self._write({"effect": f"{current().sub_step} {current().step_num}", "key": current().key})

    def _was_done(self, _: Mapping[str, Any]) -> dict[str, Any] | None:
        found = any(line.get("key") == current().key for line in self.lines(current().instance_id))
        return {"worked": {str(current().step_num): True}} if found else None

    def _write(self, line: dict[str, Any]) -> None:
        self.called.set()
        here = {"revision": current().revision, "runner": current().runner, "at": time.monotonic()}
        file = os.open(self.folder / current().instance_id, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, (json.dumps({**line, **here}) + "\n").encode())
        finally:
            os.close(file)


def expected(task: str, data: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Return the end of such an instance: whether it succeeds, and its effects, each once."""
    breaks = data["breaks"]
    if breaks is None:
        return True, [f"method {n}" for n in range(STEPS)]
    made = [f"method {n}" for n in range(breaks)] + [f"error {breaks}"]
    if task == "lenient" and breaks == 2:
        return True, [*made, *(f"method {n}" for n in range(breaks + 1, STEPS))]
    return True, [*made, *(f"reverse {n}" for n in reversed(range(breaks)))]

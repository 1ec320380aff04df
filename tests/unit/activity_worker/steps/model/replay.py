"""Run an instance on the reducer alone, in virtual time; a script defines the outcome of each call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from activity_worker.steps.model.definition_parser import parse
from activity_worker.steps.model.instance import ErrorRecord, Instance, Lost, Outcome, Raised, Returned
from activity_worker.steps.model.paths import merge
from activity_worker.steps.model.rules import advance, begin, cancel, plan

START = 1000.0
LOST = Lost()


def fails(message: str = "no", *, final: bool = False) -> Raised:
    """Return the outcome of a call that raised."""
    return Raised(ErrorRecord("Trouble", message, final=final))


@dataclass
class Replay:
    """One instance of a task. `script` lists the outcomes of each method; the last repeats, the default is None.

    The instance is canceled after `canceled_after` calls, or while call number `canceled_in` runs, counted from 1.
    """

    task: Mapping[str, Any]
    script: Mapping[str, list[Any]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    canceled_after: int | None = None
    canceled_in: int | None = None

    def __post_init__(self) -> None:
        self.definition = parse({"name": "t", **self.task})
        data = merge(dict(self.definition.data), self.data)
        self.instance = Instance("i", "t", self.definition.id, data, START)

    def step(self) -> None:
        """Make the call that is due."""
        now = self.instance.next_run_time
        assert now is not None
        planned = plan(self.definition, self.instance)
        running = begin(self.instance, now, 60.0)
        self.calls.append((planned.call.method, planned.arguments))
        self.times.append(now - START)
        canceled = self._canceled_before()
        outcome = self._outcome(planned.call.method)
        self.instance = advance(self.definition, running, outcome, now, canceled=canceled)
        if canceled or len(self.calls) == self.canceled_after:
            self.instance = cancel(self.definition, self.instance, now)

    def run(self, most: int = 100) -> "Replay":
        """Make calls until the instance is complete."""
        for _ in range(most):
            if self.instance.complete:
                return self
            self.step()
        raise AssertionError("the instance does not complete")

    @property
    def called(self) -> list[str]:
        """Return the methods called, in order."""
        return [method for method, _ in self.calls]

    @property
    def ended(self) -> tuple[bool, bool]:
        """Whether the instance is complete, and whether it succeeded."""
        return self.instance.complete, self.instance.success

    def _canceled_before(self) -> bool:
        """Whether the cancel came before the end of the call that was begun last."""
        made = len(self.calls)
        after, during = self.canceled_after, self.canceled_in
        return (after is not None and made > after) or (during is not None and made >= during)

    def _outcome(self, method: str) -> Outcome:
        left = self.script.get(method, [None])
        made = self.called.count(method) - 1
        value = left[min(made, len(left) - 1)]
        return value if isinstance(value, Returned | Raised | Lost) else Returned(value)

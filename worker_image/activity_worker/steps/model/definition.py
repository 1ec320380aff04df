"""What a task is made of: immutable, named by its content, so that an instance keeps the steps it began with."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

SubStep = Literal["method", "check", "error", "errorCheck", "reverse", "reverseCheck"]

#: Which call a check belongs to.
CHECKED: Final[Mapping[SubStep, SubStep]] = {"check": "method", "errorCheck": "error", "reverseCheck": "reverse"}
#: Which check belongs to a call.
CHECK_OF: Final[Mapping[SubStep, SubStep]] = {owner: check for check, owner in CHECKED.items()}


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a failed call is made again, and after how many seconds; the last delay repeats."""

    retries: int
    delays_seconds: tuple[float, ...]

    def delay(self, tried: int) -> float:
        """Return the seconds to wait after failure number `tried`, counted from 0."""
        return self.delays_seconds[min(tried, len(self.delays_seconds) - 1)]


#: The schedule of `retry: true` (5 s, 1 min, 5 min, 30 min, 3 h, 12 h, 24 h, 24 h, then no more).
DEFAULT_RETRY: Final = Retry(8, (5.0, 60.0, 300.0, 1800.0, 10_800.0, 43_200.0, 86_400.0, 86_400.0))


@dataclass(frozen=True, slots=True)
class Call:
    """One method to call: of the task itself (`capturePayment`), of a module, or `task.NAME.new`.

    `input` and `output` map property paths (None: everything); `timeout_seconds` None means no limit but the lease,
    which the runner renews while it lives.
    """

    method: str
    input: Mapping[str, str] | None = None
    output: Mapping[str, str] | None = None
    retry: Retry | None = None
    timeout_seconds: float | None = None
    check: "Call | None" = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what to do, what to do when it fails, how to take it back when a later one fails."""

    method: Call
    error: Call | None = None
    reverse: Call | None = None
    ignore_error: bool = False

    def call(self, sub_step: SubStep) -> Call | None:
        """Return the call of a sub-step, None when the step has none."""
        owner = CHECKED.get(sub_step)
        if owner is not None:
            checked = self.call(owner)
            return None if checked is None else checked.check
        if sub_step == "method":
            return self.method
        return self.error if sub_step == "error" else self.reverse

    def calls(self) -> Iterator[tuple[SubStep, Call]]:
        """Yield every call that the step may make."""
        names: tuple[SubStep, ...] = ("method", "check", "error", "errorCheck", "reverse", "reverseCheck")
        for name in names:
            if (call := self.call(name)) is not None:
                yield name, call


@dataclass(frozen=True, slots=True)
class Definition:
    """A task: its steps, and the data that every instance starts from. `source` is what it was parsed from."""

    name: str
    steps: tuple[Step, ...]
    data: Mapping[str, Any]
    source: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The version: 32 hex characters over the source. Another step, default or name is another version."""
        text = json.dumps(self.source, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def methods(self) -> Iterator[tuple[int, SubStep, str]]:
        """Yield step number, sub-step and method name of every call."""
        for number, step in enumerate(self.steps):
            for name, call in step.calls():
                yield number, name, call.method

"""What became of one call."""

from dataclasses import dataclass
from typing import Any

from activity_worker.steps.instance import ErrorRecord


@dataclass(frozen=True, slots=True)
class Returned:
    """The call returned this value."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised."""

    error: ErrorRecord


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows: the runner that made the call never said how it ended, and its lease is over."""


Outcome = Returned | Raised | Lost

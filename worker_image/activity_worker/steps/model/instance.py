"""One run of a task, as it is created and saved: its data, where it stands, and what went wrong. All immutable."""

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from activity_worker.steps.model.definition import Definition, SubStep
from activity_worker.steps.model.definition_parser import SESSION
from activity_worker.steps.model.paths import merge
from activity_worker.steps.model.storable import as_stored, storable_text

#: The code under which a person's wish to cancel is recorded.
CANCELED: Final = "Canceled"
#: The code of a call whose runner did not record an outcome.
LOST: Final = "RunnerLost"


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """What a call raised. `final` asks for no further retry."""

    code: str
    message: str
    data: Any = None
    stack: str = ""
    final: bool = False

    @property
    def is_cancel(self) -> bool:
        """Whether this is a person's wish; an error that a method raised under the same code has a stack."""
        return self.code == CANCELED and not self.stack

    @property
    def is_lost(self) -> bool:
        """Whether the call's runner was lost; an error that a method raised under the same code has a stack."""
        return self.code == LOST and not self.stack


@dataclass(frozen=True, slots=True)
class StepFailure:
    """A call that failed for good: of which step and sub-step, after how many tries, and with what.

    `in_doubt` says that the call, or the call that it checks, may have been made all the same.
    """

    step_num: int
    sub_step: SubStep
    tries: int
    error: ErrorRecord
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """Where an instance stands.

    `tries` counts failed tries of the present step's sub-steps and `errors` holds their last errors; both start
    empty with each step. `done` are completed steps that were not reversed, `ignored` those whose error was ignored.
    `success_orig` is the outcome before anything is taken back; None until then. `round` counts how often the instance
    was started again after it had failed.
    """

    step_num: int = 0
    sub_step: SubStep = "method"
    running: bool = False
    retry: bool = False
    reverse: bool = False
    tries: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, ErrorRecord] = field(default_factory=dict)
    success_orig: bool | None = None
    done: tuple[int, ...] = ()
    ignored: tuple[int, ...] = ()
    failures: tuple[StepFailure, ...] = ()
    round: int = 0

    @property
    def canceled(self) -> bool:
        """Whether a person ended it, every reverse succeeded, and no call of a step is in doubt."""
        others = [one for one in self.failures if not one.error.is_cancel]
        stands = (one.in_doubt or one.sub_step in {"reverse", "reverseCheck"} for one in others)
        return len(others) < len(self.failures) and not any(stands)


@dataclass(frozen=True, slots=True)
class Instance:
    """One run. Times are Unix seconds.

    `next_run_time` is when a runner may pick it up: due work, or the end of the lease of the runner that has it now;
    None when it is complete. A paused one is not picked up.
    """

    id: str
    task_name: str
    definition_id: str
    data: Mapping[str, Any]
    next_run_time: float | None
    status: Status = field(default_factory=Status)
    complete: bool = False
    success: bool = False
    paused: bool = False


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
    """The outcome is unknown: the lease of the runner that made the call ended without a record."""


Outcome = Returned | Raised | Lost


#: Longest id of an instance, in characters: what the store's column holds.
MAX_ID: Final = 64
#: Longest name of a runner, in characters: what the store's column holds.
MAX_RUNNER_NAME: Final = 255


def new_id() -> str:
    """Return a new instance's id."""
    return uuid.uuid4().hex


def runner_name(worker_name: str) -> str:
    """Return a name for a runner that no other runner has; it begins with as much of the worker's name as fits."""
    ending = f"-{new_id()[:8]}"
    return worker_name[: MAX_RUNNER_NAME - len(ending)] + ending


def derived_id(key: str) -> str:
    """Return the id that belongs to a key: the same every time, so that a second instance is not made."""
    return uuid.uuid5(uuid.NAMESPACE_OID, key).hex


def create_instance(
    definition: Definition,
    arguments: Mapping[str, Any],
    *,
    now: float,
    session: Any = None,
    at: float | None = None,
    instance_id: str | None = None,
) -> Instance:
    """Return a new instance; `session` is kept in its data and given to every call, `at` schedules it.

    `now` and `at` are Unix seconds; a time that is past means at once. Raises ValueError when the instance cannot be
    stored: arguments that are no map of JSON data, an id that is too long, an `at` that is no finite number.
    """
    if not isinstance(arguments, Mapping):
        raise ValueError(f"an instance's arguments are a map such as {{'number': 7}}, not a {type(arguments).__name__}")  # noqa: TRY004 - as every argument that cannot be stored
    if instance_id is not None:
        _check_id(instance_id)
    if at is not None and not (isinstance(at, int | float) and math.isfinite(at)):
        raise ValueError(f"at is a time in Unix seconds such as 1767225600, not {at!r}")
    data = merge(dict(definition.data), arguments)
    if session is not None:
        data[SESSION] = session
    try:
        data = as_stored(data)
    except ValueError as error:
        raise ValueError(f"an instance's data is stored as JSON, and this is not: {error}") from None
    return Instance(
        id=instance_id or new_id(),
        task_name=definition.name,
        definition_id=definition.id,
        data=data,
        next_run_time=now if at is None else max(at, now),
    )


def _check_id(instance_id: str) -> None:
    if not 0 < len(instance_id) <= MAX_ID:
        raise ValueError(f"an instance's id has 1 to {MAX_ID} characters, not {len(instance_id)}: derived_id makes one")
    if storable_text(instance_id) != instance_id:
        raise ValueError(f"an instance's id is text without NUL and half surrogate pairs, not {instance_id!r}")

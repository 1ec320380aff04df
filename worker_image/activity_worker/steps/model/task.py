"""How tasks are written in Python: a name, steps as names, maps or `step(...)`, and functions as methods."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from activity_worker.steps.model.definition import Definition
from activity_worker.steps.model.definition_parser import DefinitionError, parse
from activity_worker.steps.model.methods import Method

_F = TypeVar("_F", bound=Callable[..., Any])


def step(
    method: str,
    *,
    input: Mapping[str, str] | None = None,  # noqa: A002 - the field's name
    output: Mapping[str, str] | None = None,
    retry: bool | Mapping[str, Any] | None = None,
    check: str | Mapping[str, Any] | None = None,
    error: str | Mapping[str, Any] | None = None,
    reverse: str | Mapping[str, Any] | None = None,
    ignore_error: bool | None = None,
    timeout: str | float | None = None,
) -> dict[str, Any]:
    """Return a step, or a call within one, as a map; what is None is left out."""
    fields = {
        "method": method,
        "input": input,
        "output": output,
        "retry": retry,
        "check": check,
        "error": error,
        "reverse": reverse,
        "ignoreError": ignore_error,
        "timeout": timeout,
    }
    return {name: value for name, value in fields.items() if value is not None}


class Task:
    """A multi-step task.

    Steps are given as a list (each a method's name, a map, or `step(...)`), or gathered in order by `@task.step()` on
    the functions that do them. `@task.method` adds a method for checks, errors and reverses. Names are those of the
    functions. The definition is checked when it is first needed.

    Raises DefinitionError at once for steps that are no list, such as one name: its letters would be steps.
    """

    def __init__(
        self,
        name: str,
        steps: Iterable[str | Mapping[str, Any]] = (),
        *,
        data: Mapping[str, Any] | None = None,
        methods: Mapping[str, Method] | None = None,
        retry: bool | Mapping[str, Any] | None = None,
        ignore_error: bool | None = None,
    ) -> None:
        if isinstance(steps, str | bytes | Mapping) or not isinstance(steps, Iterable):
            raise DefinitionError(str(name), "steps", f"a task needs a list of steps such as ['pay'], not {steps!r}")
        self.name = name
        self.methods: dict[str, Method] = dict(methods or {})
        self._steps: list[str | Mapping[str, Any]] = list(steps)
        self._rest = {"data": data, "retry": retry, "ignoreError": ignore_error}

    def method(self, function: _F) -> _F:
        """Add a function as a method under its own name."""
        self.methods[function.__name__] = function
        return function

    def step(self, **fields: Any) -> Callable[[_F], _F]:
        """Add a function as a method and as the next step; `fields` are those of `step(...)`."""

        def added(function: _F) -> _F:
            self._steps.append(step(function.__name__, **fields))
            return self.method(function)

        return added

    @property
    def definition(self) -> Definition:
        """The task as it stands. Raises DefinitionError naming the step and the field."""
        rest = {name: value for name, value in self._rest.items() if value is not None}
        return parse({"name": self.name, "steps": list(self._steps), **rest})

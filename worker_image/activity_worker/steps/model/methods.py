"""Where a definition's method names lead: to the task's own methods, to modules, and to new instances of tasks."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from activity_worker.steps.model.definition import CHECKED, Definition, SubStep
from activity_worker.steps.model.definition_parser import DefinitionError

#: A method: takes the call's arguments, returns JSON data or None; plain or async.
Method = Callable[[dict[str, Any]], Any | Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class NewTask:
    """A method that creates an instance of another task: `task.NAME.new`."""

    definition: Definition


@dataclass(slots=True)
class Methods:
    """Methods by name: `own` by task and name, `modules` by module and name; `tasks` are the present versions."""

    own: dict[str, dict[str, Method]] = field(default_factory=dict)
    modules: dict[str, Mapping[str, Method] | object] = field(default_factory=dict)
    tasks: dict[str, Definition] = field(default_factory=dict)

    def find(self, task: str, name: str) -> Method | NewTask | None:
        """Return what a name leads to, None when to nothing."""
        own = self.own.get(task, {}).get(name)
        if own is not None:
            return own
        match name.split("."):
            case ["task", other, "new"]:
                return NewTask(self.tasks[other]) if other in self.tasks else None
            case ["task", other, method]:
                return self.own.get(other, {}).get(method)
            case ["module", module, method]:
                return self._of_module(module, method)
        return None

    def missing(self, definition: Definition) -> tuple[int, SubStep, str] | None:
        """Return step number, sub-step and name of the first method that is not there, None when all are."""
        for number, sub_step, name in definition.methods():
            if self.find(definition.name, name) is None:
                return number, sub_step, name
        return None

    def require(self, definition: Definition) -> None:
        """Raise DefinitionError naming step and method when one is not there."""
        if (gap := self._gap(definition)) is not None:
            raise gap

    def describe_missing(self, definition: Definition) -> str:
        """Return step and name of the first method that is not there, "" when all are."""
        return str(self._gap(definition) or "")

    def _gap(self, definition: Definition) -> DefinitionError | None:
        if (gap := self.missing(definition)) is None:
            return None
        number, sub_step, name = gap
        field = f"{CHECKED[sub_step]}.check" if sub_step in {"errorCheck", "reverseCheck"} else sub_step
        return DefinitionError(definition.name, field, f"there is no method {name!r}{self._hint(name)}", number)

    def _of_module(self, module: str, method: str) -> Method | None:
        found = self.modules.get(module)
        if found is None:
            return None
        value = found.get(method) if isinstance(found, Mapping) else getattr(found, method, None)
        return value if callable(value) and not method.startswith("_") else None

    def _hint(self, name: str) -> str:
        match name.split("."):
            case ["task", other, "new"]:
                return f": no task {other!r} is registered"
            case ["module", module, _] if module not in self.modules:
                return f": no module {module!r} is registered"
            case [_]:
                return ": give it to the task as a method, or name it module.NAME.METHOD"
        return ""

"""What a supervisor and a slot's process tell each other about instances, as plain data. Pure.

The supervisor claims instances and never imports a user's code. The slot's process reports its tasks and the names of
its methods (its capabilities), and gets an instance as a claim: the token and the input of a task.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from activity_worker.steps.model.definition_parser import parse
from activity_worker.steps.model.methods import Methods
from activity_worker.task import ORIGIN_KEY


@dataclass(frozen=True, slots=True)
class InstanceClaim:
    """Who holds which instance. `runner` is a name that no other claim has; `revision` is what the claim wrote."""

    instance_id: str
    runner: str
    revision: int
    lease_seconds: float

    @property
    def token(self) -> str:
        """What the holder of the lease needs to know of it."""
        return json.dumps([self.instance_id, self.runner])

    @property
    def input(self) -> str:
        """What the process that runs the instance needs to know, as JSON text: none of the instance's data.

        The instance is the execution of the task, for log lines and traces.
        """
        return json.dumps(
            {
                ORIGIN_KEY: {"execution": self.instance_id},
                "instance": self.instance_id,
                "runner": self.runner,
                "revision": self.revision,
                "leaseSeconds": self.lease_seconds,
            }
        )

    @classmethod
    def from_input(cls, value: Mapping[str, Any]) -> Self:
        """Return the claim that an input, read as JSON, stands for."""
        return cls(value["instance"], value["runner"], value["revision"], value["leaseSeconds"])


def parse_token(token: str) -> tuple[str, str]:
    """Return the instance's id and the runner's name that are in a token."""
    instance_id, runner = json.loads(token)
    return instance_id, runner


Capabilities = Mapping[str, Any]


def capabilities_of(methods: Methods) -> Capabilities:
    """Return the tasks as they are written, and which names lead to a method."""
    used = {name for definition in methods.tasks.values() for _, _, name in definition.methods()}
    return {
        "tasks": [dict(definition.source) for definition in methods.tasks.values()],
        "methods": {task: sorted(own) for task, own in methods.own.items()},
        "modules": {
            # What a module makes up when it is asked cannot be listed; what is used of it is there.
            name: sorted(
                {*_methods_in(module), *(one.split(".")[2] for one in used if one.startswith(f"module.{name}."))}
            )
            for name, module in methods.modules.items()
        },
    }


def methods_of(capabilities: Capabilities) -> Methods:
    """Return methods of the names in an offer, which say what is there and cannot be called.

    Raises DefinitionError for a task that cannot be read here, and KeyError, TypeError or AttributeError for what is no
    offer.
    """
    definitions = [parse(source) for source in capabilities["tasks"]]
    return Methods(
        own={task: dict.fromkeys(names, _elsewhere) for task, names in capabilities["methods"].items()},
        modules={module: dict.fromkeys(names, _elsewhere) for module, names in capabilities["modules"].items()},
        tasks={definition.name: definition for definition in definitions},
    )


def _methods_in(module: Mapping[str, Any] | object) -> Iterator[str]:
    """Give the names under which a module has something to call, without running any of its properties."""
    if isinstance(module, Mapping):
        yield from (name for name, value in module.items() if callable(value) and not name.startswith("_"))
        return
    for name in dir(module):
        found = inspect.getattr_static(module, name, None)
        if not name.startswith("_") and (callable(found) or isinstance(found, staticmethod | classmethod)):
            yield name


def _elsewhere(_: dict[str, Any]) -> NoReturn:
    raise NotImplementedError("this method is in another process")

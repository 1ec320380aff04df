"""PURE: an instance that one process took and another runs, as the token and the input of a task."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


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
        """What the process that runs the instance needs to know, as JSON text: none of the instance's data."""
        return json.dumps(
            {
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

"""Compares the rights that the chart grants with the calls that were made: here the operator may do everything."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.faults.calls import to_service

RBAC = Path(__file__).parents[2] / "charts" / "activity-operator" / "templates" / "rbac.yaml"
NAME = "activity-operator"
_VERBS = {"POST": "create", "PUT": "update"}
#: The role that grants discovery to every authenticated user.
_FOR_ALL = "discovery"

Right = tuple[str, str]


def granted(template: str | None = None) -> set[Right]:
    """Return (resource, verb) of what the chart's roles grant.

    `template` defaults to the chart's template in this tree.
    """
    text = RBAC.read_text(encoding="utf-8") if template is None else template
    # Lines with Helm expressions fill in names and labels; the rights do not depend on them.
    plain = "\n".join(line for line in text.splitlines() if "{{" not in line)
    roles = [raw for raw in yaml.safe_load_all(plain) if raw and raw.get("rules") and raw["metadata"]["name"] == NAME]
    rules = [rule for role in roles for rule in role["rules"]]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def needed(names: Iterable[str]) -> set[Right]:
    """Return the rights that calls of these names need; a call to the task service needs none."""
    calls = [name.partition(" ") for name in names if not to_service(name)]
    return {
        (resource.replace("lease-records", "secrets"), _VERBS.get(verb, verb.lower()))
        for verb, _, resource in calls
        if resource != _FOR_ALL
    }

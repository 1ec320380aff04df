"""Runs Helm and reads the objects that it renders."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "activity-operator"
NAMESPACE = "activitypool-system"

#: The one value that has no default.
IMAGE = {"repository": "registry.example.com/activity-operator"}

Objects = dict[tuple[str, str], dict[str, Any]]


class Helm:
    """A Helm binary and the chart."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    def run(self, command: str, *arguments: str, values: dict[str, Any] | None = None) -> str:
        """Run a command on the chart with these values, and an image unless they have one.

        Raises AssertionError with Helm's output when the command fails.
        """
        done = subprocess.run(
            [self._binary, *command.split(), *arguments, CHART, "--values", "-"],
            input=json.dumps({"image": IMAGE, **(values or {})}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def objects(self, values: dict[str, Any] | None = None) -> Objects:
        """Return the rendered objects, by kind and name."""
        return {(raw["kind"], raw["metadata"]["name"]): raw for raw in self.rendered(values)}

    def rendered(self, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rendered objects, in Helm's order."""
        text = self.run("template operator", "--namespace", NAMESPACE, values=values)
        return [raw for raw in yaml.safe_load_all(text) if raw]


def container(objects: Objects) -> dict[str, Any]:
    """Return the operator's container."""
    (only,) = objects["Deployment", "activity-operator"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def environment(objects: Objects) -> dict[str, str]:
    """Return the container's environment as the process sees it in a pod named `pod`."""
    downward = {"metadata.namespace": NAMESPACE, "metadata.name": "pod"}
    return {
        each["name"]: each["value"] if "value" in each else downward[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container(objects)["env"]
    }


def granted(objects: Objects, kind: str) -> set[tuple[str, str, str, str]]:
    """Return the rights of the operator's role: group, resource, verb, and the resource name ("" for any)."""
    return granted_by(objects[kind, "activity-operator"])


def granted_by(role: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """Return the rights of a role, as `granted` does."""
    return {
        (group, resource, verb, name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }

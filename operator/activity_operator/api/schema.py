"""The CustomResourceDefinition, generated from the models.

python -m activity_operator.api.schema                  print the CRD
python -m activity_operator.api.schema --write PATH     write the CRD to a file
python -m activity_operator.api.schema --check PATH     exit 1 if the file differs from the CRD
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from activity_operator.api import GROUP, KIND, PLURAL, VERSION, rules
from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import PoolStatus
from activity_operator.api.structural import Schema, structural_schema

HEADER = (
    "# Generated, do not edit: this file is made from operator/activity_operator/api by\n"
    "#   python -m activity_operator.api.schema --write crds/activitypools.activitypools.dev.yaml\n"
)

_READY = '.status.conditions[?(@.type=="Ready")]'
_ACTIVE = '.status.conditions[?(@.type=="Active")]'
#: Printer columns: name, type, JSON path, description, priority (1: only with `-o wide`).
_COLUMNS = (
    ("Ready", "string", f"{_READY}.status", "Whether the pool can do its work.", 0),
    ("Workers", "integer", ".status.readyReplicas", "Workers that are ready.", 0),
    ("Desired", "integer", ".status.desiredReplicas", "Workers wanted.", 0),
    ("Busy", "integer", ".status.busyWorkers", "Workers with at least one task.", 0),
    ("Backlog", "string", ".status.waiting", "Tasks waiting; ≥ 12 where only 12 are known.", 0),
    ("Min", "integer", ".spec.minWorkers", "Fewest workers.", 0),
    ("Max", "integer", ".spec.maxWorkers", "Most workers.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the pool was made.", 0),
    ("Reason", "string", ".status.lastScaleReason", "Why the wanted size last changed.", 0),
    ("Active", "string", f"{_ACTIVE}.status", "Whether there is work.", 1),
    ("Paused", "boolean", ".spec.paused", "Whether the pool is paused.", 1),
    ("Image", "string", ".spec.handlerImage", "The handler's image.", 1),
    ("ARN", "string", ".spec.activityArn", "The activity.", 1),
    ("Source", "string", ".spec.source.*['activityArn','taskList','queue','tasks']", "What spec.source names.", 1),
    ("Message", "string", f"{_READY}.message", "Why the pool is ready, or is not.", 1),
)


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition as a manifest."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["apool"],
                "categories": ["workers"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": pool_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": description, "priority": priority}
            for name, kind, path, description, priority in _COLUMNS
        ],
    }


def pool_schema() -> Schema:
    """Return the structural schema of an ActivityPool."""
    spec = structural_schema(PoolSpec, defaults=True)
    status = structural_schema(PoolStatus, defaults=False)
    # With this default, tools that wait for observedGeneration also wait for the operator's first status.
    status["default"] = {"observedGeneration": PoolStatus().observed_generation}
    return {
        "description": "An ActivityPool keeps the right number of workers for the tasks of an activity, queue or task "
        "store.",
        "type": "object",
        "required": ["spec"],
        **rules.attach(rules.POOL),
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"{KIND}."},
            # The API server's own limit, repeated because its cost estimate of the name's rules needs it.
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": spec,
            "status": status,
        },
    }


class _Dumper(yaml.SafeDumper):
    """Writes every value in full, without YAML anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Write CEL as a block scalar: a quoted scalar would double the quotes in it."""
    style = "|" if "'" in text and ("self" in text or "has(" in text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def crd_yaml() -> str:
    """Return the content of the file in `crds/`."""
    return HEADER + yaml.dump(crd(), Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, write or check the CRD; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m activity_operator.api.schema", description="Make the CRD.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", type=Path, metavar="PATH", help="write the CRD there")
    what.add_argument("--check", type=Path, metavar="PATH", help="exit 1 when that file is out of date")
    chosen = parser.parse_args(arguments)
    if chosen.write:
        chosen.write.write_text(crd_yaml(), encoding="utf-8")
    elif chosen.check:
        if not chosen.check.exists() or chosen.check.read_text(encoding="utf-8") != crd_yaml():
            sys.stderr.write(f"{chosen.check} is out of date; run {parser.prog} --write {chosen.check}\n")
            return 1
    else:
        sys.stdout.write(crd_yaml())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The rules for `podTemplate`: it may add to the workers' pods, which stay restricted and managed by the operator.

The CRD keeps the pod spec as free-form YAML (a typed one would be larger than the rest of the CRD), so this module
refuses harmful fields. The API server refuses other errors when the operator applies the Deployment.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.api import rules
from activity_operator.api.conditions import Reason
from activity_operator.api.errors import SpecError
from activity_operator.api.pod_own import own_problems
from activity_operator.api.pod_restricted import restricted_problems
from activity_operator.api.pod_shape import Problem, part, shape_problems

#: Most labels or annotations. The API server's cost estimate of the CEL rules needs a bound.
MAX_KEYS = 64


def _keys_schema(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": MAX_KEYS,
        "additionalProperties": {"type": "string"},
        "description": description,
        **rules.attach(rules.OWN_KEYS),
    }


#: The schema of the field; pydantic sees a plain mapping.
POD_TEMPLATE_SCHEMA: dict[str, Any] = {
    "properties": {
        "metadata": {
            "type": "object",
            "description": "Labels and annotations of the workers' pods.",
            "properties": {
                "labels": _keys_schema("Labels of the workers' pods, none under activitypools.dev/."),
                "annotations": _keys_schema("Annotations of the workers' pods, none under activitypools.dev/."),
            },
        },
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "description": "A pod spec (see kubectl explain pod.spec): volumes, sidecars, node selection, and in the "
            "container named worker what the handler needs. Its image is handlerImage.",
        },
    }
}


def check_pod_template(template: Mapping[str, Any]) -> None:
    """Raise SpecError (reason PodTemplateRejected) for the first field of the template that is not allowed."""
    for field, value, fix in _problems(template):
        raise SpecError(f"podTemplate.{field}", value, fix, Reason.POD_TEMPLATE_REJECTED)


def _problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    yield from shape_problems(template)
    metadata, spec = part(template, "metadata"), part(template, "spec")
    yield from restricted_problems(metadata, spec)
    yield from own_problems(metadata, spec)

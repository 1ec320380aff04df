"""What `podTemplate` may say: additions to the workers' pods that leave them restricted and ours to manage.

The CRD keeps the pod spec as free-form YAML (a typed one would be larger than everything else), so what would harm is
refused here; what remains wrong is refused by the API server when the Deployment is applied.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from activity_operator.api import rules
from activity_operator.api.conditions import Reason
from activity_operator.api.errors import SpecError
from activity_operator.api.pod_own import own_problems
from activity_operator.api.pod_restricted import restricted_problems
from activity_operator.api.pod_shape import Problem, part, shape_problems

#: The most labels or annotations; a bound that the cost estimate of the rules needs.
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
    """Raise SpecError (reason PodTemplateRejected) for the first thing in the template that cannot be taken."""
    for field, value, fix in _problems(template):
        raise SpecError(f"podTemplate.{field}", value, fix, Reason.POD_TEMPLATE_REJECTED)


def _problems(template: Mapping[str, Any]) -> Iterator[Problem]:
    yield from shape_problems(template)
    metadata, spec = part(template, "metadata"), part(template, "spec")
    yield from restricted_problems(metadata, spec)
    yield from own_problems(metadata, spec)

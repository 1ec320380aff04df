"""What counts as an edit of an applied manifest, and what the API server merely rewrites."""

import copy
from typing import Any

import pytest

from activity_operator.cluster.drift import APPLIED, drifted_fields, fingerprint, stamped

MANIFEST: dict[str, Any] = {
    "metadata": {"name": "d", "labels": {"a": "1"}, "annotations": {"g": "1"}},
    "spec": {
        "replicas": 3,
        "template": {
            "spec": {
                "securityContext": {},
                "containers": [
                    {
                        "name": "worker",
                        "image": "i:1",
                        "args": ["run", "x"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                        "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}},
                    }
                ],
            }
        },
    },
}


def live(**_: Any) -> Any:
    """Return the manifest as an API server stores it: defaults added, quantities rewritten, empty values dropped."""
    found = copy.deepcopy(stamped(MANIFEST))
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["imagePullPolicy"] = "IfNotPresent"
    container["resources"]["limits"] = {"cpu": "1", "memory": "1024Mi"}
    del container["env"][1]["value"]
    container["env"].insert(0, {"name": "INJECTED", "value": "x"})
    found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "4"
    found["spec"]["replicas"] = 9
    return found


def worker(found: Any) -> Any:
    return found["spec"]["template"]["spec"]["containers"][0]


def test_defaults_and_rewrites_of_the_api_server_are_no_drift() -> None:
    assert drifted_fields(MANIFEST, live()) == ()


def test_fingerprint_ignores_replicas() -> None:
    other = copy.deepcopy(MANIFEST)
    other["spec"]["replicas"] = 0

    assert fingerprint(other) == fingerprint(MANIFEST)


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda c: c.update(image="evil"), "spec.template.spec.containers[worker].image"),
        (lambda c: c["env"][1].update(value="2"), "spec.template.spec.containers[worker].env[A].value"),
        (lambda c: c["env"].pop(1), "spec.template.spec.containers[worker].env[A]"),
        (lambda c: c.update(args=["run"]), "spec.template.spec.containers[worker].args"),
        (lambda c: c.update(args=["run", "y"]), "spec.template.spec.containers[worker].args[1]"),
        (
            lambda c: c["resources"]["limits"].update(cpu="2"),
            "spec.template.spec.containers[worker].resources.limits.cpu",
        ),
    ],
)
def test_edit_is_drift_at_its_path(edit: Any, path: str) -> None:
    found = live()
    edit(worker(found))

    assert drifted_fields(MANIFEST, found) == (path,)


def test_removed_label_is_drift() -> None:
    found = live()
    del found["metadata"]["labels"]["a"]

    assert drifted_fields(MANIFEST, found) == ("metadata.labels.a",)


def test_manifest_of_another_rendering_is_not_compared() -> None:
    found = live()
    worker(found)["image"] = "evil"
    found["metadata"]["annotations"][APPLIED] = "of-another-rendering"

    assert drifted_fields(MANIFEST, found) == ()


def test_ports_with_equal_number_differ_by_protocol() -> None:
    def manifest(*protocols: str) -> dict[str, Any]:
        ports = [{"containerPort": 53, "protocol": protocol} for protocol in protocols]
        container = {"name": "worker", "ports": ports}
        meta = {"name": "d", "labels": {}, "annotations": {}}
        return {"metadata": meta, "spec": {"template": {"spec": {"containers": [container]}}}}

    assert drifted_fields(manifest("TCP", "UDP"), stamped(manifest("TCP", "UDP"))) == ()
    live = {**manifest("TCP", "TCP"), "metadata": stamped(manifest("TCP", "UDP"))["metadata"]}
    assert drifted_fields(manifest("TCP", "UDP"), live) == ("spec.template.spec.containers[worker].ports[1].protocol",)

"""What counts as an edit of an applied manifest, and what the API server merely rewrites."""

import base64
import copy
import hashlib
import zlib
from typing import Any

import pytest

from activity_operator.cluster.drift import (
    APPLIED_SPEC,
    LARGEST_RECORD,
    RENDERING,
    drifted_fields,
    fingerprint,
    is_outdated,
    rendering,
    stamped,
    stamped_as_applied,
)

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


def next_version() -> dict[str, Any]:
    """Return the manifest as an operator renders it that adds a variable, for a later generation of the pool."""
    found = copy.deepcopy(MANIFEST)
    found["metadata"]["annotations"]["activitypools.dev/generation"] = "2"
    worker(found)["env"].append({"name": "NEW", "value": "1"})
    return found


def test_another_generation_is_the_same_rendering_and_no_edit() -> None:
    later = copy.deepcopy(MANIFEST)
    later["metadata"]["annotations"]["activitypools.dev/generation"] = "2"

    assert not is_outdated(later, live())
    assert drifted_fields(later, live()) == ()


def test_edit_of_another_rendering_is_found_by_its_record() -> None:
    found = live()
    assert is_outdated(next_version(), found)
    assert drifted_fields(next_version(), found) == ()

    worker(found)["image"] = "evil"
    assert drifted_fields(next_version(), found) == ("spec.template.spec.containers[worker].image",)


def test_applied_spec_is_sent_again_with_present_metadata() -> None:
    found = live()
    worker(found)["image"] = "evil"
    sent = stamped_as_applied(next_version(), found)

    assert worker(sent) == worker(MANIFEST)
    assert "replicas" not in sent["spec"]
    assert sent["metadata"]["labels"][RENDERING] == rendering(MANIFEST)
    assert sent["metadata"]["annotations"]["activitypools.dev/generation"] == "2"
    sent["metadata"]["annotations"].pop("activitypools.dev/generation")
    assert sent["metadata"] == stamped(MANIFEST)["metadata"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda meta: meta.update(labels={}, annotations={}),
        lambda meta: meta["annotations"].pop(APPLIED_SPEC),
        lambda meta: meta["annotations"].update({APPLIED_SPEC: "no Base64!"}),
        lambda meta: meta["annotations"].update({APPLIED_SPEC: "AAAA"}),
        lambda meta: meta["annotations"].update({APPLIED_SPEC: base64.b64encode(zlib.compress(b"[1]")).decode()}),
        lambda meta: meta["labels"].update({RENDERING: "edited"}),
    ],
    ids=["earlier operator", "no record", "not encoded", "not compressed", "no object", "edited label"],
)
def test_without_a_valid_record_nothing_is_an_edit_or_sent(spoil: Any) -> None:
    found = live()
    worker(found)["image"] = "evil"
    spoil(found["metadata"])

    assert is_outdated(next_version(), found)
    assert drifted_fields(next_version(), found) == ()
    assert stamped_as_applied(next_version(), found)["spec"] == {}


def test_record_of_something_else_is_not_applied() -> None:
    found = live()
    forged = stamped({**MANIFEST, "spec": {"template": {"spec": {"hostNetwork": True}}}})
    found["metadata"]["annotations"][APPLIED_SPEC] = forged["metadata"]["annotations"][APPLIED_SPEC]

    assert stamped_as_applied(next_version(), found)["spec"] == {}


def test_removed_label_of_the_rendering_is_drift() -> None:
    found = live()
    del found["metadata"]["labels"][RENDERING]

    assert not is_outdated(MANIFEST, found)
    assert drifted_fields(MANIFEST, found) == (f"metadata.labels.{RENDERING}",)


def test_spec_that_is_too_large_is_not_recorded() -> None:
    large = copy.deepcopy(MANIFEST)
    noise = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(LARGEST_RECORD // 32))
    worker(large)["args"] = [noise]
    found = stamped(large)

    assert APPLIED_SPEC not in found["metadata"]["annotations"]
    assert not is_outdated(large, found)


def test_ports_with_equal_number_differ_by_protocol() -> None:
    def manifest(*protocols: str) -> dict[str, Any]:
        ports = [{"containerPort": 53, "protocol": protocol} for protocol in protocols]
        container = {"name": "worker", "ports": ports}
        meta = {"name": "d", "labels": {}, "annotations": {}}
        return {"metadata": meta, "spec": {"template": {"spec": {"containers": [container]}}}}

    assert drifted_fields(manifest("TCP", "UDP"), stamped(manifest("TCP", "UDP"))) == ()
    live = {**manifest("TCP", "TCP"), "metadata": stamped(manifest("TCP", "UDP"))["metadata"]}
    assert drifted_fields(manifest("TCP", "UDP"), live) == ("spec.template.spec.containers[worker].ports[1].protocol",)

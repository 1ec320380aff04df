"""From raw objects to facts."""

from typing import Any

import pytest

from activity_operator.cluster.drift import stamped
from activity_operator.cluster.observe import controller_uid, deployment_facts, pod_facts, pool_facts
from activity_worker.contract import LABEL_REVISION

COST = "controller.kubernetes.io/pod-deletion-cost"


def pod(status: dict[str, Any] | None = None, node: str = "n1", **meta: Any) -> dict[str, Any]:
    base = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {LABEL_REVISION: "r1"}}
    return {"metadata": {**base, **meta}, "spec": {"nodeName": node}, "status": status or {}}


def container(**more: Any) -> dict[str, Any]:
    return {"name": "worker", **more}


def test_a_ready_worker() -> None:
    facts = pod_facts(
        pod(
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}],
                "containerStatuses": [
                    {"name": "sidecar", "restartCount": 9},
                    container(restartCount=1, state={"running": {"startedAt": "2026-01-01T00:00:05Z"}}),
                ],
            },
            creationTimestamp="2026-01-01T00:00:00Z",
        )
    )

    assert facts.ready
    assert facts.ready_since - facts.created == 10
    assert facts.running_since - facts.created == 5
    assert (facts.restarts, facts.revision, facts.assigned) == (1, "r1", True)


def test_a_pod_that_has_no_status_yet_is_pending_and_unassigned() -> None:
    facts = pod_facts(pod(node=""))

    assert (facts.phase, facts.assigned, facts.ready, facts.deletion_cost) == ("Pending", False, False, None)


def test_why_a_container_waits() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    facts = pod_facts(pod({"phase": "Pending", "containerStatuses": [container(state=waiting)]}))

    assert (facts.waiting_reason, facts.waiting_message) == ("ImagePullBackOff", "not found")


def test_an_init_container_that_cannot_start_is_why_the_worker_waits() -> None:
    init = {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    facts = pod_facts(pod({"phase": "Pending", "initContainerStatuses": [init]}))

    assert facts.waiting_reason == "ErrImagePull"


def test_how_the_last_container_ended() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    back_off = {"waiting": {"reason": "CrashLoopBackOff"}}
    facts = pod_facts(pod({"phase": "Running", "containerStatuses": [container(state=back_off, lastState=last)]}))

    assert (facts.last_exit_code, facts.last_exit_reason, facts.waiting_reason) == (
        137,
        "OOMKilled",
        "CrashLoopBackOff",
    )


def test_an_evicted_pod_says_so() -> None:
    assert pod_facts(pod({"phase": "Failed", "reason": "Evicted"})).last_exit_reason == "Evicted"


def test_a_pod_that_no_node_takes() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}

    assert pod_facts(pod({"phase": "Pending", "conditions": [condition]}, node="")).unschedulable == "0/1 nodes"


@pytest.mark.parametrize(
    ("said", "node", "since"),
    [({}, "n1", 1_767_225_600.0), ({"startTime": "2026-01-01T00:00:01Z"}, "n1", 0.0), ({}, "", 0.0)],
    ids=["its kubelet has said nothing", "its kubelet has begun", "it has no node"],
)
def test_since_when_a_node_is_silent_about_its_pod(said: dict[str, Any], node: str, since: float) -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    assert pod_facts(pod({"phase": "Pending", "conditions": [scheduled], **said}, node=node)).untaken_since == since


def test_the_deletion_cost_is_read_and_nonsense_is_none() -> None:
    assert pod_facts(pod(annotations={COST: "-1000"})).deletion_cost == -1000
    assert pod_facts(pod(annotations={COST: "soon"})).deletion_cost is None


def test_a_deployment_with_its_failure() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    raw = {
        "metadata": {
            "name": "p-r1",
            "uid": "d",
            "resourceVersion": "5",
            "labels": {LABEL_REVISION: "r1"},
            "annotations": {"activitypools.dev/generation": "3"},
        },
        "spec": {"replicas": 4},
        "status": {"conditions": [failure]},
    }

    facts = deployment_facts(raw)

    assert (facts.revision, facts.rendered_generation, facts.replicas) == ("r1", 3, 4)
    assert (facts.failure, facts.failure_reason) == ("exceeded quota", "FailedCreate")


def test_a_deployment_is_edited_or_of_another_rendering_or_as_it_should_be() -> None:
    manifest = {
        "metadata": {"name": "p-r1", "labels": {}, "annotations": {}},
        "spec": {"paused": False, "minReadySeconds": 1},
    }
    live = stamped(manifest)
    live["metadata"] |= {"uid": "d", "resourceVersion": "5"}

    def judged(raw: dict[str, Any], against: dict[str, Any] | None) -> tuple[bool, bool]:
        facts = deployment_facts(raw, against)
        return facts.drifted, facts.outdated

    assert judged(live, manifest) == (False, False)
    assert judged({**live, "spec": {"minReadySeconds": 9}}, manifest) == (True, False)
    assert judged(live, {**manifest, "spec": {"minReadySeconds": 2}}) == (False, True)
    assert judged(live, {**manifest, "metadata": {"name": "p-r2"}}) == (False, False)
    assert judged(live, None) == (False, False)


def test_a_pool_being_deleted_with_its_proven_revision() -> None:
    meta = {"namespace": "ns", "name": "p", "uid": "u", "generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    facts = pool_facts({"metadata": meta, "status": {"provenRevision": "r1"}})

    assert (facts.generation, facts.deleting, facts.proven_revision) == (2, True, "r1")


def test_only_the_controlling_owner_counts() -> None:
    owners = [{"uid": "a"}, {"uid": "b", "controller": True}]

    assert controller_uid({"metadata": {"ownerReferences": owners}}) == "b"
    assert controller_uid({"metadata": {}}) == ""


@pytest.mark.parametrize(
    ("decisions", "emptied_at"),
    [
        ([{"at": "1970-01-01T01:00:00Z", "desired": 0, "limit": "demand"}], 3000.0),
        ([{"at": "1970-01-01T01:00:00Z", "desired": 0, "limit": "paused"}], 0.0),
        ([{"at": "1970-01-01T01:00:00Z", "desired": 1, "limit": "demand"}], 0.0),
        (
            [
                {"at": "1970-01-01T01:00:00Z", "desired": 0, "limit": "demand"},
                {"at": "1970-01-01T02:00:00Z", "desired": 3, "limit": "demand"},
            ],
            0.0,
        ),
        ([], 0.0),
    ],
    ids=["out of work", "paused", "working", "working again", "never"],
)
def test_a_pool_that_went_to_zero_for_want_of_work_had_none_then(
    decisions: list[dict[str, object]], emptied_at: float
) -> None:
    meta = {"namespace": "team", "name": "resize", "uid": "u"}

    assert pool_facts({"metadata": meta, "status": {"decisions": decisions}}).emptied_at == emptied_at

"""Conversion of raw Kubernetes objects to facts."""

from typing import Any

import pytest

from activity_operator.cluster.drift import stamped
from activity_operator.cluster.facts import controller_uid, deployment_facts, pod_facts, pool_facts
from activity_worker.contract import LABEL_REVISION

COST = "controller.kubernetes.io/pod-deletion-cost"


def pod(status: dict[str, Any] | None = None, node: str = "n1", **meta: Any) -> dict[str, Any]:
    base = {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {LABEL_REVISION: "r1"}}
    return {"metadata": {**base, **meta}, "spec": {"nodeName": node}, "status": status or {}}


def container(**more: Any) -> dict[str, Any]:
    return {"name": "worker", **more}


def test_facts_of_a_ready_worker() -> None:
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


def test_pod_without_status_is_pending_and_unassigned() -> None:
    facts = pod_facts(pod(node=""))

    assert (facts.phase, facts.assigned, facts.ready, facts.deletion_cost) == ("Pending", False, False, None)


def test_waiting_reason_and_message_of_a_container_are_read() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    facts = pod_facts(pod({"phase": "Pending", "containerStatuses": [container(state=waiting)]}))

    assert (facts.waiting_reason, facts.waiting_message) == ("ImagePullBackOff", "not found")


def test_waiting_init_container_sets_the_waiting_reason() -> None:
    init = {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}
    facts = pod_facts(pod({"phase": "Pending", "initContainerStatuses": [init]}))

    assert facts.waiting_reason == "ErrImagePull"


def test_exit_code_and_reason_of_the_last_container_are_read() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    back_off = {"waiting": {"reason": "CrashLoopBackOff"}}
    facts = pod_facts(pod({"phase": "Running", "containerStatuses": [container(state=back_off, lastState=last)]}))

    assert (facts.last_exit_code, facts.last_exit_reason, facts.waiting_reason) == (
        137,
        "OOMKilled",
        "CrashLoopBackOff",
    )


def test_evicted_pod_has_evicted_as_its_exit_reason() -> None:
    assert pod_facts(pod({"phase": "Failed", "reason": "Evicted"})).last_exit_reason == "Evicted"


def test_unschedulable_pod_has_the_message_of_its_condition() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}

    assert pod_facts(pod({"phase": "Pending", "conditions": [condition]}, node="")).unschedulable == "0/1 nodes"


@pytest.mark.parametrize(
    ("pod_status", "node", "since"),
    [({}, "n1", 1_767_225_600.0), ({"startTime": "2026-01-01T00:00:01Z"}, "n1", 0.0), ({}, "", 0.0)],
    ids=["its kubelet is silent", "its kubelet has started it", "it has no node"],
)
def test_untaken_since_is_the_time_of_scheduling_until_the_kubelet_answers(
    pod_status: dict[str, Any], node: str, since: float
) -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    assert (
        pod_facts(pod({"phase": "Pending", "conditions": [scheduled], **pod_status}, node=node)).untaken_since == since
    )


def test_deletion_cost_is_read_and_an_invalid_one_is_none() -> None:
    assert pod_facts(pod(annotations={COST: "-1000"})).deletion_cost == -1000
    assert pod_facts(pod(annotations={COST: "soon"})).deletion_cost is None


def test_facts_of_a_deployment_with_a_replica_failure() -> None:
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


def test_deployment_is_drifted_outdated_both_or_current() -> None:
    manifest = {
        "metadata": {"name": "p-r1", "labels": {}, "annotations": {}},
        "spec": {"paused": False, "minReadySeconds": 1},
    }
    live = stamped(manifest)
    live["metadata"] |= {"uid": "d", "resourceVersion": "5"}

    def drifted_and_outdated(raw: dict[str, Any], manifest_now: dict[str, Any] | None) -> tuple[bool, bool]:
        facts = deployment_facts(raw, manifest_now)
        return facts.drifted, facts.outdated

    assert drifted_and_outdated(live, manifest) == (False, False)
    assert drifted_and_outdated({**live, "spec": {"minReadySeconds": 9}}, manifest) == (True, False)
    assert drifted_and_outdated(live, {**manifest, "spec": {"minReadySeconds": 2}}) == (False, True)
    edited = {**live, "spec": {"minReadySeconds": 9}}
    assert drifted_and_outdated(edited, {**manifest, "spec": {"minReadySeconds": 2}}) == (True, True)
    assert drifted_and_outdated(live, {**manifest, "metadata": {"name": "p-r2"}}) == (False, False)
    assert drifted_and_outdated(live, None) == (False, False)


def test_facts_of_a_deleting_pool_with_proven_revision() -> None:
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
def test_emptied_at_is_set_only_by_a_last_decision_of_zero_demand(
    decisions: list[dict[str, object]], emptied_at: float
) -> None:
    meta = {"namespace": "team", "name": "resize", "uid": "u"}

    assert pool_facts({"metadata": meta, "status": {"decisions": decisions}}).emptied_at == emptied_at

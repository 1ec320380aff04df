"""Reading pods, pools and log lines."""

import json
from typing import Any

import pytest

from tests.demo.facts import DELETION_COST, Pod, Pool, TaskLine, pod, pool, replicas, task_line


def raw_pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "name": "demo-1-abc"}, "status": status}


def container(**fields: Any) -> dict[str, Any]:
    return {"restartCount": 0, "state": {}, "lastState": {}, **fields}


def test_a_pod_that_was_just_made_is_no_more_than_that() -> None:
    assert pod(raw_pod()) == Pod("u", "demo-1-abc")
    assert pod(raw_pod()).short == "abc"


def test_a_pod_is_read_with_its_cordon_and_its_end() -> None:
    raw = raw_pod(
        conditions=[{"type": "Ready", "status": "True"}],
        containerStatuses=[container(state={"running": {}}, restartCount=2)],
    )
    raw["metadata"] |= {"annotations": {DELETION_COST: "-1000"}, "deletionTimestamp": "now"}

    assert pod(raw) == Pod("u", "demo-1-abc", running=True, ready=True, cordoned=True, leaving=True, restarts=2)


@pytest.mark.parametrize(
    ("fields", "trouble"),
    [
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ""),
        ({"state": {"waiting": {"reason": "ErrImagePull"}}}, "ErrImagePull"),
        ({"state": {"running": {}}, "lastState": {"terminated": {"reason": "OOMKilled"}}}, "OOMKilled"),
        ({"state": {"running": {}}, "lastState": {"terminated": {"reason": "Completed"}}}, ""),
    ],
)
def test_only_what_is_out_of_order_is_trouble(fields: dict[str, Any], trouble: str) -> None:
    assert pod(raw_pod(containerStatuses=[container(**fields)])).trouble == trouble


def test_a_pool_without_status_says_nothing() -> None:
    assert pool({"spec": {}}) == Pool()


def test_a_pool_is_read_by_its_condition_ready() -> None:
    conditions = [
        {"type": "Active", "status": "False", "reason": "NoTasks", "message": ""},
        {"type": "Ready", "status": "False", "reason": "ImagePullFailed", "message": "no such image"},
    ]

    assert pool({"status": {"conditions": conditions}}) == Pool("False", "ImagePullFailed", "no such image")


def test_replicas_are_those_asked_for() -> None:
    assert replicas({"spec": {"replicas": 3}, "status": {"replicas": 1}}) == 3
    assert replicas({"spec": {}}) == 0


def test_a_line_with_a_lease_is_about_a_task_and_its_last_one_has_the_seconds() -> None:
    began = {"message": "task started", "lease": "7bbff260", "slot": "x"}

    assert task_line(json.dumps(began)) == TaskLine("7bbff260", ended=False)
    assert task_line(json.dumps({**began, "message": "task succeeded", "seconds": 3.036})) == TaskLine("7bbff260", True)


@pytest.mark.parametrize("text", ["", "handler says hello", "[1]", '{"message": "worker ready", "slots": 1}'])
def test_other_lines_are_about_no_task(text: str) -> None:
    assert task_line(text) is None

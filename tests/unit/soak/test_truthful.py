"""When a pool's status says what is."""

from typing import Any

import pytest

from tests.soak.watch import truthful


def pool(replicas: int = 2, ready: int = 2, seen: int = 3) -> dict[str, Any]:
    status = {"observedGeneration": seen, "replicas": replicas, "readyReplicas": ready}
    return {"metadata": {"generation": 3}, "status": status}


def pod(*, ready: bool = True, leaving: bool = False) -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": {"deletionTimestamp": "now"} if leaving else {}, "status": status}


def deployment(replicas: int) -> dict[str, Any]:
    return {"spec": {"replicas": replicas}}


def test_a_status_is_true_while_pods_are_as_wanted_and_as_it_says() -> None:
    assert truthful(pool(), [deployment(1), deployment(1)], [pod(), pod()])


def test_a_pod_that_leaves_counts_no_more() -> None:
    assert truthful(pool(), [deployment(2)], [pod(), pod(), pod(leaving=True)])


@pytest.mark.parametrize(
    ("said", "wanted", "pods"),
    [
        (pool(seen=2), 2, [pod(), pod()]),
        (pool(replicas=1, ready=1), 2, [pod(), pod()]),
        (pool(), 3, [pod(), pod()]),
        (pool(), 2, [pod(), pod(ready=False)]),
        ({"metadata": {"generation": 1}}, 0, []),
    ],
    ids=["an older generation", "another number", "a pod still to come", "one not ready", "no status yet"],
)
def test_a_status_is_not_true(said: dict[str, Any], wanted: int, pods: list[dict[str, Any]]) -> None:
    assert not truthful(said, [deployment(wanted)], pods)

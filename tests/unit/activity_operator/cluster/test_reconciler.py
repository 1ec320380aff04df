"""Reconciling a pool: failures are retried forever, only the leader acts, and never twice at the same time."""

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest

from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeError
from activity_operator.cluster.pod_changes import PodChanges
from activity_operator.cluster.reconciler import Reconciler
from activity_operator.cluster.resources import POOLS
from activity_operator.cluster.status_writer import NameTakenError
from activity_operator.core.decision import (
    EmitEvent,
    SentinelOrder,
)
from activity_operator.core.lifecycle_ring import PodEvent
from activity_worker.contract import Directive
from tests.unit.activity_operator.cluster.faked_reconciler import ARN, KEY, LOOPS, FakedReconciler
from tests.unit.activity_operator.virtual_time import settle


async def test_writes_come_before_directives_to_workers() -> None:
    faked = FakedReconciler()
    assert await faked.look_after() == 30.0

    order = ("order", SentinelOrder(2, 1, counts=True, watched=True))
    assert faked.log == [("prepare", "ns"), "apply", ("directives", {"w": Directive.DRAIN}), order]


async def test_written_size_is_logged_even_if_a_later_action_fails(caplog: pytest.LogCaptureFixture) -> None:
    faked, errors = FakedReconciler(), [ApiError(500, "", "oops")]

    async def write_replicas(work: Any, actions: Any) -> None:
        work.scaled, faked.replicas["p-1"] = 1 - faked.replicas.get("p-1", 0), 1
        if errors:
            raise errors.pop()

    faked.apply = write_replicas  # type: ignore[method-assign]
    faked.reconciler = Reconciler(faked.rooms(), ready=lambda: True, clock=lambda: faked.now)
    with caplog.at_level("INFO", "activity_operator.cluster.decision_log"):
        for _ in range(3):
            await faked.look_after()

    assert [(line["namespace"], line["pool"], line["from"], line["to"]) for line in keys_of(caplog)] == [
        ("ns", "p", 0, 1)
    ]
    assert [entry for entry in faked.log if entry[0] == "scaled"] == [("scaled", 1)]


def keys_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the keys of the log lines about decisions."""
    return [record.__dict__["keys"] for record in caplog.records if "keys" in record.__dict__]


async def test_failed_write_sends_no_directives_and_is_retried_with_backoff() -> None:
    faked = FakedReconciler()
    faked.trouble = [ApiError(500, "", "oops") for _ in range(3)]
    waits = [await faked.look_after() for _ in range(3)]

    assert waits == [0.5, 1.0, 2.0]
    assert not [entry for entry in faked.log if entry[0] == "directives"]
    assert await faked.look_after() == 30.0
    faked.trouble = [ApiError(500, "", "oops")]
    assert await faked.look_after() == 0.5, "a success must forget the failures"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (ApiError(403, "Forbidden", "denied by a webhook"), "403 Forbidden: denied by a webhook"),
        (NameTakenError("Deployment p-1 belongs to another owner"), "Deployment p-1 belongs to another owner"),
        (
            KeyError("a secret of ours"),
            "the operator failed (KeyError): its log says where, and this is a bug to report",
        ),
    ],
)
async def test_repeated_failure_sets_a_condition_until_a_success(trouble: Exception, words: str) -> None:
    faked = FakedReconciler()
    faked.trouble = [trouble for _ in range(3)]
    for _ in range(2):
        await faked.look_after()
    assert not faked.conditions

    await faked.look_after()
    assert [(c["type"], c["status"], c["reason"], c["message"], c["observedGeneration"]) for c in faked.conditions] == [
        ("Ready", "False", "ReconcileFailed", words, 1)
    ]
    await faked.look_after()
    assert not faked.conditions


async def test_transient_api_errors_set_no_condition() -> None:
    faked = FakedReconciler()
    faked.trouble = [ApiUnreachableError("down") for _ in range(9)] + [ApiError(409, "Conflict", "changed")] * 9
    for _ in range(18):
        await faked.look_after()

    assert not faked.conditions


async def test_retry_after_of_the_server_lengthens_the_wait() -> None:
    faked = FakedReconciler()
    faked.trouble = [ApiError(429, "TooManyRequests", "slow down", retry_after=7.0)]

    assert await faked.look_after() == 7.0


async def test_conflict_is_retried_at_once() -> None:
    faked = FakedReconciler()
    faked.trouble = [ApiError(409, "Conflict", "changed")]

    assert await faked.look_after() == pytest.approx(0.1)
    assert faked.results == ["conflict"]


async def test_unreachable_api_server_stops_the_polls_and_no_count() -> None:
    faked = FakedReconciler()
    faked.trouble = [ApiUnreachableError("down")]
    await faked.look_after()

    assert "stop_polls" in faked.log
    assert ("withdraw", False) not in faked.log


async def test_unexpected_error_in_one_pool_is_retried() -> None:
    faked = FakedReconciler()
    faked.trouble = [ZeroDivisionError(), cast("Exception", KubeError("x"))]

    assert await faked.look_after() == 0.5
    assert faked.results == ["error"]


async def test_memory_is_kept_when_a_write_fails() -> None:
    faked = FakedReconciler()
    faked.trouble = [ApiError(500, "", "oops")]
    await faked.look_after()
    await faked.look_after()

    assert [memory.quiet_since for memory in faked.memories] == [None, 1.0]


async def test_new_term_begins_without_memory() -> None:
    faked = FakedReconciler()
    await faked.look_after()
    faked.reconciler.begin_term()
    await faked.look_after()

    assert [memory.quiet_since for memory in faked.memories] == [None, None]


async def test_end_of_term_removes_the_metrics_of_pools() -> None:
    faked = FakedReconciler()
    await faked.look_after()
    faked.reconciler.end_term()

    assert "all metrics" in faked.log


async def test_recreated_pool_begins_without_memory() -> None:
    faked = FakedReconciler()
    await faked.look_after()
    again = faked.pool(9)
    again["metadata"]["uid"] = "u2"
    faked.store.put(POOLS, again)
    await faked.look_after()

    assert faked.memories[-1].quiet_since is None


async def test_standby_and_leader_without_synced_store_do_nothing() -> None:
    faked = FakedReconciler()
    faked.leading = False
    assert await faked.look_after() is None
    faked.leading, faked.swept = True, False
    assert await faked.look_after() is None

    assert faked.log == []


async def test_lost_contact_ends_the_polls_and_not_the_counts() -> None:
    faked = FakedReconciler()
    faked.reachable = False
    await faked.look_after()

    assert ("order", SentinelOrder(0, 1, counts=True, watched=True)) in faked.log


async def test_leadership_lost_during_writes_sends_no_directives() -> None:
    faked = FakedReconciler()

    async def lose(work: Any, actions: Any) -> None:
        faked.leading = False

    faked.reconciler._deps.applier.apply = lose  # type: ignore[method-assign]
    assert await faked.look_after() is None

    assert not [entry for entry in faked.log if entry[0] in {"directives", "order"}]


async def test_leadership_lost_before_the_status_writes_no_status() -> None:
    faked = FakedReconciler()

    def lose(*_: Any) -> dict[str, Any]:
        faked.leading = False
        return {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "False"}]}

    faked.status = lose  # type: ignore[method-assign]
    assert await faked.look_after() is None

    assert (faked.written, faked.results) == ([], ["not_leading"])


async def test_status_built_on_an_old_view_conflicts_and_rereads_the_pool() -> None:
    """A late status of a former leader must not replace the new leader's; the watch may miss the change."""
    faked = FakedReconciler()
    faked.ring = True
    faked.live = {**faked.pool(version=50), "status": {"observedGeneration": 1, "decisions": ["another leader's"]}}

    assert await faked.look_after() == 0.1
    assert (faked.written, faked.results) == ([], ["conflict"])
    assert faked.store.pool(KEY) == faked.live

    faked.now += 0.1
    faked.written = [None] * 50
    await faked.look_after()
    assert faked.written[-1] == ["another leader's", 2]


async def test_deleted_pool_is_forgotten_everywhere() -> None:
    faked = FakedReconciler()
    await faked.look_after()
    faked.store.remove(POOLS, faked.pool(9))
    await faked.look_after()

    assert ("withdraw", True) in faked.log
    assert ("metrics", KEY) in faked.log


async def test_foreign_scaling_of_a_deployment_causes_one_event() -> None:
    faked = FakedReconciler()
    faked.replicas = {"p-r1": 4, "p-r2": 0}
    await faked.look_after()
    faked.replicas["p-r1"] = 0
    await faked.look_after()
    await faked.look_after()

    events = [entry[1] for entry in faked.log if isinstance(entry, tuple) and isinstance(entry[-1], EmitEvent)]
    assert [(event.reason, event.message) for event in events] == [
        ("EditReverted", "Deployment p-r1 was scaled by somebody (4 -> 0); the pool decides its size")
    ]


async def test_status_is_computed_only_when_it_may_be_written() -> None:
    faked = FakedReconciler()
    faked.status = lambda *_: {"observedGeneration": 1, "replicas": faked.built}  # type: ignore[method-assign]
    await faked.look_after()
    for faked.now in (1.0, 2.0, 9.5):
        assert await faked.look_after() == 10.0 - faked.now, "the counts are due ten seconds after the last write"
    assert faked.built == 1

    faked.now = 10.0
    await faked.look_after()
    assert (faked.built, len(faked.written)) == (2, 2)
    faked.urgent_part = ("Ready", "Stalled")
    await faked.look_after()
    assert faked.built == 3


async def test_loop_is_given_back_between_two_pools_that_need_no_write() -> None:
    """A reconciliation without a write never suspends, so nothing else would run until the queue is empty."""
    faked = FakedReconciler()
    for number in range(200):
        faked.queue.add(("ns", f"deleted-{number}"))
    loops = [asyncio.create_task(faked.reconciler.run()) for _ in range(8)]
    done = [0]
    while len(faked.results) < 200:
        await asyncio.sleep(0)
        done.append(len(faked.results))
    for loop in loops:
        loop.cancel()

    assert max(after - before for before, after in pairwise(done)) <= len(loops)


async def test_scale_up_does_not_wait_for_writes_of_counts() -> None:
    """The API server takes its time: without a limit every loop would wait for the answer to a write of counts."""
    faked = FakedReconciler()
    faked.live["status"] = {"observedGeneration": 1}
    answers = asyncio.Event()

    async def slow(*_: Any) -> dict[str, Any]:
        await answers.wait()
        return faked.live

    faked.apply_status = slow  # type: ignore[method-assign]
    faked.status = lambda *_: {"observedGeneration": 1, "replicas": 3}  # type: ignore[method-assign]
    loops = [asyncio.create_task(faked.reconciler.run()) for _ in range(LOOPS)]
    for number in range(20):
        pool = faked.pool(activityArn=f"{ARN}{number}")
        pool["metadata"] |= {"name": f"p{number}", "uid": f"uid-{number}"}
        faked.store.put(POOLS, pool)
        await settle()
    for loop in loops:
        loop.cancel()

    assert faked.log.count("apply") == 21


async def test_changes_of_pods_are_recorded_once() -> None:
    faked = FakedReconciler()
    event = PodEvent("OOMKilled", "exit code 137", "p-1")
    faked.changes = PodChanges(gone=frozenset({"u9"}), events=(event,), lost=("oom",))
    await faked.look_after()
    faked.changes = PodChanges()
    await faked.look_after()

    kinds = {"event", "lost", "forget"}
    recorded = [entry for entry in faked.log if isinstance(entry, tuple) and entry[0] in kinds]
    assert recorded == [("event", "OOMKilled", "exit code 137", "p-1"), ("lost", "oom"), ("forget", "u9")]


async def test_decisions_between_two_writes_of_the_status_are_kept() -> None:
    faked = FakedReconciler()
    faked.ring = True
    for faked.now in (0.0, 3.0, 6.0, 10.0):
        await faked.look_after()

    assert faked.written == [[1], [1, 2, 3, 4]]

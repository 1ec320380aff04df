"""Reconciling a pool whose writes fail: nothing stays as it was before, nor is tried all the time."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.cluster.apply import Rejection
from activity_operator.cluster.kube import ApiError, ApiUnreachableError
from activity_operator.cluster.reconciler import SOONEST_SECONDS, Reconciler
from activity_operator.cluster.resources import POOLS
from activity_operator.core.decision import (
    ApplyRevision,
    Decision,
    ScalingMemory,
)
from activity_operator.core.observation import Observation
from tests.unit.activity_operator.cluster.faked_reconciler import KEY, FakedReconciler


@pytest.mark.parametrize(
    ("trouble", "tries"), [(ApiError(403, "Forbidden", "denied"), 3), (ApiUnreachableError("down"), 1)]
)
async def test_workers_poll_again_while_no_decision_is_carried_out(trouble: Exception, tries: int) -> None:
    """Their directives stay as they were, and the operator's polls end. Without this rule no process polls."""
    faked = FakedReconciler()
    faked.trouble = [trouble for _ in range(tries)]
    for _ in range(tries - 1):
        await faked.look_after()
    assert ("end stand-by", KEY) not in faked.log

    await faked.look_after()
    assert ("end stand-by", KEY) in faked.log


async def test_workers_of_a_pool_with_an_invalid_spec_poll_again() -> None:
    faked = FakedReconciler()
    faked.store.put(POOLS, faked.pool(2, activityArn="no ARN"))
    await faked.look_after()

    assert ("end stand-by", KEY) in faked.log


@pytest.mark.parametrize("trouble", [True, False], ids=["failed write", "budget used up"])
async def test_condition_that_could_not_be_written_is_not_put_off(trouble: bool) -> None:
    """Only counts wait for ten seconds after the last write."""
    faked = FakedReconciler(rate=1.0)
    faked.status = lambda *_: {"observedGeneration": 1, "replicas": 1}  # type: ignore[method-assign]
    await faked.look_after()
    condition = {"type": "Stalled", "status": "True", "reason": "AccessDenied"}
    faked.status = lambda *_: {"observedGeneration": 1, "conditions": [condition]}  # type: ignore[method-assign]
    faked.urgent_part = ("Stalled",)
    if trouble:
        faked.now = 1.0
        faked.live = {**faked.live, "metadata": {**faked.live["metadata"], "resourceVersion": "9"}}
    wait = await faked.look_after()
    assert faked.conditions == []

    assert wait is not None
    faked.now += wait
    await faked.look_after()
    assert faked.conditions == [condition]


def refusing(faked: FakedReconciler, *, wanted: bool) -> None:
    """Let the API server have refused a revision at 0 s; `wanted`: each decision still has that write."""
    refusal = Rejection("PodTemplateRejected", "no such field", "", 0.0)
    decide = faked.decide

    def with_write(spec: Any, observation: Observation, memory: ScalingMemory) -> Decision:
        writes = (ApplyRevision("p-1", "1", 1),) if wanted else ()
        return replace(decide(spec, observation, memory), actions=writes)

    async def apply(work: Any, actions: Any) -> None:
        faked.seen.append(work.rejected)
        if faked.now == 0.0:
            work.rejected = refusal
        elif wanted:
            work.defer_until = 70.0

    faked.decide = with_write  # type: ignore[method-assign]
    faked.apply = apply  # type: ignore[method-assign]
    faked.reconciler = Reconciler(faked.rooms(), ready=lambda: True, clock=lambda: faked.now)


async def test_refused_write_that_is_not_wanted_any_more_is_forgotten() -> None:
    """A pool that is set to Recommend, or whose Deployment somebody has put back, writes no Deployment any more."""
    faked = FakedReconciler()
    refusing(faked, wanted=False)
    assert await faked.look_after() == SOONEST_SECONDS, "the status still shows the refusal"

    faked.now = 100.0
    assert await faked.look_after() == 30.0
    assert faked.seen == [None, None]


async def test_refused_write_waits_for_the_end_of_an_edit_conflict() -> None:
    faked = FakedReconciler()
    refusing(faked, wanted=True)
    await faked.look_after()
    faked.now = 61.0

    assert await faked.look_after() == 9.0

"""The growth guard: growth stops with a reason while workers idle, crash, never report or never start."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, EmitEvent, ScalingMemory
from activity_operator.core.fleet import START_DEADLINE_SECONDS
from activity_operator.core.growth_guard import IDLE_SECONDS
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import BacklogCount, Observation, PodFacts, SourceFacts, WorkerFacts
from activity_operator.core.status import pool_status
from activity_worker.contract import Directive
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pending, pod, worker
from tests.unit.activity_operator.core.load import Load, load_of, spec_of

SPEC = spec_of("counted")
#: Tasks have waited long enough for idle workers to stop growth.
LONG = ScalingMemory(waiting_since=NOW - IDLE_SECONDS)


def decided(
    *facts: PodFacts | WorkerFacts, tasks: int = 9, memory: ScalingMemory = LONG, spec: PoolSpec = SPEC, **more: Any
) -> tuple[Decision, dict[str, Any], list[EmitEvent]]:
    """Return the decision for `tasks` waiting tasks, the conditions, and the Warnings."""
    source = SourceFacts(counts=counted(tasks), held=more.pop("held", 0))
    observation = _of_revision(observed(*facts, source=source, **more), revision_of(spec))
    decision = decide(spec, observation, memory)
    conditions = {c["type"]: c for c in pool_status(spec, observation, decision, None, ())["conditions"]}
    return decision, conditions, [a for a in decision.actions if isinstance(a, EmitEvent) and a.kind == "Warning"]


def _of_revision(observation: Observation, revision: str) -> Observation:
    return replace(observation, pods=tuple(replace(one, revision=revision) for one in observation.pods))


def idle(name: str, seconds: float = 300.0) -> WorkerFacts:
    return worker(name, idle_seconds=seconds)


def crashed(name: str, **more: Any) -> tuple[PodFacts, WorkerFacts]:
    """Return a worker that reported before its container crashed, and is not running again."""
    down = {"ready": False, "running_since": 0.0, "waiting_reason": "CrashLoopBackOff", "last_exit_code": 137}
    return pod(name, **{**down, **more}), worker(name, reported_at=NOW - 20)


def mute(name: str, **more: Any) -> PodFacts:
    """Return a pod that has long been ready without any report."""
    return pod(name, **{"ready_since": NOW - START_DEADLINE_SECONDS, **more})


def test_worker_kept_for_jobs_of_other_programs_does_not_stop_growth() -> None:
    """It has nothing to do, because the jobs are another program's."""
    kept = observed(pod("w1"), idle("w1"), source=SourceFacts(counts=(BacklogCount(0, True, NOW, running=5),)))
    decision = decide(SPEC, _of_revision(kept, revision_of(SPEC)), LONG)

    assert (decision.size.desired, decision.memory.waiting_since) == (1, None)


def test_idle_workers_stop_growth_while_tasks_are_counted_as_waiting() -> None:
    decision, conditions, warnings = decided(idle("w1"), idle("w2"), idle("w3"))

    assert (decision.size.desired, decision.size.limit) == (3, "idle")
    assert (conditions["ScalingLimited"]["status"], conditions["ScalingLimited"]["reason"]) == ("True", "WorkersIdle")
    (warning,) = warnings
    assert warning.reason == "WorkersIdle"
    assert warning.message == (
        "growth stopped: 3 of 3 workers have had nothing to do for 60 s while tasks are said to wait "
        "(pod w1: do its polls ask for the very tasks that are counted?)"
    )


@pytest.mark.parametrize(
    ("facts", "memory", "held"),
    [
        ((idle("w1"), idle("w2"), busy("b1"), busy("b2")), LONG, 0),
        ((idle("w1", 59.0), idle("w2", 59.0)), LONG, 0),
        ((idle("w1"), idle("w2"), idle("b1", 4.0), idle("b2", 4.0)), LONG, 0),
        ((idle("w1"), idle("w2")), ScalingMemory(waiting_since=NOW - IDLE_SECONDS + 1), 0),
        ((idle("w1"), idle("w2")), ScalingMemory(), 0),
        ((idle("w1"), idle("w2")), LONG, 1),
        ((pending("n1"), pending("n2"), busy("b1")), LONG, 0),
    ],
    ids=[
        "half of them work",
        "just idle",
        "half of them worked just now",
        "just waiting",
        "just come",
        "leases are held",
        "some start",
    ],
)
def test_growth_goes_on_while_more_workers_may_help(
    facts: tuple[WorkerFacts, ...], memory: ScalingMemory, held: int
) -> None:
    assert decided(*facts, memory=memory, held=held)[0].size.desired >= 9


def test_single_idle_worker_does_not_stop_growth() -> None:
    """A single idle worker may itself be at fault."""
    assert decided(idle("w1"))[0].size.desired == 2
    assert decided(idle("w1"), busy("w2"))[0].size.desired == 10


def test_min_workers_holds_beside_idle_workers() -> None:
    spec = spec_of("counted", minWorkers=4)

    assert decided(idle("w1"), idle("w2"), spec=spec)[0].size.desired == 4


def test_idle_workers_are_reported_at_max_workers() -> None:
    decision, conditions, warnings = decided(idle("w1"), idle("w2"), spec=spec_of("counted", maxWorkers=2))

    assert (decision.size.desired, conditions["ScalingLimited"]["reason"]) == (2, "WorkersIdle")
    assert len(warnings) == 1


def test_crashing_workers_stop_growth() -> None:
    decision, conditions, warnings = decided(*crashed("w1"), *crashed("w2"), busy("w3"), memory=ScalingMemory())

    assert decision.size.desired == 3
    assert conditions["ScalingLimited"]["reason"] == "WorkersCrashing"
    assert warnings[0].message == (
        "growth stopped: 2 of 3 workers ended and had to be started again "
        "(pod w1: exit code 137; `kubectl logs w1 --previous` says why)"
    )


@pytest.mark.parametrize(("up_for", "desired"), [(0, 2), (59, 2), (60, 11)])
def test_restarted_worker_counts_as_healthy_after_a_minute(up_for: float, desired: int) -> None:
    again = [
        fact
        for name in ("w1", "w2")
        for fact in (
            pod(name, running_since=NOW - up_for, ready_since=NOW - up_for, last_exit_code=1),
            busy(name),
        )
    ]

    assert decided(*again, memory=ScalingMemory())[0].size.desired == desired


def test_workers_that_exit_with_0_do_not_stop_growth() -> None:
    ended = {"last_exit_code": 0, "waiting_reason": ""}

    assert decided(*crashed("w1", **ended), *crashed("w2", **ended), memory=ScalingMemory())[0].size.desired > 3


def test_ready_pods_without_reports_stop_growth() -> None:
    decision, conditions, warnings = decided(mute("w1"), mute("w2"), busy("w3"), memory=ScalingMemory())

    assert decision.size.desired == 3
    assert conditions["ScalingLimited"]["reason"] == "WorkersMute"
    assert "pod w1: may it reach the operator's report Service?" in warnings[0].message
    assert decided(mute("w1"), mute("w2"), leader_since=NOW - 30, memory=ScalingMemory())[0].size.desired > 3


def test_pods_without_their_volumes_stop_growth_until_a_later_one_runs() -> None:
    stuck = pending("n1", created=NOW - 90, unprepared_since=NOW - 80)
    decision, conditions, _ = decided(stuck, busy("w1"), memory=ScalingMemory())

    assert (decision.size.desired, conditions["ScalingLimited"]["reason"]) == (2, "WorkersNotReady")
    assert "growth stopped: pod n1 has waited 60 s" in conditions["ScalingLimited"]["message"]
    later = pod("w1", created=NOW - 30)
    assert decided(stuck, later, busy("w1"), memory=ScalingMemory())[0].size.desired == 10


def test_pod_on_a_silent_node_does_not_stop_growth() -> None:
    lost = pending("n1", created=NOW - 90, untaken_since=NOW - 80)
    decision, conditions, _ = decided(lost, busy("w1"), memory=ScalingMemory())

    assert (decision.size.desired, conditions["ScalingLimited"]["status"]) == (10, "False")


def test_unschedulable_pods_do_not_stop_growth() -> None:
    """A cluster autoscaler adds nodes for Pending pods."""
    unschedulable_pod = pending("n1", assigned=False, unschedulable="0/3 nodes are available", created=NOW - 300)

    assert decided(unschedulable_pod, busy("w1"), memory=ScalingMemory())[0].size.desired == 10


def test_pool_looks_again_when_idle_workers_could_stop_growth() -> None:
    waits = ScalingMemory(waiting_since=NOW - 20)
    in_time = decided(idle("w1", 30.0), idle("w2", 50.0), memory=waits)[0].look_again_in

    assert in_time is not None
    assert in_time <= IDLE_SECONDS - 50


def test_pool_looks_again_when_crashed_worker_could_stop_growth() -> None:
    decision = decided(*crashed("w1"), idle("w2", 2.0), busy("w3"), memory=ScalingMemory(), tasks=0)[0]

    assert decision.look_again_in is not None
    assert decision.look_again_in <= 3.0


def test_contested_deployment_is_a_condition_and_one_warning() -> None:
    decision, conditions, warnings = decided(busy("w1"), tasks=0, edit_conflict="Deployment p is also written by keda")

    assert conditions["ScalingLimited"]["reason"] == "DeploymentContested"
    assert conditions["ScalingLimited"]["message"] == "Deployment p is also written by keda"
    assert [event.reason for event in warnings] == ["DeploymentContested"]
    again = decided(busy("w1"), tasks=0, edit_conflict="Deployment p is also written by keda", memory=decision.memory)
    assert again[2] == []


@pytest.mark.parametrize("cost", [-1, -999, -5000, 3])
def test_foreign_deletion_cost_drains_no_worker(cost: int) -> None:
    """Cluster autoscalers rank pods by the same annotation; only the operator's own value is a cordon."""
    decision, _, _ = decided(pod("w1", deletion_cost=cost), busy("w1"), tasks=0)

    assert decision.directives == {"w1": Directive.RUN}
    assert decision.size.desired == 1


def report_growing_false_count(load: Load, seconds: float) -> None:
    """Let the source report a false count that grows by one every five seconds."""
    began = load.harness.now
    load.lies = lambda _count, now: 3 + int(now - began) // 5
    load.run(seconds)


@pytest.mark.parametrize("kind", ["counted", "with running", "prometheus"])
def test_false_growing_count_raises_the_size_for_a_minute_only(kind: str) -> None:
    load = load_of(kind, maxWorkers=50)
    report_growing_false_count(load, 240)

    reached = load.sizes[75]
    assert max(load.sizes) == reached < 20
    assert load.harness.warnings == ["WorkersIdle"]
    load.lies = lambda count, _: count
    load.run_until_idle(600, 0)
    assert load.harness.pods == {}


def test_workers_that_crash_in_their_first_task_stop_growth() -> None:
    load = load_of("counted", maxWorkers=50)
    load.arrive(3)
    load.run(8)
    for _ in range(240):
        # Each worker crashes as it takes its task, and the task waits again: the count never falls.
        for name in load.harness.busy():
            load.harness.truth.crash(name, 1, "Error")
        load.lies = lambda _count, _now: 8
        load.run(1)

    assert max(load.sizes) <= 8
    assert "WorkersCrashing" in load.harness.warnings

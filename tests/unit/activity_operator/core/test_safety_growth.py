"""Growth that does not help stops and says so: workers that stay idle, end again and again, are mute, never start."""

from dataclasses import replace
from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, Say, ScalingMemory
from activity_operator.core.fleet import START_DEADLINE_SECONDS
from activity_operator.core.futility import IDLE_SECONDS
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import Observation, PodFacts, SourceFacts, WorkerFacts
from activity_operator.core.report import status
from activity_worker.contract import Directive
from tests.unit.activity_operator.core.builders import NOW, busy, coming, counted, pod, seen, worker
from tests.unit.activity_operator.core.load import Load, load_of, spec_of

SPEC = spec_of("counted")
#: Tasks have waited for long.
LONG = ScalingMemory(waiting_since=NOW - IDLE_SECONDS)


def decided(
    *facts: PodFacts | WorkerFacts, tasks: int = 9, memory: ScalingMemory = LONG, spec: PoolSpec = SPEC, **more: Any
) -> tuple[Decision, dict[str, Any], list[Say]]:
    """Return what is decided with so many tasks waiting, the conditions, and the Warnings."""
    source = SourceFacts(signals=counted(tasks), held=more.pop("held", 0))
    situation = _of_revision(seen(*facts, source=source, **more), revision_of(spec))
    decision = decide(spec, situation, memory)
    conditions = {c["type"]: c for c in status(spec, situation, decision, None, ())["conditions"]}
    return decision, conditions, [a for a in decision.actions if isinstance(a, Say) and a.kind == "Warning"]


def _of_revision(situation: Observation, revision: str) -> Observation:
    return replace(situation, pods=tuple(replace(one, revision=revision) for one in situation.pods))


def idle(name: str, seconds: float = 300.0) -> WorkerFacts:
    return worker(name, idle_seconds=seconds)


def crashed(name: str, **more: Any) -> tuple[PodFacts, WorkerFacts]:
    """A worker that had reported, whose container ended by a fault and is not up again."""
    down = {"ready": False, "running_since": 0.0, "waiting_reason": "CrashLoopBackOff", "last_exit_code": 137}
    return pod(name, **{**down, **more}), worker(name, reported_at=NOW - 20)


def mute(name: str, **more: Any) -> PodFacts:
    """A pod that has long been ready and never reported."""
    return pod(name, **{"ready_since": NOW - START_DEADLINE_SECONDS, **more})


def test_workers_that_stay_idle_while_tasks_are_said_to_wait_get_no_more_beside_them() -> None:
    decision, conditions, warnings = decided(idle("w1"), idle("w2"), idle("w3"))

    assert (decision.size.desired, decision.size.limit) == (3, "idle")
    assert (conditions["ScalingLimited"]["status"], conditions["ScalingLimited"]["reason"]) == ("True", "WorkersIdle")
    (said,) = warnings
    assert said.reason == "WorkersIdle"
    assert said.message == (
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
        ((coming("n1"), coming("n2"), busy("b1")), LONG, 0),
    ],
    ids=[
        "as many work",
        "just idle",
        "as many worked just now",
        "just waiting",
        "just come",
        "leases are held",
        "some start",
    ],
)
def test_growth_goes_on_while_workers_may_yet_help(
    facts: tuple[WorkerFacts, ...], memory: ScalingMemory, held: int
) -> None:
    assert decided(*facts, memory=memory, held=held)[0].size.desired >= 9


def test_one_idle_worker_alone_may_be_at_fault_itself_and_gets_another() -> None:
    assert decided(idle("w1"))[0].size.desired == 2
    assert decided(idle("w1"), busy("w2"))[0].size.desired == 10


def test_min_workers_holds_whoever_idles() -> None:
    spec = spec_of("counted", minWorkers=4)

    assert decided(idle("w1"), idle("w2"), spec=spec)[0].size.desired == 4


def test_at_max_workers_it_is_said_too() -> None:
    decision, conditions, warnings = decided(idle("w1"), idle("w2"), spec=spec_of("counted", maxWorkers=2))

    assert (decision.size.desired, conditions["ScalingLimited"]["reason"]) == (2, "WorkersIdle")
    assert len(warnings) == 1


def test_workers_that_end_again_and_again_get_no_more_beside_them() -> None:
    decision, conditions, warnings = decided(*crashed("w1"), *crashed("w2"), busy("w3"), memory=ScalingMemory())

    assert decision.size.desired == 3
    assert conditions["ScalingLimited"]["reason"] == "WorkersCrashing"
    assert warnings[0].message == (
        "growth stopped: 2 of 3 workers ended and had to be started again "
        "(pod w1: exit code 137; `kubectl logs w1 --previous` says why)"
    )


@pytest.mark.parametrize(("up_for", "desired"), [(0, 2), (59, 2), (60, 11)])
def test_a_worker_that_was_started_again_is_believed_in_after_a_minute(up_for: float, desired: int) -> None:
    again = [
        fact
        for name in ("w1", "w2")
        for fact in (
            pod(name, running_since=NOW - up_for, ready_since=NOW - up_for, last_exit_code=1),
            busy(name),
        )
    ]

    assert decided(*again, memory=ScalingMemory())[0].size.desired == desired


def test_workers_that_ended_well_are_no_reason() -> None:
    ended = {"last_exit_code": 0, "waiting_reason": ""}

    assert decided(*crashed("w1", **ended), *crashed("w2", **ended), memory=ScalingMemory())[0].size.desired > 3


def test_pods_that_are_ready_and_never_report_get_no_more_beside_them() -> None:
    decision, conditions, warnings = decided(mute("w1"), mute("w2"), busy("w3"), memory=ScalingMemory())

    assert decision.size.desired == 3
    assert conditions["ScalingLimited"]["reason"] == "WorkersMute"
    assert "pod w1: may it reach the operator's report Service?" in warnings[0].message
    assert decided(mute("w1"), mute("w2"), leader_since=NOW - 30, memory=ScalingMemory())[0].size.desired > 3


def test_pods_that_wait_for_what_they_mount_get_no_more_beside_them_until_one_comes() -> None:
    stuck = coming("n1", created=NOW - 90, unprepared_since=NOW - 80)
    decision, conditions, _ = decided(stuck, busy("w1"), memory=ScalingMemory())

    assert (decision.size.desired, conditions["ScalingLimited"]["reason"]) == (2, "WorkersNotReady")
    assert "growth stopped: pod n1 has waited 60 s" in conditions["ScalingLimited"]["message"]
    later = pod("w1", created=NOW - 30)
    assert decided(stuck, later, busy("w1"), memory=ScalingMemory())[0].size.desired == 10


def test_a_pod_whose_node_is_silent_stops_no_growth_because_others_go_elsewhere() -> None:
    lost = coming("n1", created=NOW - 90, untaken_since=NOW - 80)
    decision, conditions, _ = decided(lost, busy("w1"), memory=ScalingMemory())

    assert (decision.size.desired, conditions["ScalingLimited"]["status"]) == (10, "False")


def test_pods_that_no_node_takes_are_counted_for_who_adds_nodes() -> None:
    homeless = coming("n1", assigned=False, unschedulable="0/3 nodes are available", created=NOW - 300)

    assert decided(homeless, busy("w1"), memory=ScalingMemory())[0].size.desired == 10


def test_the_pool_looks_again_when_time_alone_could_stop_its_growth() -> None:
    waits = ScalingMemory(waiting_since=NOW - 20)
    in_time = decided(idle("w1", 30.0), idle("w2", 50.0), memory=waits)[0].look_again_in

    assert in_time is not None
    assert in_time <= IDLE_SECONDS - 50


def test_the_pool_looks_again_when_an_idle_worker_no_longer_speaks_against_one_that_crashed() -> None:
    decision = decided(*crashed("w1"), idle("w2", 2.0), busy("w3"), memory=ScalingMemory(), tasks=0)[0]

    assert decision.look_again_in is not None
    assert decision.look_again_in <= 3.0


def test_who_else_writes_the_deployments_is_a_condition_and_one_warning() -> None:
    decision, conditions, warnings = decided(busy("w1"), tasks=0, contested="Deployment p is also written by keda")

    assert conditions["ScalingLimited"]["reason"] == "DeploymentContested"
    assert conditions["ScalingLimited"]["message"] == "Deployment p is also written by keda"
    assert [said.reason for said in warnings] == ["DeploymentContested"]
    again = decided(busy("w1"), tasks=0, contested="Deployment p is also written by keda", memory=decision.memory)
    assert again[2] == []


@pytest.mark.parametrize("cost", [-1, -999, -5000, 3])
def test_a_deletion_cost_that_somebody_else_wrote_sends_nobody_away(cost: int) -> None:
    """Autoscalers of nodes rank pods by the same annotation: who is not ours to cordon goes on."""
    decision, _, _ = decided(pod("w1", deletion_cost=cost), busy("w1"), tasks=0)

    assert decision.directives == {"w1": Directive.RUN}
    assert decision.size.desired == 1


def growing_lie(load: Load, seconds: float) -> None:
    """Let a count that nobody can work off grow by one in five seconds."""
    began = load.world.now
    load.lies = lambda _count, now: 3 + int(now - began) // 5
    load.run(seconds)


@pytest.mark.parametrize("kind", ["counted", "with running", "prometheus"])
def test_a_count_that_grows_and_is_a_lie_is_followed_for_a_minute_and_no_further(kind: str) -> None:
    load = load_of(kind, maxWorkers=50)
    growing_lie(load, 240)

    reached = load.sizes[75]
    assert max(load.sizes) == reached < 20
    assert load.world.warnings == ["WorkersIdle"]
    load.lies = lambda count, _: count
    load.run_until_idle(600, 0)
    assert load.world.pods == {}


def test_workers_that_end_in_their_first_task_are_not_multiplied() -> None:
    load = load_of("counted", maxWorkers=50)
    load.arrive(3)
    load.run(8)
    for _ in range(240):
        # Each ends as it takes its task, and the task waits again: the count never falls.
        for name in load.world.busy():
            load.world.truth.crash(name, 1, "Error")
        load.lies = lambda _count, _now: 8
        load.run(1)

    assert max(load.sizes) <= 8
    assert "WorkersCrashing" in load.world.warnings

"""The start breaker: what opens it, when it retries, what closes it."""

from dataclasses import replace
from itertools import pairwise

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.core.breaker import GROWTH_STEP, failure, retry_at, watch_starts, workers_allowed
from activity_operator.core.decide import decide
from activity_operator.core.decision import Breaker, EmitEvent, ScalingMemory, SetReplicas
from activity_operator.core.fleet import Member
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, Observation, PodFacts, WorkerFacts
from activity_operator.core.saturation import Saturation
from activity_operator.core.situation import situation_of
from tests.unit.activity_operator.core import builders
from tests.unit.activity_operator.core.builders import NOW, POOL, REVISION, fleet_of, observed, pending, pod, worker
from tests.unit.activity_operator.core.load import load_of

UNPULLABLE = pending("n1", waiting_reason="ImagePullBackOff", waiting_message="not found")
OPEN = Breaker(3, NOW - 1, Reason.IMAGE_PULL_FAILED, "pod n1: ImagePullBackOff", revision=REVISION)


def watched(observation: Observation, breaker: Breaker | None = None) -> tuple[Breaker, Member | None]:
    return watch_starts(replace(situation_of(builders.pool(), observation), revision=REVISION), breaker or Breaker())


def deployment(replicas: int = 1, failure: str = "", revision: str = REVISION) -> DeploymentFacts:
    return DeploymentFacts("pool-r1", "d1", "7", revision, 1, replicas, failure=failure)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (UNPULLABLE, Reason.IMAGE_PULL_FAILED),
        (pending(waiting_reason="CreateContainerConfigError"), Reason.WORKERS_NOT_READY),
        (pending(waiting_reason="RunContainerError"), Reason.NO_RUNTIME),
        (pending(last_exit_code=127, last_exit_reason="StartError"), Reason.NO_RUNTIME),
        (pending(waiting_reason="CrashLoopBackOff", last_exit_code=1, last_exit_reason="Error"), Reason.WORKER_CRASHED),
        (pending(last_exit_code=137, last_exit_reason="OOMKilled"), Reason.WORKER_CRASHED),
        (pending(last_exit_code=143, last_exit_reason="Error"), Reason.NO_RUNTIME),
        (pod(ready=False, running_since=NOW - 60), Reason.NO_RUNTIME),
    ],
    ids=[
        "unpullable",
        "bad config",
        "cannot start",
        "no entrypoint",
        "crash loop",
        "out of memory",
        "no probe",
        "silent",
    ],
)
def test_failed_start_opens_breaker_with_its_reason(facts: PodFacts, reason: Reason) -> None:
    breaker, _ = watched(observed(facts))

    assert (breaker.open, breaker.reason) == (True, reason)
    assert facts.name in breaker.message


@pytest.mark.parametrize(
    "facts",
    [
        pending(),
        pending(waiting_reason="ContainerCreating"),
        pending(unschedulable="0/3 nodes are available"),
        pod(ready=False, running_since=NOW - 59),
        pod(),
    ],
    ids=["pending", "creating", "unschedulable", "silent for 59 s", "ready, no report yet"],
)
def test_pending_pod_does_not_open_breaker(facts: PodFacts) -> None:
    assert watched(observed(facts)) == (Breaker(), None)


def test_crash_after_first_report_is_not_a_failed_start() -> None:
    observation = observed(pending("w1", last_exit_code=1, last_exit_reason="Error"), worker("w1"))

    assert failure(fleet_of(observation).members[0]) is None


def test_pod_that_still_fails_when_breaker_closes_is_checked_again_soon() -> None:
    """A pod whose image cannot be pulled may cause no event for five minutes, so the decision sets a time.

    The next look is due within a second.
    """
    revision = revision_of(builders.pool())
    came = pod("w2", revision=revision, created=NOW, running_since=NOW, ready_since=NOW)
    stuck = pending("n1", revision=revision, waiting_reason="ImagePullBackOff")
    opened = replace(OPEN, revision=revision)
    observation = observed(stuck, came, worker("w2"))
    decision = decide(builders.pool(), observation, ScalingMemory(breaker=opened))

    assert not decision.memory.breaker.open
    assert decision.look_again_in is not None
    assert decision.look_again_in <= 1.0


def test_retry_without_demand_closes_breaker_at_the_next_look() -> None:
    """While the breaker is open the operator does not poll, so no task and no event would cause another look."""
    revision = revision_of(builders.pool())
    refused = Breaker(3, NOW - 60, Reason.QUOTA_EXCEEDED, "no quota", refused=True, revision=revision)
    empty = observed(pool=replace(POOL, proven_revision=revision))
    due = decide(builders.pool(), empty, ScalingMemory(breaker=refused))
    later = decide(builders.pool(), empty, due.memory)

    assert (due.memory.breaker.open, due.sentinel.polls, due.look_again_in) == (True, 0, 1.0)
    assert (later.memory.breaker.open, later.sentinel.polls) == (False, 2)


@pytest.mark.parametrize(("most", "replicas"), [(3, None), (4, 4)])
def test_retry_after_quota_refusal_stays_within_max_workers(most: int, replicas: int | None) -> None:
    spec = builders.pool(maxWorkers=most, minWorkers=1, activation={"mode": "None"})
    revision = revision_of(spec)
    leaving = pod("w3", revision=revision, deletion_cost=-1000)
    pods = (pod("w1", revision=revision), pod("w2", revision=revision), leaving)
    working = [worker(name, busy=1) for name in ("w1", "w2", "w3")]
    made = DeploymentFacts("pool-x", "d", "5", revision, 1, 3)
    refused = Breaker(2, NOW - 60, Reason.QUOTA_EXCEEDED, "no quota", refused=True, revision=revision)
    full = Saturation(NOW - 60, NOW - 60, frozenset({"w1", "w2"}))
    memory = ScalingMemory(breaker=refused, saturation=full)
    decision = decide(spec, observed(*pods, *working, deployments=(made,)), memory)
    raised = [action.replicas for action in decision.actions if isinstance(action, SetReplicas)]

    assert decision.size.limit == "breaker"
    assert raised == ([] if replicas is None else [replicas])


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "not ready"])
@pytest.mark.parametrize(("code", "reason"), [(137, "Error"), (137, "OOMKilled"), (1, "Error"), (0, "Completed")])
def test_in_place_restart_is_not_a_failed_start_for_new_leader(ready: bool, code: int, reason: str) -> None:
    """A new leader must not delete the pod of a busy worker because its container was restarted some time ago."""
    restarted = pod(ready=ready, restarts=1, last_exit_code=code, last_exit_reason=reason)

    for age in (0.5, 3_600.0):
        observation = observed(restarted, leader_since=NOW - age, pool=replace(POOL, proven_revision=REVISION))
        assert watched(observation) == (Breaker(), None)


def test_crashed_start_is_replaced_only_while_its_container_is_down() -> None:
    """A running container may still report; it has a task if only the operator was unreachable for a moment."""
    again = pod(ready=False, running_since=NOW - 3, created=NOW - 20, last_exit_code=137, last_exit_reason="OOMKilled")
    waits = replace(again, running_since=0.0, waiting_reason="CrashLoopBackOff")

    assert [failed and failed.pod.name for _, failed in (watched(observed(again)), watched(observed(waits)))] == [
        None,
        "w1",
    ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [("exceeded quota: pods=10", Reason.QUOTA_EXCEEDED), ("denied by a webhook", Reason.POD_TEMPLATE_REJECTED)],
)
def test_refused_pod_creation_opens_breaker_without_pod_to_replace(message: str, reason: Reason) -> None:
    breaker, failed = watched(observed(deployments=(deployment(failure=message),)))

    assert (breaker.reason, breaker.message, failed) == (reason, message, None)


def test_failures_of_another_revision_do_not_count() -> None:
    old = pending(waiting_reason="ImagePullBackOff", revision="r0")

    assert watched(observed(old, deployments=(deployment(failure="quota", revision="r0"),))) == (Breaker(), None)


def test_retries_come_after_0_5_10_20_40_and_80_seconds() -> None:
    """A start that always fails is retried at these seconds, with one look a second."""
    breaker, tries = Breaker(), []
    for second in range(320):
        breaker, failed = watched(observed(UNPULLABLE, now=NOW + second), breaker)
        if failed is not None:
            tries.append(second)

    assert tries == [0, 5, 15, 35, 75, 155, 235, 315]


def test_closed_breaker_has_no_retry() -> None:
    assert retry_at(Breaker()) is None
    assert retry_at(Breaker(2, NOW)) == NOW + 5
    assert retry_at(Breaker(99, NOW)) == NOW + 80


def test_open_breaker_reports_latest_cause_between_retries() -> None:
    crashed = pending("n2", last_exit_code=1, last_exit_reason="Error")
    breaker, failed = watched(observed(crashed), OPEN)

    assert (breaker.trips, breaker.opened_at, failed) == (3, OPEN.opened_at, None)
    assert breaker.reason == Reason.WORKER_CRASHED


def newcomer(**more: float) -> tuple[PodFacts, WorkerFacts]:
    return pod("w1", created=NOW - 1, running_since=NOW, ready_since=NOW), worker("w1", **more)


def test_report_of_new_pod_closes_breaker_unless_more_started_than_fail() -> None:
    assert watched(observed(*newcomer(), UNPULLABLE), OPEN) == (Breaker(), None)

    beside = observed(*newcomer(), worker("w2"), UNPULLABLE)
    assert watched(beside, OPEN)[0].succeeded
    assert watched(replace(beside, now=retry_at(OPEN) or 0.0), replace(OPEN, succeeded=True))[0].succeeded is False


def test_report_from_before_opening_does_not_close_breaker() -> None:
    breaker, _ = watched(observed(*newcomer(reported_at=OPEN.opened_at), UNPULLABLE), OPEN)

    assert breaker.open


def test_reports_of_older_workers_do_not_close_breaker() -> None:
    breaker, failed = watched(observed(worker("old"), UNPULLABLE), OPEN)

    assert (breaker.trips, failed) == (3, None)


def test_report_of_slowly_started_pod_closes_breaker() -> None:
    slow = pod("w1", created=NOW - 40, running_since=NOW - 30, ready_since=NOW)

    assert watched(observed(slow, worker("w1"), UNPULLABLE), OPEN)[0] == Breaker()


def test_breaker_stays_open_while_a_retry_starts() -> None:
    assert watched(observed(pending("n2")), OPEN) == (OPEN, None)


def test_breaker_stays_open_until_successor_of_deleted_pod_appears() -> None:
    gone = pending("n1", deleting=True)

    assert watched(observed(gone, deployments=(deployment(replicas=1),)), OPEN) == (OPEN, None)


def test_breaker_closes_when_no_pod_is_left_to_start() -> None:
    assert watched(observed(deployments=(deployment(replicas=0),)), OPEN) == (Breaker(), None)


def test_silent_start_is_reported_after_1_and_replaced_after_3_minutes() -> None:
    """A handler that loads a model may take two minutes to import; replaced earlier, it would never start."""
    slow = pod(ready=False, ready_since=0.0, running_since=NOW)
    breaker, reported, replaced = Breaker(), None, None
    for second in range(300):
        breaker, failed = watched(observed(slow, now=NOW + second), breaker)
        reported = second if reported is None and breaker.open else reported
        replaced = second if replaced is None and failed is not None else replaced

    assert (reported, replaced) == (60, 180)


def test_first_report_after_no_runtime_closes_breaker() -> None:
    opened = Breaker(1, NOW + 60, Reason.NO_RUNTIME, "", revision=REVISION)
    slow = pod(ready=True, ready_since=NOW + 110, running_since=NOW)

    assert watched(observed(slow, worker(reported_at=NOW + 109.5), now=NOW + 110), opened) == (Breaker(), None)


@pytest.mark.parametrize("many", [10, 40])
def test_growth_passes_one_node_on_which_no_pod_starts(many: int) -> None:
    load = load_of("counted", maxWorkers=50)
    load.seconds, load.harness.truth.bad_node_pods = 10_000.0, 1
    load.arrive(10)
    load.run(60)
    assert (len(load.harness.busy()), load.harness.warnings) == (10, ["ImagePullFailed"])

    load.arrive(many - 10)
    load.replicas.clear()
    load.run(600)

    assert len(load.harness.busy()) == many
    steps = [after - before for before, after in pairwise(load.replicas)]
    assert max(steps, default=0) <= many * GROWTH_STEP + 1
    assert len(load.harness.pods) <= many + 2
    assert load.harness.truth.taken == []


def test_image_that_vanished_stops_growth_after_two_pods() -> None:
    load = load_of("counted", maxWorkers=50)
    load.seconds = 10_000.0
    load.arrive(9)
    load.run(700)
    assert len(load.harness.busy()) == 9

    load.harness.truth.unpullable.add("h:1")
    load.arrive(1)
    load.run(60)
    load.arrive(30)
    load.run(600)

    assert (len(load.harness.pods), len(load.harness.busy())) == (11, 9)


@pytest.mark.parametrize(
    ("started", "failing", "starting", "succeeded", "more"),
    [
        (1, 1, 0, True, 0),
        (2, 1, 0, False, 1),
        (2, 1, 1, False, 0),
        (2, 0, 1, False, 1),
        (9, 2, 0, False, 0),
        (9, 1, 0, True, 3),
        (9, 1, 2, True, 1),
        (9, 4, 3, True, 0),
        (4, 4, 0, True, 0),
    ],
)
def test_growth_beside_failed_pods_depends_on_how_many_started(
    started: int, failing: int, starting: int, succeeded: bool, more: int
) -> None:
    facts: list[PodFacts | WorkerFacts] = [worker(f"w{n}") for n in range(started)]
    facts += [replace(UNPULLABLE, name=f"f{n}", uid=f"f{n}") for n in range(failing)]
    facts += [pending(f"s{n}") for n in range(starting)]
    situation = replace(situation_of(builders.pool(), observed(*facts)), revision=REVISION)
    present = started + failing + starting

    assert workers_allowed(situation, replace(OPEN, succeeded=succeeded)) == present + more
    assert workers_allowed(situation, replace(OPEN, succeeded=succeeded, refused=True)) == present


def test_messages_are_bounded() -> None:
    breaker, _ = watched(observed(pending(waiting_reason="ErrImagePull", waiting_message="x" * 9_000)))

    assert len(breaker.message) == 1024


def test_lasting_refusal_between_retries_is_not_another_failure() -> None:
    waiting = Breaker(3, NOW - 1, Reason.QUOTA_EXCEEDED, "exceeded quota", refused=True, revision=REVISION)
    still = observed(worker("w1"), deployments=(deployment(2, failure="exceeded quota"),))

    breaker, _ = watched(still, waiting)

    assert (breaker.trips, breaker.opened_at, breaker.trying) == (3, NOW - 1, False)
    later, _ = watched(replace(still, now=retry_at(waiting) or 0.0), waiting)
    assert later.trying


def test_worker_created_before_the_refusal_does_not_close_breaker() -> None:
    refused = Breaker(2, NOW - 3, Reason.QUOTA_EXCEEDED, "exceeded quota", refused=True, revision=REVISION)
    up = pod("w1", created=NOW - 10, running_since=NOW - 1, ready_since=NOW)
    new = pod("w2", created=NOW - 1, running_since=NOW, ready_since=NOW)

    assert watched(observed(up, worker("w1")), refused)[0].open
    assert not watched(observed(new, worker("w2")), refused)[0].open


def test_deleting_pool_gets_no_write() -> None:
    situation = observed(worker("w1"), pool=replace(POOL, deleting=True), deployments=(deployment(1),))
    decision = decide(builders.pool(minWorkers=5, paused=True), situation, ScalingMemory())

    assert [action for action in decision.actions if not isinstance(action, EmitEvent)] == []

"""The start breaker: what trips it, when it tries again, what closes it."""

from dataclasses import replace

import pytest

from activity_operator.api.conditions import Reason
from activity_operator.core.breaker import failure, retry_at, watch_starts
from activity_operator.core.decide import decide
from activity_operator.core.decision import Breaker, Say, ScalingMemory, SetReplicas
from activity_operator.core.fleet import Member
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, Observation, PodFacts, WorkerFacts
from activity_operator.core.saturation import Saturation
from tests.unit.activity_operator.core import builders
from tests.unit.activity_operator.core.builders import NOW, POOL, REVISION, coming, crew, pod, seen, worker

UNPULLABLE = coming("n1", waiting_reason="ImagePullBackOff", waiting_message="not found")
OPEN = Breaker(3, NOW - 1, Reason.IMAGE_PULL_FAILED, "pod n1: ImagePullBackOff", revision=REVISION)


def watched(situation: Observation, breaker: Breaker | None = None) -> tuple[Breaker, Member | None]:
    return watch_starts(situation, crew(situation), REVISION, breaker or Breaker())


def deployment(replicas: int = 1, failure: str = "", revision: str = REVISION) -> DeploymentFacts:
    return DeploymentFacts("pool-r1", "d1", "7", revision, 1, replicas, failure=failure)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (UNPULLABLE, Reason.IMAGE_PULL_FAILED),
        (coming(waiting_reason="CreateContainerConfigError"), Reason.WORKERS_NOT_READY),
        (coming(waiting_reason="RunContainerError"), Reason.NO_RUNTIME),
        (coming(last_exit_code=127, last_exit_reason="StartError"), Reason.NO_RUNTIME),
        (coming(waiting_reason="CrashLoopBackOff", last_exit_code=1, last_exit_reason="Error"), Reason.WORKER_CRASHED),
        (coming(last_exit_code=137, last_exit_reason="OOMKilled"), Reason.WORKER_CRASHED),
        (coming(last_exit_code=143, last_exit_reason="Error"), Reason.NO_RUNTIME),
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
def test_a_failed_start_is_named(facts: PodFacts, reason: Reason) -> None:
    breaker, _ = watched(seen(facts))

    assert (breaker.open, breaker.reason) == (True, reason)
    assert facts.name in breaker.message


@pytest.mark.parametrize(
    "facts",
    [
        coming(),
        coming(waiting_reason="ContainerCreating"),
        coming(unschedulable="0/3 nodes are available"),
        pod(ready=False, running_since=NOW - 59),
        pod(),
    ],
    ids=["pending", "creating", "unschedulable", "silent for 59 s", "ready and not yet heard"],
)
def test_a_pod_that_may_still_come_trips_nothing(facts: PodFacts) -> None:
    assert watched(seen(facts)) == (Breaker(), None)


def test_a_worker_that_crashes_after_it_reported_is_no_failed_start() -> None:
    situation = seen(coming("w1", last_exit_code=1, last_exit_reason="Error"), worker("w1"))

    assert failure(crew(situation).members[0]) is None


def test_one_that_fails_beside_who_closed_it_is_looked_at_again_soon() -> None:
    """Nothing else need happen: a pod whose image cannot be pulled may say nothing new for five minutes."""
    revision = revision_of(builders.pool())
    came = pod("w2", revision=revision, created=NOW, running_since=NOW, ready_since=NOW)
    stuck = coming("n1", revision=revision, waiting_reason="ImagePullBackOff")
    opened = replace(OPEN, revision=revision)
    situation = seen(stuck, came, worker("w2"))
    decision = decide(builders.pool(), situation, ScalingMemory(breaker=opened))

    assert not decision.memory.breaker.open
    assert decision.look_again_in is not None
    assert decision.look_again_in <= 1.0


def test_a_try_that_nobody_needs_any_more_ends_soon() -> None:
    """While it is open the operator does not poll: nothing would tell of the next task, nor bring another look."""
    revision = revision_of(builders.pool())
    refused = Breaker(3, NOW - 60, Reason.QUOTA_EXCEEDED, "no quota", refused=True, revision=revision)
    empty = seen(pool=replace(POOL, proven_revision=revision))
    due = decide(builders.pool(), empty, ScalingMemory(breaker=refused))
    later = decide(builders.pool(), empty, due.memory)

    assert (due.memory.breaker.open, due.sentinel.polls, due.look_again_in) == (True, 0, 1.0)
    assert (later.memory.breaker.open, later.sentinel.polls) == (False, 2)


@pytest.mark.parametrize(("most", "replicas"), [(3, None), (4, 4)])
def test_a_try_after_a_refusal_keeps_to_max_workers(most: int, replicas: int | None) -> None:
    spec = builders.pool(maxWorkers=most)
    revision = revision_of(spec)
    leaving = pod("w3", revision=revision, deletion_cost=-1000)
    crew = (pod("w1", revision=revision), pod("w2", revision=revision), leaving)
    working = [worker(name, busy=1) for name in ("w1", "w2", "w3")]
    made = DeploymentFacts("pool-x", "d", "5", revision, 1, 3)
    refused = Breaker(2, NOW - 60, Reason.QUOTA_EXCEEDED, "no quota", refused=True, revision=revision)
    full = Saturation(NOW - 60, NOW - 60, frozenset({"w1", "w2"}))
    memory = ScalingMemory(breaker=refused, saturation=full)
    decision = decide(spec, seen(*crew, *working, deployments=(made,)), memory)
    raised = [action.replicas for action in decision.actions if isinstance(action, SetReplicas)]

    assert decision.size.limit == "breaker"
    assert raised == ([] if replicas is None else [replicas])


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "not ready"])
@pytest.mark.parametrize(("code", "reason"), [(137, "Error"), (137, "OOMKilled"), (1, "Error"), (0, "Completed")])
def test_a_worker_that_was_restarted_in_place_is_none_to_a_leader_that_has_yet_to_hear_it(
    ready: bool, code: int, reason: str
) -> None:
    """Half an hour of faults: each new leader deleted the pods of busy workers whose containers had ended some day."""
    restarted = pod(ready=ready, restarts=1, last_exit_code=code, last_exit_reason=reason)

    for age in (0.5, 3_600.0):
        situation = seen(restarted, leader_since=NOW - age, pool=replace(POOL, proven_revision=REVISION))
        assert watched(situation) == (Breaker(), None)


def test_one_that_crashed_before_it_reported_is_replaced_only_when_it_does_not_run() -> None:
    """The container that runs now may report yet, and if the operator was silent for a moment it has a task."""
    again = pod(ready=False, running_since=NOW - 3, created=NOW - 20, last_exit_code=137, last_exit_reason="OOMKilled")
    waits = replace(again, running_since=0.0, waiting_reason="CrashLoopBackOff")

    assert [failed and failed.pod.name for _, failed in (watched(seen(again)), watched(seen(waits)))] == [None, "w1"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [("exceeded quota: pods=10", Reason.QUOTA_EXCEEDED), ("denied by a webhook", Reason.POD_TEMPLATE_REJECTED)],
)
def test_pods_that_may_not_be_created_trip_it_with_nothing_to_replace(message: str, reason: Reason) -> None:
    breaker, failed = watched(seen(deployments=(deployment(failure=message),)))

    assert (breaker.reason, breaker.message, failed) == (reason, message, None)


def test_failures_of_another_revision_do_not_count() -> None:
    old = coming(waiting_reason="ImagePullBackOff", revision="r0")

    assert watched(seen(old, deployments=(deployment(failure="quota", revision="r0"),))) == (Breaker(), None)


def test_retries_come_after_0_5_10_20_40_and_80_seconds() -> None:
    """A start that fails always is tried at these seconds, looked at every second."""
    breaker, tries = Breaker(), []
    for second in range(320):
        breaker, failed = watched(seen(UNPULLABLE, now=NOW + second), breaker)
        if failed is not None:
            tries.append(second)

    assert tries == [0, 5, 15, 35, 75, 155, 235, 315]


def test_a_closed_breaker_has_no_retry() -> None:
    assert retry_at(Breaker()) is None
    assert retry_at(Breaker(2, NOW)) == NOW + 5
    assert retry_at(Breaker(99, NOW)) == NOW + 80


def test_between_retries_it_stays_open_and_tells_the_latest_cause() -> None:
    crashed = coming("n2", last_exit_code=1, last_exit_reason="Error")
    breaker, failed = watched(seen(crashed), OPEN)

    assert (breaker.trips, breaker.opened_at, failed) == (3, OPEN.opened_at, None)
    assert breaker.reason == Reason.WORKER_CRASHED


def newcomer(**more: float) -> tuple[PodFacts, WorkerFacts]:
    return pod("w1", created=NOW - 1, running_since=NOW, ready_since=NOW), worker("w1", **more)


def test_it_closes_on_a_report() -> None:
    assert watched(seen(*newcomer(), UNPULLABLE), OPEN) == (Breaker(), None)


def test_a_report_from_before_it_opened_does_not_close_it() -> None:
    breaker, _ = watched(seen(*newcomer(reported_at=OPEN.opened_at), UNPULLABLE), OPEN)

    assert breaker.open


def test_reports_of_workers_that_were_there_before_do_not_close_it() -> None:
    breaker, failed = watched(seen(worker("old"), UNPULLABLE), OPEN)

    assert (breaker.trips, failed) == (3, None)


def test_a_pod_that_was_slow_to_start_closes_it_too() -> None:
    slow = pod("w1", created=NOW - 40, running_since=NOW - 30, ready_since=NOW)

    assert watched(seen(slow, worker("w1"), UNPULLABLE), OPEN)[0] == Breaker()


def test_it_stays_open_while_the_next_try_is_starting() -> None:
    assert watched(seen(coming("n2")), OPEN) == (OPEN, None)


def test_it_stays_open_between_the_deleted_pod_and_its_successor() -> None:
    gone = coming("n1", deleting=True)

    assert watched(seen(gone, deployments=(deployment(replicas=1),)), OPEN) == (OPEN, None)


def test_it_closes_when_nobody_starts_any_more() -> None:
    assert watched(seen(deployments=(deployment(replicas=0),)), OPEN) == (Breaker(), None)


def test_a_silent_worker_is_told_after_a_minute_and_replaced_after_three() -> None:
    """A handler that loads a model may take two minutes to be imported: killed before, it would never start."""
    slow = pod(ready=False, ready_since=0.0, running_since=NOW)
    breaker, told, replaced = Breaker(), None, None
    for second in range(300):
        breaker, failed = watched(seen(slow, now=NOW + second), breaker)
        told = second if told is None and breaker.open else told
        replaced = second if replaced is None and failed is not None else replaced

    assert (told, replaced) == (60, 180)


def test_a_slow_worker_that_reports_at_last_closes_it() -> None:
    opened = Breaker(1, NOW + 60, Reason.NO_RUNTIME, "", revision=REVISION)
    slow = pod(ready=True, ready_since=NOW + 110, running_since=NOW)

    assert watched(seen(slow, worker(reported_at=NOW + 109.5), now=NOW + 110), opened) == (Breaker(), None)


def test_messages_are_bounded() -> None:
    breaker, _ = watched(seen(coming(waiting_reason="ErrImagePull", waiting_message="x" * 9_000)))

    assert len(breaker.message) == 1024


def test_a_refusal_that_lasts_while_the_breaker_waits_is_no_further_failure() -> None:
    waiting = Breaker(3, NOW - 1, Reason.QUOTA_EXCEEDED, "exceeded quota", refused=True, revision=REVISION)
    still = seen(worker("w1"), deployments=(deployment(2, failure="exceeded quota"),))

    breaker, _ = watched(still, waiting)

    assert (breaker.trips, breaker.opened_at, breaker.trying) == (3, NOW - 1, False)
    later, _ = watched(replace(still, now=retry_at(waiting) or 0.0), waiting)
    assert later.trying


def test_a_worker_that_was_created_before_the_refusal_does_not_end_it() -> None:
    refused = Breaker(2, NOW - 3, Reason.QUOTA_EXCEEDED, "exceeded quota", refused=True, revision=REVISION)
    up = pod("w1", created=NOW - 10, running_since=NOW - 1, ready_since=NOW)
    new = pod("w2", created=NOW - 1, running_since=NOW, ready_since=NOW)

    assert watched(seen(up, worker("w1")), refused)[0].open
    assert not watched(seen(new, worker("w2")), refused)[0].open


def test_a_pool_that_is_being_deleted_gets_no_write() -> None:
    situation = seen(worker("w1"), pool=replace(POOL, deleting=True), deployments=(deployment(1),))
    decision = decide(builders.pool(minWorkers=5, paused=True), situation, ScalingMemory())

    assert [action for action in decision.actions if not isinstance(action, Say)] == []

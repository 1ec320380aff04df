"""Mode Recommend: the operator says which size it would set, and leaves Deployments and pods alone."""

from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, EmitEvent, ScalingMemory
from activity_operator.core.observation import DeploymentFacts, Observation, PodFacts, SourceFacts, WorkerFacts
from activity_operator.core.status import pool_status, urgent_part
from tests.unit.activity_operator.core.builders import NOW, busy, counted, observed, pool, window, worker
from tests.unit.activity_operator.core.load import load_of

REDIS = {"activityArn": None, "source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}}
#: A Deployment of another pool generation, with an edit: mode Auto would apply it again.
DEPLOYMENT = DeploymentFacts("pool-r1", "d1", "7", "r1", 0, 2, drifted=True)


def seen(tasks: int, *facts: PodFacts | WorkerFacts) -> Observation:
    return observed(*facts, deployments=(DEPLOYMENT,), source=SourceFacts(counts=counted(tasks)))


def recommended(observation: Observation, memory: ScalingMemory | None = None, **spec: object) -> Decision:
    given = pool(**{**REDIS, "scaling": {"mode": "Recommend", **window(0)}, **spec})
    return decide(given, observation, memory or ScalingMemory())


def writes(decision: Decision) -> list[object]:
    return [action for action in decision.actions if not isinstance(action, EmitEvent)]


def test_growth_is_said_and_not_written() -> None:
    decision = recommended(seen(5, busy("w1"), busy("w2")))

    assert decision.recommended is not None
    assert (decision.recommended.desired, decision.recommended.limit) == (7, "demand")
    assert (decision.size.desired, decision.size.limit) == (2, "recommend")
    assert decision.size.reason == (
        "scaling.mode Recommend writes nothing; it would set 7: 2 running, 0 held, 5 waiting"
    )
    assert writes(decision) == []


def test_shrinking_cordons_and_drains_no_worker() -> None:
    decision = recommended(seen(0, worker("w1"), worker("w2")))

    assert (decision.victims, writes(decision)) == ((), [])
    assert set(decision.directives.values()) == {"run"}


def test_silent_worker_is_not_deleted() -> None:
    decision = recommended(seen(0, worker("w1", reported_at=NOW - 5000)))

    assert writes(decision) == []


def test_mode_auto_would_have_written() -> None:
    """The same pool in mode Auto is applied again: the tests above can fail."""
    assert writes(recommended(seen(5, busy("w1"), busy("w2")), scaling={}))


def test_pool_at_zero_takes_no_lease_that_no_worker_would_get() -> None:
    order = decide(pool(scaling={"mode": "Recommend"}), observed(), ScalingMemory()).sentinel

    assert (order.polls, order.preflight) == (0, True)


def test_pinned_pool_is_kept_at_its_pin_and_shows_what_the_work_needs() -> None:
    decision = recommended(seen(5, busy("w1"), busy("w2")), replicas=3)

    assert (decision.size.desired, decision.size.limit) == (3, "pin")
    assert decision.recommended is not None
    assert decision.recommended.desired == 7
    assert writes(decision)


def test_pause_is_an_order_and_is_carried_out() -> None:
    decision = recommended(seen(5, busy("w1"), busy("w2")), paused=True)

    assert (decision.size.desired, decision.size.limit, decision.recommended) == (0, "paused", None)
    assert decision.victims


def test_status_and_event_say_the_recommended_size() -> None:
    spec = pool(**REDIS, scaling={"mode": "Recommend", **window(0)})
    first = recommended(seen(0, busy("w1"), busy("w2")))
    before = pool_status(spec, seen(0, busy("w1"), busy("w2")), first, None, ())
    later = seen(5, busy("w1"), busy("w2"))
    second = recommended(later, first.memory)

    status = pool_status(spec, later, second, before, ())
    assert (status["desiredReplicas"], status["recommendedReplicas"]) == (2, 7)
    assert status["lastScaleReason"] == "recommended: 2 running, 0 held, 5 waiting"
    assert (status["decisions"][-1]["desired"], status["decisions"][-1]["limit"]) == (7, "demand")
    limited = next(one for one in status["conditions"] if one["type"] == "ScalingLimited")
    assert (limited["status"], limited["reason"]) == ("True", "RecommendedOnly")
    assert [action.reason for action in second.actions if isinstance(action, EmitEvent)] == ["SizeRecommended"]
    assert urgent_part(spec, later, second, before) != urgent_part(spec, later, first, before)


def test_first_recommendation_gets_an_event_if_it_differs_from_the_size() -> None:
    def events(tasks: int) -> list[str]:
        decision = recommended(seen(tasks, busy("w1"), busy("w2")))
        return [one.reason for one in decision.actions if isinstance(one, EmitEvent) and "Size" in one.reason]

    assert events(5) == ["SizeRecommended"]
    assert events(0) == []


def test_new_pool_says_that_nothing_makes_its_first_deployment() -> None:
    spec, empty = pool(**REDIS, scaling={"mode": "Recommend"}), observed(source=SourceFacts(counts=counted(1)))
    status = pool_status(spec, empty, decide(spec, empty, ScalingMemory()), None, ())

    ready = next(one for one in status["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "Pending")
    assert "set replicas, or mode Auto, to have workers" in ready["message"]


def test_pool_keeps_its_workers_until_the_mode_is_auto_again() -> None:
    load = load_of("counted", window=0, zero_after=5)
    load.arrive(2)
    load.run(4)
    load.harness.edit(scaling={"mode": "Recommend", **window(0, 5)})
    load.run(600)
    assert len(load.harness.serving()) == 2

    load.harness.edit(scaling={"mode": "Auto", **window(0, 5)})
    load.run(600)
    assert load.harness.replicas == 0

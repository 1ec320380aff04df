"""Random situations: while a worker with a free slot stands by, somebody else polls.

Each feature alone is tested elsewhere. Here they meet: standing by, polls of the operator, refused and leaving workers,
rollouts, and the options of `scaling`.
"""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from activity_operator.core import probing
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, ScalingMemory
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, Observation, SourceFacts, SourceProblem, WorkerFacts
from activity_operator.core.stand_by import OWN_POLL_SECONDS
from activity_worker.contract import Directive, PollFault, PollTrouble, WorkerState
from tests.unit.activity_operator.core.builders import NOW, observed, pod, pool, worker
from tests.unit.activity_operator.core.examples import examples

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"scaleDown": {"stabilizationWindowSeconds": 0, "zeroAfterSeconds": 0}},
    {"freeze": "Both"},
    {"idleWorkers": 2, "targetUtilization": 0.5},
    {"mode": "Recommend"},
    {"targetWaitSeconds": 30},
)
ROLLOUT = {"maxFailureShare": 0.2, "canaryTasks": 5, "canarySeconds": 60}
TROUBLES = (*(None,) * 8, PollTrouble(PollFault.DENIED, "X"), PollTrouble(PollFault.THROTTLED, "Y"))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Any, Observation]:
    """Draw a spec and an observation of two to six workers, each with a pod of one of two revisions."""
    slots = draw(st.sampled_from((1, 4)))
    spec = pool(
        slotsPerWorker=slots,
        maxWorkers=draw(st.sampled_from((1, 2, 10))),
        scaling=draw(st.sampled_from(OPTIONS)),
        rollout=draw(st.sampled_from(({}, ROLLOUT))),
    )
    current = revision_of(spec)
    facts: list[Any] = []
    for number in range(draw(st.integers(2, 6))):
        revision = draw(st.sampled_from((current, current, "old")))
        facts.append(pod(f"w{number}", revision=revision, deletion_cost=draw(st.sampled_from((*(None,) * 7, -1000)))))
        facts.append(draw(reports(f"w{number}", slots)))
    revisions = sorted({current} | {one.revision for one in facts[::2]})
    deployments = (_deployment(name, sum(one.revision == name for one in facts[::2])) for name in revisions)
    seen = observed(*facts, source=draw(sources()), deployments=tuple(deployments))
    return spec, replace(seen, pool=replace(seen.pool, proven_revision=draw(st.sampled_from((current, "")))))


@st.composite
def reports(draw: st.DrawFn, uid: str, slots: int) -> WorkerFacts:
    """Draw the report of a worker: what its slots do, and whether its polls are refused."""
    busy = draw(st.sampled_from((0, 0, slots, slots - 1)))
    trouble = draw(st.sampled_from(TROUBLES)) if busy < slots else None
    return worker(
        uid,
        state=draw(st.sampled_from((*(WorkerState.RUNNING,) * 9, WorkerState.STARTING, WorkerState.DRAINING))),
        slots=slots,
        busy=busy,
        open_polls=0 if trouble else draw(st.sampled_from((0, 0, slots - busy))),
        idle_seconds=0.0 if busy == slots else draw(st.sampled_from((0.1, 30.0, 30.0))),
        reported_at=NOW - draw(st.sampled_from((*(0.0,) * 6, 2.0, 100.0))),
        poll_trouble=trouble,
    )


@st.composite
def sources(draw: st.DrawFn) -> SourceFacts:
    """Draw the operator's polls and leases."""
    opened, oldest = draw(st.sampled_from((0, 0, 0, 1, 2))), draw(st.sampled_from((0.1, 20.0, 54.0, 59.5)))
    return SourceFacts(
        open_polls=opened,
        held=draw(st.sampled_from((0, 0, 2))),
        at_once=draw(st.sampled_from((*(0,) * 6, 1, 5))),
        observed_at=NOW - draw(st.sampled_from((0.1, 30.0))),
        oldest_poll_at=NOW - oldest if opened else 0.0,
        newest_poll_at=NOW - min(oldest, draw(st.sampled_from((0.1, 27.0, 59.5)))) if opened else 0.0,
        error=draw(st.sampled_from((*(None,) * 9, SourceProblem("AccessDenied", "denied", NOW)))),
        withheld=draw(st.sampled_from((*("",) * 9, "no budget"))),
    )


def _deployment(revision: str, replicas: int) -> DeploymentFacts:
    return DeploymentFacts(f"pool-{revision}", revision, "1", revision, 1, replicas)


def free_to_poll(decision: Decision, ordered: Directive) -> list[str]:
    """Return the working workers that have a free slot, can poll, and have this order."""
    assert decision.situation is not None
    return [
        member.pod.uid
        for member in decision.situation.fleet.polling
        if member.busy < member.slots and decision.directives[member.pod.uid] is ordered
    ]


@examples(100)
@given(situations(), st.sampled_from((0.0, 0.4, 6.0)))
def test_somebody_polls_while_a_worker_stands_by(drawn: tuple[Any, Observation], later: float) -> None:
    spec, observation = drawn
    first = decide(spec, observation, ScalingMemory())
    observation = replace(observation, now=observation.now + later)
    decision = decide(spec, observation, first.memory)

    assert decision.look_again_in is None or decision.look_again_in > 0.0
    source, waiting = observation.source, free_to_poll(decision, Directive.STANDBY)
    if not waiting:
        return
    assert decision.situation is not None
    assert probing.counts_by_polls(decision.situation), "no worker stands by where the operator may not poll"
    last = [m.pod.uid for m in decision.situation.fleet.members if m.report is not None and m.report.open_polls]
    own = source.open_polls and observation.now < source.newest_poll_at + OWN_POLL_SECONDS
    assert own or last or free_to_poll(decision, Directive.RUN), f"{waiting} stand by, and nobody polls"

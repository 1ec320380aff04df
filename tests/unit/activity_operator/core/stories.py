"""Stories of one pool: what befalls it, who leads it, and what must hold at every moment, by the truth.

What is asserted is README's "Promised, and not": no worker is interrupted in its work; ignorance never shrinks a pool;
maxWorkers always holds; growth that was stopped goes on; and in the end the pool is what its spec says, whichever way
it came there. What the operator believes of itself counts for nothing but in `_shrinks_on_knowledge`.
"""

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.core.breaker import CLOSED_SECONDS
from activity_operator.core.decide import decide
from activity_operator.core.decision import Decision, Say
from activity_operator.core.fleet import fleet
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, Observation, PodFacts
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core.term import Term
from tests.unit.activity_operator.core.truth import Truth
from tests.unit.activity_operator.core.world import pool_spec

STEP_SECONDS = 1.0
#: Looks at one moment after which it is no longer settling.
LOOKS = 40
#: Seconds within which a pool that nothing befalls any more is what it should be.
CALM_SECONDS = 1500
#: A large minute, and a day.
LATER_SECONDS = (90.0, 86_400.0)

SOURCES: dict[str, dict[str, object]] = {
    "stepFunctions": {},
    "redis": {"activityArn": None, "source": {"redis": {"address": "redis:6379", "flow": "f", "queue": "q"}}},
    "taskStore": {"activityArn": None, "source": {"taskStore": {"url": "postgresql://db/tasks"}}},
}
MAX_WORKERS = 4


def spec_of(source: str) -> PoolSpec:
    """Return a pool's spec with short windows."""
    scaling = {"scaleDown": {"stabilizationWindowSeconds": 10, "zeroAfterSeconds": 15}}
    stalled, reports = {"deadlineSeconds": 90}, {"timeoutSeconds": 10}
    return pool_spec(
        **{**SOURCES[source], "maxWorkers": MAX_WORKERS, "scaling": scaling, "stalled": stalled, "reports": reports}
    )


@dataclass
class Story:
    """One pool from its beginning, on nodes whose clocks are `skew` seconds ahead. `reached` counts what came about."""

    source: str = "redis"
    slots: int = 1
    skew: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.spec = PoolSpec.model_validate(
            {**spec_of(self.source).model_dump(by_alias=True, exclude_none=True), "slotsPerWorker": self.slots}
        )
        self.generation = 1
        self.proven = ""
        deadline = self.spec.stalled.deadline_seconds
        self.truth = Truth(self._told, 10_000.0, self.source == "stepFunctions", deadline, self.slots, skew=self.skew)
        self.lag = 0.0
        self.blind = False
        self.term: Term | None = None
        self.lead()

    # What may befall it.

    def lead(self) -> None:
        """Let another process lead from now on, which knows nothing."""
        self.term = Term(self.truth, self.spec, self.generation, self.proven)
        self.term.lag, self.term.blind = self.lag, self.blind

    def change_leader(self, gap: int) -> None:
        """Let nobody lead for some seconds, then another one."""
        if any(pod.process is not None and pod.process.tasks for pod in self.truth.pods.values()):
            self.reached["leader changed while workers were busy"] += 1
        if len(self.truth.deployments) > 1:
            self.reached["leader changed in a rollout"] += 1
        if any(pod.facts.last_exit_code is not None and pod.process is not None for pod in self.truth.pods.values()):
            self.reached["leader changed after a restart in place"] += 1
        self.term = None
        self.truth.sentinel_polls.clear()
        self.wait(gap)
        self.lead()

    def wait(self, seconds: int) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self._until(self.truth.now + STEP_SECONDS)

    def arrive(self, tasks: int, seconds: float) -> None:
        """Let tasks come."""
        self.truth.arrive(tasks, seconds)

    def edit(self, **changes: Any) -> None:
        """Edit the pool, as a user does; None takes a field away."""
        whole = {**self.spec.model_dump(by_alias=True, exclude_none=True), **changes}
        self.spec = PoolSpec.model_validate({name: value for name, value in whole.items() if value is not None})
        self.generation += 1
        if self.term is not None:
            self.term.spec, self.term.generation = self.spec, self.generation
            self.term.wake()

    def crash(self, which: int, code: int, reason: str) -> None:
        """End a container."""
        if (name := self._pick(which)) is not None:
            self.truth.crash(name, code, reason)

    def cut(self, which: int | None, *, cut: bool = True) -> None:
        """Cut one worker's reports, or everybody's, or let them pass again."""
        for name in self._those(which):
            self.truth.pods[name].cut = cut

    def lose_node(self, which: int | None, *, lost: bool = True) -> None:
        """Let the node of one pod, or all, be missed or come back. Not while a watch lags.

        A ReplicaSet prefers pods that have just become unready, which such a watch has yet to show; that a Deployment's
        own status changed with them helps only until the next write of ours is answered.
        """
        if lost and self.lag:
            return
        for name in self._those(which):
            self.truth.lose_node(name, lost)

    def evict(self, which: int) -> None:
        """Let somebody else delete a pod."""
        name = self._pick(which)
        if name is not None and not self.truth.pods[name].facts.deleting:
            self.truth.delete(name, "somebody")

    def lag_by(self, seconds: float) -> None:
        """Let the watch lag."""
        self.lag = seconds
        if self.term is not None:
            self.term.lag = seconds

    def unread(self, blind: bool) -> None:
        """Let the source's counts fail, or succeed again."""
        self.blind = blind
        if self.term is not None:
            self.term.blind = blind

    def strike(self, what: str, value: Any) -> None:
        """Change what befalls new starts."""
        setattr(self.truth, what, value)

    def image(self, kind: str, image: str, broken: bool) -> None:
        """Let an image be `unpullable` or `unusable`, or no longer."""
        images: set[str] = getattr(self.truth, kind)
        (images.add if broken else images.discard)(image)

    # What must hold.

    def calm(self) -> None:
        """End all trouble; what was asked for must come true, and stay."""
        truth = self.truth
        truth.unpullable.clear()
        truth.unusable.clear()
        truth.no_room = truth.no_quota = False
        truth.import_seconds = 1.0
        self.lag_by(0.0)
        self.unread(False)
        self.cut(None, cut=False)
        self.lose_node(None, lost=False)
        self.edit(paused=False, replicas=None)
        end = truth.now + CALM_SECONDS + truth.ahead()
        while not self.is_calm():
            assert truth.now < end, f"not calm by {end}: {self.said()}"
            self.wait(5)
        self.wait(30)
        assert self.is_calm(), f"did not stay calm: {self.said()}"

    def is_calm(self) -> bool:
        """Whether all work is done and the pool is as small as it may be, of one revision, and free to grow."""
        truth, term = self.truth, self.term
        if term is None or term.decision is None:
            return False
        decision = term.decision
        mine = [pod for pod in truth.pods.values() if pod.active]
        idle = not (truth.waiting or truth.held) and truth.done == truth.arrived
        at_rest = decision.size.desired == self.spec.min_workers == len(mine) == len(truth.pods)
        fresh = {revision_of(self.spec)} >= {found.revision for found in truth.deployments.values()}
        serve = all(pod.process is not None and pod.process.state is WorkerState.RUNNING for pod in mine)
        free = not decision.memory.breaker.open and decision.size.limit in {"demand", "min"}
        return idle and at_rest and fresh and serve and free

    def said(self) -> str:
        """Return how things are, for who reads a failure."""
        truth = self.truth
        size = None if self.term is None or self.term.decision is None else self.term.decision
        pods = "\n  ".join(str(pod) for pod in truth.pods.values())
        return (
            f"{size and size.size} look again {size and size.look_again_in} breaker {size and size.memory.breaker}\n"
            f"waiting {len(truth.waiting)} held {len(truth.held)} done {truth.done}/{truth.arrived}\n"
            f"{truth.deployments}\n  {pods}\nnow {truth.now} leader since {self.term and self.term.since}"
        )

    def _until(self, at: float) -> None:
        """Let time pass to the next whole step; whoever leads looks when it said it would."""
        term = self.term
        while term is not None and term.due is not None and term.due < at:
            self.truth.now = max(self.truth.now, term.due)
            self._look(term)
        self.truth.step(at - self.truth.now)
        self._held_in_truth()
        if term is None:
            return
        term.listen()
        if term.due is not None and term.due <= self.truth.now:
            self._look(term)

    def _look(self, term: Term) -> None:
        """Look until nothing is written any more."""
        for _ in range(LOOKS):
            before = self._replicas()
            seen, _, decision, written = term.look()
            self._within_limits(before)
            self._shrinks_on_knowledge(seen, decision)
            self._note(seen, decision)
            self.proven = term.proven
            self._held_in_truth()
            if not written and not (term.due is not None and term.due <= self.truth.now):
                break
        else:
            raise AssertionError(f"the decisions do not settle: {self.said()}")
        if not [action for action in decision.actions if not isinstance(action, Say)]:
            self._only_news_or_the_said_time_change_it(seen, decision)

    def _held_in_truth(self) -> None:
        """No worker is interrupted in its work: who goes is drained, never started, or was long silent and unready."""
        assert not self.truth.taken, f"taken from a worker that works: {self.truth.taken}\n{self.said()}"

    def _within_limits(self, before: int) -> None:
        """maxWorkers always holds: no write raises the replicas above it, but by a rollout's surge of a quarter."""
        surge = max(1, math.ceil(self.spec.max_workers / 4)) if len(self.truth.deployments) > 1 else 0
        after = self._replicas()
        assert after <= max(before, self.spec.max_workers + surge), f"{before} -> {after}\n{self.said()}"

    def _shrinks_on_knowledge(self, seen: Observation, decision: Decision) -> None:
        """Ignorance never shrinks a pool: while reports are doubted, or a term is young, nobody is sent away."""
        crew = fleet(self.spec, seen)
        window = self.spec.scaling.scale_down.stabilization_window_seconds
        asked = self.spec.paused or self.spec.replicas is not None or crew.present > self.spec.max_workers
        rollout = any(member.pod.revision != revision_of(self.spec) for member in crew.members)
        if asked or rollout or not (seen.suspect or seen.now - seen.leader_since < window):
            return
        assert not decision.victims, f"{decision.victims} leave in a young or doubted term\n{self.said()}"
        assert decision.size.desired >= min(crew.present, self.spec.max_workers), f"{decision.size}\n{self.said()}"

    def _only_news_or_the_said_time_change_it(self, seen: Observation, decision: Decision) -> None:
        """What was decided holds until the time at which it said it would look again, unless something is told."""
        wait = decision.look_again_in
        if wait is not None and wait <= CLOSED_SECONDS:
            # A breaker that has just been closed, or is about to be, answers otherwise at the next look in any case.
            return
        times = LATER_SECONDS if wait is None else (wait / 2, wait * 0.999)
        for seconds in times:
            now = seen.now + seconds
            signals = tuple(replace(signal, observed_at=now) for signal in seen.source.signals)
            source = seen.source if seen.source.error is not None else replace(seen.source, signals=signals)
            later = decide(self.spec, replace(seen, now=now, source=source), decision.memory)
            assert _answer(later) == _answer(decision), (
                f"another answer {seconds} s later, though it would look again in {wait}:\n"
                f"{later.size} {_answer(later)}\ninstead of\n{decision.size} {_answer(decision)}\n{self.said()}"
            )

    def _replicas(self) -> int:
        return sum(deployment.replicas for deployment in self.truth.deployments.values())

    def _note(self, seen: Observation, decision: Decision) -> None:
        """Count what came about, so that a search that never gets there is noticed."""
        crew, reached = fleet(self.spec, seen), self.reached
        for action in decision.actions:
            name = type(action).__name__ if not isinstance(action, Say) else f"said {action.reason}"
            reached[name] += 1
            if name == "SetDeletionCost" and getattr(action, "cost", 0) is None:
                reached["called back"] += 1
        reached[f"limit {decision.size.limit}"] += 1
        reached["breaker open"] += decision.memory.breaker.open
        reached["stalled"] += bool(crew.stalled)
        reached["unheard"] += bool(crew.unheard)
        reached["doubted long into a term"] += bool(seen.suspect) and seen.now - seen.leader_since > 10
        reached["drained and waiting to go"] += any(member.drained for member in crew.members)
        states = {(pod.process.state, bool(pod.process.tasks)) for pod in self.truth.pods.values() if pod.process}
        for state, busy in states:
            reached[f"{state.value}{' and busy' if busy else ''}"] += 1
        both = {deployment.revision for deployment in seen.deployments if deployment.replicas}
        reached["two revisions"] += len(both) > 1

    def _told(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        term = getattr(self, "term", None)
        if term is not None:
            term.told(kind, name, facts)

    def _pick(self, which: int) -> str | None:
        names = list(self.truth.pods)
        return names[which % len(names)] if names else None

    def _those(self, which: int | None) -> list[str]:
        if which is None:
            return list(self.truth.pods)
        name = self._pick(which)
        return [] if name is None else [name]


def _answer(decision: Decision) -> tuple[object, ...]:
    writes = tuple(action for action in decision.actions if not isinstance(action, Say))
    return decision.size.desired, writes, dict(decision.directives), decision.sentinel

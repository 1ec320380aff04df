"""Simulated histories of one pool: faults, leader changes and edits, and the invariants that hold throughout.

The invariants are those of README's "Promised, and not": no worker is interrupted in its work; missing information
never shrinks a pool; maxWorkers always holds; growth that was stopped resumes; and the pool finally reaches its spec.
They are checked against the true state of the cluster; only `_shrinks_on_knowledge` uses the operator's own view.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from activity_operator.api.spec import PoolSpec
from activity_operator.core.decision import Decision, EmitEvent
from activity_operator.core.fleet import join_reports
from activity_operator.core.manifests import revision_of
from activity_operator.core.observation import DeploymentFacts, Observation, PodFacts
from activity_worker.contract import WorkerState
from tests.unit.activity_operator.core import situations
from tests.unit.activity_operator.core.pool_harness import pool_spec
from tests.unit.activity_operator.core.term import Term
from tests.unit.activity_operator.core.truth import Truth

STEP_SECONDS = 1.0
#: Most looks at one moment until the decisions must have settled.
LOOKS = 40
#: Seconds within which a pool reaches its spec once all faults have ended.
RECOVERY_SECONDS = 1500

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
    """One pool from its creation, on nodes whose clocks are `skew` seconds ahead. `reached` counts situations."""

    source: str = "redis"
    slots: int = 1
    skew: float = 0.0
    reached: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.spec = PoolSpec.model_validate(
            {**spec_of(self.source).model_dump(by_alias=True, exclude_none=True), "slotsPerWorker": self.slots}
        )
        self.generation = self.version = 1
        self.proven = ""
        deadline = self.spec.stalled.deadline_seconds
        self.truth = Truth(
            self._on_change, 10_000.0, self.source == "stepFunctions", deadline, self.slots, skew=self.skew
        )
        self.lag = 0.0
        self.blind = False
        self.term: Term | None = None
        self.lead()

    # Events that a story is made of.

    def lead(self) -> None:
        """Let a new leader, without any knowledge, take over now."""
        self.term = Term(self.truth, self.spec, self.generation, self.proven)
        self.term.lag, self.term.blind, self.term.version = self.lag, self.blind, self.version

    def change_leader(self, gap: int) -> None:
        """Leave the pool without a leader for `gap` seconds, then start a new one."""
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

    def upgrade(self, version: int) -> None:
        """Let an operator of another version take over, which renders another pod template."""
        self.version = version
        self.change_leader(0)

    def wait(self, seconds: int) -> None:
        """Let this many seconds pass."""
        for _ in range(seconds):
            self._until(self.truth.now + STEP_SECONDS)

    def arrive(self, tasks: int, seconds: float) -> None:
        """Let `tasks` tasks arrive, each of `seconds`."""
        self.truth.arrive(tasks, seconds)

    def edit(self, **changes: Any) -> None:
        """Edit the pool's spec as a user does; None removes a field."""
        whole = {**self.spec.model_dump(by_alias=True, exclude_none=True), **changes}
        self.spec = PoolSpec.model_validate({name: value for name, value in whole.items() if value is not None})
        self.generation += 1
        if self.term is not None:
            self.term.spec, self.term.generation = self.spec, self.generation
            self.term.wake()

    def crash(self, which: int, code: int, reason: str) -> None:
        """End a container with this exit code and reason."""
        if (name := self._pick(which)) is not None:
            self.truth.crash(name, code, reason)

    def cut(self, which: int | None, *, cut: bool = True) -> None:
        """Drop the reports of one worker, or of all workers for None; cut=False delivers them again."""
        for name in self._selected(which):
            self.truth.pods[name].cut = cut

    def lose_node(self, which: int | None, *, lost: bool = True) -> None:
        """Make the node of one pod, or of all pods, unreachable or reachable again; ignored while the watch lags.

        A ReplicaSet removes pods first that have just become unready, and a lagging watch does not show them yet. The
        Deployment's own status changes with them, which helps only until the answer to the operator's next write.
        """
        if lost and self.lag:
            return
        for name in self._selected(which):
            self.truth.lose_node(name, lost)

    def evict(self, which: int) -> None:
        """Let another client delete a pod."""
        name = self._pick(which)
        if name is not None and not self.truth.pods[name].facts.deleting:
            self.truth.delete(name, "somebody")

    def lag_by(self, seconds: float) -> None:
        """Let the watch lag by this many seconds."""
        self.lag = seconds
        if self.term is not None:
            self.term.lag = seconds

    def fail_counts(self, blind: bool) -> None:
        """Let the source's counts fail (True) or succeed again (False)."""
        self.blind = blind
        if self.term is not None:
            self.term.blind = blind

    def set_start_fault(self, what: str, value: Any) -> None:
        """Set a condition that new pods meet: an attribute of `Truth`."""
        setattr(self.truth, what, value)

    def image(self, kind: str, image: str, broken: bool) -> None:
        """Add an image to the `unpullable` or `unusable` ones, or remove it."""
        images: set[str] = getattr(self.truth, kind)
        (images.add if broken else images.discard)(image)

    # Invariants.

    def end_faults(self) -> None:
        """End all faults; the pool must then reach its spec and stay there."""
        truth = self.truth
        truth.unpullable.clear()
        truth.unusable.clear()
        truth.no_room = truth.no_quota = truth.probes_fail = False
        truth.bad_node_pods = 0
        truth.import_seconds = 1.0
        self.lag_by(0.0)
        self.fail_counts(False)
        self.cut(None, cut=False)
        self.lose_node(None, lost=False)
        self.edit(paused=False, replicas=None)
        end = truth.now + RECOVERY_SECONDS + situations.seconds_of_work(truth)
        while not self.is_at_rest():
            assert truth.now < end, f"the pool has not reached its spec by {end}: {self.describe()}"
            self.wait(5)
        self.wait(30)
        assert self.is_at_rest(), f"the pool did not stay at its spec: {self.describe()}"

    def is_at_rest(self) -> bool:
        """Whether all work is done and the pool is at its minimum, of one revision, and free to grow."""
        truth, term = self.truth, self.term
        if term is None or term.decision is None:
            return False
        decision = term.decision
        active = [pod for pod in truth.pods.values() if pod.active]
        idle = not (truth.waiting or truth.held) and truth.done == truth.arrived
        at_minimum = decision.size.desired == self.spec.min_workers == len(active) == len(truth.pods)
        fresh = {revision_of(self.spec)} >= {found.revision for found in truth.deployments.values()}
        self.reached["at rest with another version's template"] += self.version not in truth.rendered_by.values()
        serve = all(pod.process is not None and pod.process.state is WorkerState.RUNNING for pod in active)
        free = not decision.memory.breaker.open and decision.size.limit in {"demand", "min"}
        return idle and at_minimum and fresh and serve and free

    def describe(self) -> str:
        """Return the state of the story, for the message of a failed assertion."""
        truth = self.truth
        size = None if self.term is None or self.term.decision is None else self.term.decision
        pods = "\n  ".join(str(pod) for pod in truth.pods.values())
        return (
            f"{size and size.size} look again {size and size.look_again_in} breaker {size and size.memory.breaker}\n"
            f"waiting {len(truth.waiting)} held {len(truth.held)} done {truth.done}/{truth.arrived}\n"
            f"{truth.deployments}\n  {pods}\nnow {truth.now} leader since {self.term and self.term.since}"
        )

    def _until(self, at: float) -> None:
        """Let time pass to the next whole step; a leader looks when its decision asks for it."""
        term = self.term
        while term is not None and term.due is not None and term.due < at:
            self.truth.now = max(self.truth.now, term.due)
            self._look(term)
        self.truth.step(at - self.truth.now)
        self._no_worker_interrupted()
        if term is None:
            return
        term.listen()
        if term.due is not None and term.due <= self.truth.now:
            self._look(term)

    def _look(self, term: Term) -> None:
        """Look until a look writes nothing."""
        for _ in range(LOOKS):
            before = self._replicas()
            observation, _, decision, written = term.look()
            self._within_limits(before)
            self._shrinks_on_knowledge(observation, decision)
            situations.count(self.reached, self.spec, self.truth, observation, decision)
            self.proven = term.proven
            self._no_worker_interrupted()
            if not written and not (term.due is not None and term.due <= self.truth.now):
                break
        else:
            raise AssertionError(f"the decisions do not settle: {self.describe()}")
        if not [action for action in decision.actions if not isinstance(action, EmitEvent)]:
            # Without new facts a decision stays the same until `look_again_in` has passed.
            changed = situations.changes_too_early(self.spec, observation, decision)
            assert not changed, f"{changed}\n{self.describe()}"

    def _no_worker_interrupted(self) -> None:
        """No worker is interrupted: a removed one was drained, never started, or long silent and unready."""
        assert not self.truth.taken, f"taken from a worker that works: {self.truth.taken}\n{self.describe()}"

    def _within_limits(self, before: int) -> None:
        """maxWorkers always holds: a write exceeds it only by a rollout's surge of a quarter."""
        surge = max(1, math.ceil(self.spec.max_workers / 4)) if len(self.truth.deployments) > 1 else 0
        after = self._replicas()
        assert after <= max(before, self.spec.max_workers + surge), f"{before} -> {after}\n{self.describe()}"

    def _shrinks_on_knowledge(self, observation: Observation, decision: Decision) -> None:
        """No worker is removed while the report path is degraded or the leader's term is young."""
        fleet_seen = join_reports(self.spec, observation)
        window = self.spec.scaling.scale_down.stabilization_window_seconds or 0
        asked = self.spec.paused or self.spec.replicas is not None or fleet_seen.present > self.spec.max_workers
        rollout = any(member.pod.revision != revision_of(self.spec) for member in fleet_seen.members)
        if (
            asked
            or rollout
            or not (observation.report_path_problem or observation.now - observation.leader_since < window)
        ):
            return
        assert not decision.victims, (
            f"{decision.victims} leave in a young term or with a degraded report path\n{self.describe()}"
        )
        assert decision.size.desired >= min(fleet_seen.present, self.spec.max_workers), (
            f"{decision.size}\n{self.describe()}"
        )

    def _replicas(self) -> int:
        return sum(deployment.replicas for deployment in self.truth.deployments.values())

    def _on_change(self, kind: str, name: str, facts: PodFacts | DeploymentFacts | None) -> None:
        term = getattr(self, "term", None)
        if term is not None:
            term.on_change(kind, name, facts)

    def _pick(self, which: int) -> str | None:
        names = list(self.truth.pods)
        return names[which % len(names)] if names else None

    def _selected(self, which: int | None) -> list[str]:
        if which is None:
            return list(self.truth.pods)
        name = self._pick(which)
        return [] if name is None else [name]

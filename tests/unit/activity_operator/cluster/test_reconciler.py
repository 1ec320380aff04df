"""Reconciling a pool: failures are retried forever, only the leader acts, and never twice at the same time."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from activity_operator.cluster.apply import Applier, Rejection
from activity_operator.cluster.delay_queue import DelayQueue
from activity_operator.cluster.interfaces import CoreFunctions
from activity_operator.cluster.kube import ApiError, ApiUnreachableError, KubeError
from activity_operator.cluster.observer import ObserverResult
from activity_operator.cluster.parsed_pool import ParsedPool
from activity_operator.cluster.pod_changes import PodChanges
from activity_operator.cluster.reconciler import SOONEST_SECONDS, Reconciler, ReconcilerDeps
from activity_operator.cluster.resources import POOLS, Key
from activity_operator.cluster.shared_sources import SharedSources
from activity_operator.cluster.status_budget import StatusBudget
from activity_operator.cluster.status_updates import StatusUpdates
from activity_operator.cluster.status_writer import NameTakenError, StatusWriter
from activity_operator.cluster.store import Store
from activity_operator.cluster.workqueue import WorkQueue
from activity_operator.core.decision import (
    ApplyRevision,
    Decision,
    EmitEvent,
    Limit,
    ScalingMemory,
    SentinelOrder,
    Size,
)
from activity_operator.core.lifecycle_ring import PodEvent
from activity_operator.core.observation import DeploymentFacts, Observation, PoolFacts
from activity_operator.watch.freshness import Freshness
from activity_worker.contract import Directive
from tests.unit.activity_operator.virtual_time import settle

KEY = ("ns", "p")
ARN = "arn:aws:states:us-east-1:123456789012:activity:a"
LOOPS = 8
SPEC = {"activityArn": ARN, "handlerImage": "i", "maxWorkers": 5}


class FakedReconciler:
    """A reconciler with fake dependencies; the next writes raise the errors in `trouble`."""

    def __init__(self, rate: float = 50.0) -> None:
        self.rate = rate
        self.now = 0.0
        self.trouble: list[Exception] = []
        self.leading = True
        self.reachable = True
        self.swept = True
        self.log: list[Any] = []
        self.results: list[str] = []
        self.memories: list[ScalingMemory] = []
        self.replicas: dict[str, int] = {}
        self.ring = False
        self.changes = PodChanges()
        self.urgent_part: tuple[object, ...] = ("Ready",)
        self.built = 0
        self.written: list[Any] = []
        self.conditions: list[Any] = []
        self.seen: list[Any] = []
        self.queue = WorkQueue(lambda: self.now)
        self.store = Store(self.queue.add)
        self.due = DelayQueue(self.queue.add, lambda: self.now)
        self.live = self.pool()
        self.store.put(POOLS, self.live)
        self.reconciler = Reconciler(self.rooms(), ready=lambda: self.swept, clock=lambda: self.now, jitter=lambda: 1.0)

    def pool(self, version: int = 1, **spec: Any) -> dict[str, Any]:
        meta = {"namespace": "ns", "name": "p", "uid": "u1", "resourceVersion": str(version), "generation": 1}
        return {"metadata": meta, "spec": {**SPEC, **spec}, "status": {"observedGeneration": 1}}

    def rooms(self) -> ReconcilerDeps:
        reports = SimpleNamespace(
            set_directives=lambda *args: self.log.append(("directives", args[2])),
            end_stand_by=lambda *key: self.log.append(("end stand-by", key)),
            events=lambda *_: (),
            forget=lambda uid: self.log.append(("forget", uid)),
            forget_pool=lambda *_: None,
            add_event=lambda key, name, message, **more: self.log.append(("event", name, message, more["pod"])),
        )
        signals = SimpleNamespace(
            order=lambda key, order, spec, uid: self.log.append(("order", order)),
            stop_polls=lambda key: self.log.append("stop_polls"),
            withdraw=lambda key, deleted: self.log.append(("withdraw", deleted)),
        )
        gauges = SimpleNamespace(
            reconciled=lambda result, seconds: self.results.append(result),
            observed=lambda *_: None,
            forget=lambda key: self.log.append(("metrics", key)),
            forget_all=lambda: self.log.append("all metrics"),
            status_written=lambda: None,
            lost=lambda key, reason: self.log.append(("lost", reason)),
            scaled=lambda key, by, reason, seconds: self.log.append(("scaled", by)),
        )
        applier = Applier(
            cast("Any", self),
            self.store,
            Freshness(60, lambda: self.now),
            cast("Any", self),
            clock=lambda: self.now,
            emit_event=lambda *_: None,
        )
        return ReconcilerDeps(
            self.store,
            self.queue,
            self.due,
            cast("Any", SimpleNamespace(observe=self.look)),
            cast("Any", reports),
            cast("Any", signals),
            SharedSources(self.queue.add),
            cast("Any", self),
            cast("Any", SimpleNamespace(apply=self.apply, refresh=applier.refresh)),
            StatusUpdates(
                self.store,
                cast("Any", reports),
                StatusWriter(cast("Any", self)),
                StatusBudget(self.rate, LOOPS, lambda: self.now),
                applier.refresh,
                Freshness(60, lambda: self.now),
                cast("Any", gauges),
                cast("Any", self),
                CoreFunctions(self.decide, lambda *_: {}, self.build, lambda *_: self.part()),
                lambda: self.now,
                lambda: 1.8e9,
            ),
            cast("Any", SimpleNamespace(forget=lambda uid: None, publish=lambda *event: self.log.append(event))),
            cast("Any", gauges),
            self.prepare,
            CoreFunctions(self.decide, lambda *_: {}, self.status),
        )

    async def prepare(self, namespace: str) -> None:
        self.log.append(("prepare", namespace))

    async def look(self, key: Key, pool: Any, spec: Any, state: Any) -> ObserverResult:
        found = tuple(DeploymentFacts(name, "d", "1", name, 1, count) for name, count in self.replicas.items())
        observation = Observation(now=1.8e9, pool=PoolFacts("ns", "p", "u1", 1), deployments=found)
        return ObserverResult(observation, self.changes, ParsedPool(pool["spec"], spec, 1, (), ()))

    def decide(self, spec: Any, observation: Observation, memory: ScalingMemory) -> Decision:
        self.memories.append(memory)
        learnt = ScalingMemory(quiet_since=float(len(self.memories)))
        directives = {"w": Directive.DRAIN}
        order = SentinelOrder(2, 1, counts=True, watched=True)
        return Decision(Size(1, Limit.DEMAND, ""), learnt, directives=directives, sentinel=order, look_again_in=30.0)

    def status(self, *given: Any) -> dict[str, Any]:
        if self.ring:
            return {"observedGeneration": 1, "decisions": [*given[3].get("decisions", ()), len(self.memories)]}
        return {"observedGeneration": 1}

    def part(self) -> tuple[object, ...]:
        """Return the urgent part of the status; with `ring` each decision is another one."""
        return (*self.urgent_part, len(self.memories) if self.ring else 0)

    def build(self, *given: Any) -> dict[str, Any]:
        """Return the status by the method that a test may have replaced."""
        self.built += 1
        return self.status(*given)

    async def apply_status(self, *given: Any) -> dict[str, Any]:
        if given[3]["metadata"]["resourceVersion"] != self.live["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        self.written.append(given[3]["status"].get("decisions"))
        self.conditions = given[3]["status"].get("conditions", [])
        self.live = {**self.pool(version=len(self.written) + 1), "status": given[3]["status"]}
        return self.live

    async def get(self, *_: Any) -> dict[str, Any]:
        return self.live

    async def apply(self, work: Any, actions: Any) -> None:
        self.log.append("apply")
        if self.trouble:
            raise self.trouble.pop(0)

    async def look_after(self) -> float | None:
        """Reconcile the pool once; return the seconds until it is due again."""
        await self.reconciler.reconcile(KEY)
        return self.due.pop_due()


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


@pytest.mark.parametrize(
    ("trouble", "tries"), [(ApiError(403, "Forbidden", "denied"), 3), (ApiUnreachableError("down"), 1)]
)
async def test_workers_poll_again_while_no_decision_is_carried_out(trouble: Exception, tries: int) -> None:
    """Their directives stay as they were, and the operator's polls end: nobody would take a task."""
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


async def test_refused_write_that_waits_for_an_edit_conflict_is_not_tried_all_the_time() -> None:
    faked = FakedReconciler()
    refusing(faked, wanted=True)
    await faked.look_after()
    faked.now = 61.0

    assert await faked.look_after() == 9.0


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

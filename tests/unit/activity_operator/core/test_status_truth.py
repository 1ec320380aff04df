"""The whole status as the operator writes it: bounded for a thousand workers, and the same while a pool rests."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from activity_operator.api.spec import PoolSpec
from activity_operator.api.status import EventRecord
from activity_operator.cluster.facts import pool_facts
from activity_operator.core.decide import decide
from activity_operator.core.decision import ScalingMemory
from activity_operator.core.lifecycle_ring import merge_events
from activity_operator.core.manifests import deployment_name, revision_of
from activity_operator.core.observation import DeploymentFacts, PodFacts, SourceFacts, SourceProblem, WorkerFacts
from activity_operator.core.status import pool_status
from activity_operator.core.task_counts import TaskCounts
from activity_operator.core.task_window import TaskPeriod, TaskWindow
from activity_worker.contract import PollFault, PollTrouble
from activity_worker.contract.durations import PLACES, place_of
from tests.unit.activity_operator.core.builders import busy, observed, pending, pod, pool, worker

#: The begin of a minute.
BEGIN = 12_000.0
#: Texts that take as much room as a text can: long, and with characters that JSON or UTF-8 makes longer.
WORST_TEXTS = ("x" * 5000, '"\\' * 2500, "\x1b" * 5000, "ß\u4e2d\U0001f600" * 2000)
DENIED = PollTrouble(PollFault.DENIED, "AccessDeniedException", "user x may not poll")
#: The begin of the longest names of pods.
LONG = "p" * 50


def tasks_of(at: float, error: str = "", number: int = 40) -> TaskWindow:
    durations = [0] * PLACES
    durations[place_of(3.0)] = number
    failed = number // 2 if error else 0
    counts = TaskCounts(
        received=number, succeeded=number - failed, failed=failed, task_seconds=3.0 * number,
        durations=tuple(durations), last_error=error,
    )  # fmt: skip
    return (TaskPeriod(at, "r1", counts),)


def named(name: str, revision: str) -> PodFacts:
    """Return a ready pod of this revision."""
    return pod(name, revision=revision)


def many_workers(text: str, now: float, revision: str) -> list[PodFacts | WorkerFacts]:
    """Return 200 workers: a quarter each cannot poll, failed to start, waits for its image, or is busy."""
    trouble = PollTrouble(PollFault.DENIED, text, text)
    facts: list[PodFacts | WorkerFacts] = []
    for number in range(50):
        names = [f"{LONG}-{number:04}-{kind}" for kind in "abcd"]
        waits = {"waiting_reason": "ImagePullBackOff", "waiting_message": text, "last_exit_reason": text}
        facts += [
            *(named(name, revision) for name in (names[0], names[1], names[3])),
            pending(names[2], revision=revision, **waits),
            worker(names[0], poll_trouble=trouble, runtime=f"{number}{text}", reported_at=now),
            worker(names[1], failed_start=text, reported_at=now),
            busy(names[3], runtime=f"{number + 200}{text}", reported_at=now),
        ]
    return facts


@pytest.mark.parametrize("text", WORST_TEXTS, ids=["long", "escaped", "unprintable", "wide"])
def test_status_of_200_workers_stays_below_64_kib(text: str) -> None:
    source = SourceFacts(error=SourceProblem(text, text, BEGIN))
    lives = [
        EventRecord(
            at=datetime.fromtimestamp(BEGIN + step, UTC), name="polling:error", worker=f"{LONG}-{n:04}", message=text
        )
        for n in range(200)
        for step in range(4)
    ]
    events = merge_events([], lives)
    status: dict[str, Any] | None = None
    for number in range(12):
        now = BEGIN + 400.0 * (number + 1)
        spec = pool(minWorkers=200, maxWorkers=200, paused=number % 2 == 0)
        workers = many_workers(text, now, revision_of(spec))
        seen = observed(*workers, now=now, tasks=tasks_of(now - 100, text), source=source)
        status = pool_status(spec, seen, decide(spec, seen, ScalingMemory()), status, events)

    assert status is not None
    assert (len(status["workers"]), len(status["events"]), len(status["runtimes"])) == (20, 20, 5)
    assert len(status["decisions"]) == 10
    assert status["tasks"]["failedPercent"] == 50
    assert len(json.dumps(status, ensure_ascii=False).encode()) < 64 * 1024


class Writer:
    """Decides and writes the status, one leader after the other; `writes` has the seconds of each change."""

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.revision = revision_of(spec)
        self.memory = ScalingMemory()
        self.status: dict[str, Any] = {}
        self.writes: list[float] = []

    def look(self, at: float, *reports: WorkerFacts, tasks: TaskWindow = (), leader_since: float = 0.0) -> None:
        metadata = {"namespace": "team", "name": "pool", "uid": "pool-uid", "generation": 1}
        facts = pool_facts({"metadata": metadata, "status": self.status})
        made = DeploymentFacts(deployment_name(facts, self.revision), "uid", "1", self.revision, 1, 3)
        pods = [named(name, self.revision) for name in ("w1", "w2", "w3")]
        seen = observed(
            *pods, *reports, now=at, tasks=tasks, leader_since=leader_since, pool=facts, deployments=(made,)
        )
        decision = decide(self.spec, seen, self.memory)
        self.memory = decision.memory
        after = pool_status(self.spec, seen, decision, self.status, ())
        if after != self.status:
            self.writes.append(at)
        self.status = after


def idle_workers(at: float) -> list[WorkerFacts]:
    """Return three idle workers, of which one cannot poll."""
    seen = {"reported_at": float(at), "idle_seconds": at - BEGIN + 60.0, "runtime": "1.4.0"}
    return [worker("w1", **seen), worker("w2", **seen), worker("w3", poll_trouble=DENIED, **seen)]


def rested(writer: Writer) -> int:
    """Let tasks fail for a minute and the pool rest for an hour; return when that ends, in Unix seconds."""
    end = int(BEGIN) + 3720
    for at in range(int(BEGIN), end, 10):
        tasks = tuple(one for one in tasks_of(BEGIN, "ValueError") if at - one.start < 600)
        writer.look(at, *idle_workers(at), tasks=tasks)
    return end


def test_pool_at_rest_writes_nothing_whatever_its_status_names() -> None:
    writer = Writer(pool(minWorkers=3))
    rested(writer)

    assert writer.status["tasks"]["lastError"] == "ValueError"
    assert [record["worker"] for record in writer.status["workers"]] == ["w3"]
    assert writer.status["runtimes"] == [{"version": "1.4.0", "workers": 3}]
    assert [at for at in writer.writes if at > BEGIN + 120] == []


def test_new_leader_of_a_pool_at_rest_writes_nothing() -> None:
    writer = Writer(pool(minWorkers=3))
    term = rested(writer)
    before = dict(writer.status)

    writer.memory = ScalingMemory()
    writer.look(term + 1, leader_since=term)
    for at in range(term + 10, term + 1200, 10):
        writer.look(at, *idle_workers(at), leader_since=term)
    assert {name: (before.get(name), now) for name, now in writer.status.items() if before.get(name) != now} == {}
    assert [at for at in writer.writes if at > BEGIN + 120] == []

"""The ring of workers' lives in the status: what workers said of themselves, and what only the cluster saw."""

import signal
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from activity_operator.api.status import MAX_EVENTS, EventRecord
from activity_operator.core.observation import PodFacts, WorkerFacts
from activity_worker.contract import OOM_KILLED, EventName, WorkerState

#: Reasons for which a container waits although nothing is wrong.
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing"})
#: Exit codes above it are those of processes killed by a signal, whose number is the rest.
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What befell a pod that its worker cannot report: it never started, or it was killed.

    `exit_code` belongs to `worker:stopped` and is None elsewhere.
    """

    name: str
    message: str
    pod: str
    exit_code: int | None = None


def pod_events(
    before: Mapping[str, PodFacts], pods: Iterable[PodFacts], recorded: Iterable[EventRecord] = ()
) -> tuple[PodEvent, ...]:
    """Return what became visible since `before` (pods by UID). Ordinary exits are the worker's own to report.

    A new leader has seen no pod before: what it finds in `recorded`, the status's ring, its predecessor has told.
    """
    known = {(record.worker, record.name, record.message) for record in recorded}
    return tuple(
        pod_event
        for pod in pods
        for pod_event in _pod_events(pod, before.get(pod.uid))
        if pod.uid in before or (pod_event.pod, pod_event.name, pod_event.message) not in known
    )


def at_work(worker: WorkerFacts) -> bool:
    """Tell whether losing this worker now is a loss: it serves, or it stops and has a task yet."""
    if worker.state is WorkerState.STOPPING:
        return worker.busy > 0
    return worker.state not in {WorkerState.DRAINED, WorkerState.STOPPED}


def vanished_pods(
    before: Mapping[str, PodFacts], pods: Mapping[str, PodFacts], working: Set[str]
) -> tuple[PodEvent, ...]:
    """Return the pods that are gone since `before` although they ran and their workers (by pod UID) were at work."""
    gone = sorted(working & (before.keys() - pods.keys()))
    text = "its pod went before it could end: deleted with too little grace, or with its node"
    return tuple(
        PodEvent(EventName.WORKER_STOPPED, text, before[uid].name) for uid in gone if before[uid].running_since
    )


def _pod_events(pod: PodFacts, old: PodFacts | None) -> Iterable[PodEvent]:
    if pod.waiting_reason not in _ORDINARY and (old is None or old.waiting_reason != pod.waiting_reason):
        yield PodEvent(pod.waiting_reason, pod.waiting_message, pod.name)
    if pod.unschedulable and not (old is not None and old.unschedulable):
        yield PodEvent("Unschedulable", pod.unschedulable, pod.name)
    if pod.last_exit_reason and (old is None or not old.last_exit_reason or _ends(pod) > _ends(old)):
        yield from _end(pod)


def _ends(pod: PodFacts) -> int:
    """Return how often the container has ended, whether or not it has been started again since."""
    return pod.restarts if pod.running_since else pod.restarts + 1


def _end(pod: PodFacts) -> Iterable[PodEvent]:
    """Tell of an end that the worker did not live to report."""
    code, reason = pod.last_exit_code, pod.last_exit_reason
    # Some runtimes say OOMKilled of a worker that ended well when a handler's process was taken. The worker has told.
    if reason not in {"Completed", "Error"} and not (reason == OOM_KILLED and code == 0):
        yield PodEvent(reason, "" if code is None else f"exit code {code}", pod.name)
    if code is not None and code > _SIGNALLED:
        yield PodEvent(EventName.WORKER_STOPPED, f"killed by {_signal_name(code - _SIGNALLED)}", pod.name, code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def merge_events(inherited: Iterable[EventRecord], ours: Iterable[EventRecord]) -> tuple[EventRecord, ...]:
    """Return the last 20 events by time; equal ones are counted together.

    `inherited` is the status's ring as it was when this process began to lead, `ours` the story since then.
    """
    ring: dict[tuple[str, str, int | None], EventRecord] = {}
    for record in (*inherited, *ours):
        key = (record.name, record.message, record.exit.code if record.exit else None)
        old = ring.get(key)
        if old is None:
            ring[key] = record
            continue
        newer = record if record.at >= old.at else old
        ring[key] = newer.model_copy(update={"count": old.count + record.count})
    return tuple(sorted(ring.values(), key=lambda record: record.at)[-MAX_EVENTS:])

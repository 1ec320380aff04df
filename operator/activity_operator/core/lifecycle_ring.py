"""The ring of lifecycle events in the status: the events that workers report, and those that only the cluster shows."""

import signal
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from activity_operator.api.status import MAX_EVENTS, EventRecord
from activity_operator.core.observation import PodFacts, WorkerFacts
from activity_worker.contract import OOM_KILLED, EventName, WorkerState

#: Reasons for which a container waits although nothing is wrong.
ORDINARY_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
#: Steps of an ordinary life that the worker's next event overtakes.
PASSING = frozenset({EventName.WORKER_STARTING, EventName.WORKER_RUNNING, EventName.WORKER_STOPPING})
#: A process killed by a signal ends with this exit code plus the signal's number.
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event of a pod that its worker cannot report: the pod does not start, or the worker was killed.

    `exit_code` is only set for `worker:stopped`.
    """

    name: str
    message: str
    pod: str
    exit_code: int | None = None


def pod_events(
    before: Mapping[str, PodFacts], pods: Iterable[PodFacts], recorded: Iterable[EventRecord] = ()
) -> tuple[PodEvent, ...]:
    """Return the pods' new events since `before` (pods by UID). The worker reports ordinary exits itself.

    A new leader has no `before`. It skips the events in `recorded`, the status's ring: the former leader wrote them.
    """
    known = {(record.worker, record.name, record.message) for record in recorded}
    return tuple(
        pod_event
        for pod in pods
        for pod_event in _pod_events(pod, before.get(pod.uid))
        if pod.uid in before or (pod_event.pod, pod_event.name, pod_event.message) not in known
    )


def at_work(worker: WorkerFacts) -> bool:
    """Whether the worker serves, or is stopping and still has a task."""
    if worker.state is WorkerState.STOPPING:
        return worker.busy > 0
    return worker.state not in {WorkerState.DRAINED, WorkerState.STOPPED}


def vanished_pods(
    before: Mapping[str, PodFacts], pods: Mapping[str, PodFacts], working: Set[str]
) -> tuple[PodEvent, ...]:
    """Return an event for each pod in `before` that is gone although its worker was at work (`working`: pod UIDs)."""
    gone = sorted(working & (before.keys() - pods.keys()))
    text = "its pod went before it could end: deleted with too little grace, or with its node"
    return tuple(
        PodEvent(EventName.WORKER_STOPPED, text, before[uid].name) for uid in gone if before[uid].running_since
    )


def _pod_events(pod: PodFacts, old: PodFacts | None) -> Iterable[PodEvent]:
    if pod.waiting_reason not in ORDINARY_WAITS and (old is None or old.waiting_reason != pod.waiting_reason):
        yield PodEvent(pod.waiting_reason, pod.waiting_message, pod.name)
    if pod.unschedulable and not (old is not None and old.unschedulable):
        yield PodEvent("Unschedulable", pod.unschedulable, pod.name)
    if pod.last_exit_reason and (old is None or not old.last_exit_reason or _ends(pod) > _ends(old)):
        yield from _end(pod)


def _ends(pod: PodFacts) -> int:
    """Return how often the container has ended; `restarts` does not count an end before its restart."""
    return pod.restarts if pod.running_since else pod.restarts + 1


def _end(pod: PodFacts) -> Iterable[PodEvent]:
    """Yield the events of a container's end that the worker could not report."""
    code, reason = pod.last_exit_code, pod.last_exit_reason
    # Some container runtimes report OOMKilled for a worker with exit code 0 if the kernel killed a handler's process.
    # The worker has already reported that.
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
    """Return at most 20 events by time; equal events of a worker become one with their total count.

    `inherited` is the status's ring at the start of this leader's term, `ours` are the events since then.
    """
    ring: dict[tuple[str, str, str, int | None], EventRecord] = {}
    for record in (*inherited, *ours):
        key = (record.worker, record.name, record.message, record.exit.code if record.exit else None)
        old = ring.pop(key, None)
        if old is None:
            ring[key] = record
            continue
        newer = record if record.at >= old.at else old
        ring[key] = newer.model_copy(update={"count": old.count + record.count})
    events = sorted(ring.values(), key=lambda record: record.at)
    while len(events) > MAX_EVENTS:
        del events[event_to_drop([(record.worker, record.name, record.message) for record in events])]
    return tuple(events)


def event_to_drop(events: Sequence[tuple[str, str, str]]) -> int:
    """Return the index of the event to drop from a full ring; `events` are (pod, name, message), the oldest first.

    The first choice is a step of a worker's life that a later event of the same worker has overtaken, so that the last
    event of each worker stays. The second is an event that others of its name and message follow, so that a rare event
    outlives the usual ones. The last is the oldest event.
    """
    last_of_pod = {pod: index for index, (pod, _, _) in enumerate(events)}
    last_of_kind = {(name, message): index for index, (_, name, message) in enumerate(events)}
    for index, (pod, name, _) in enumerate(events):
        if name in PASSING and last_of_pod[pod] > index:
            return index
    repeated = (index for index, (_, name, message) in enumerate(events) if last_of_kind[name, message] > index)
    return next(repeated, 0)

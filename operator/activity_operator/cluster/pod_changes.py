"""PURE: what changed among a pool's pods between two observations, for the reconciler to record."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from activity_operator.api.status import EventRecord
from activity_operator.cluster.parsed_pool import ParsedPods
from activity_operator.core.lifecycle_ring import PodEvent, at_work, pod_events, vanished_pods
from activity_operator.core.observation import WorkerFacts

#: Ends of pods in which a worker loses its tasks, and the reason that the metric gives.
LOST = {"OOMKilled": "oom", "Evicted": "evicted", "NodeLost": "node", "Shutdown": "node"}


@dataclass(frozen=True, slots=True)
class PodChanges:
    """The changes since the observation before.

    `pods` are the present pods, `gone` the UIDs of pods that no longer exist, `events` the lifecycle events that only
    the cluster shows, and `lost` one reason (oom, evicted, node, gone) for each worker that ended without having
    drained.
    """

    pods: ParsedPods = field(default_factory=ParsedPods)
    gone: frozenset[str] = frozenset()
    events: tuple[PodEvent, ...] = ()
    lost: tuple[str, ...] = ()


def pod_changes(
    before: ParsedPods, pods: ParsedPods, workers: Iterable[WorkerFacts], inherited: Iterable[EventRecord]
) -> PodChanges:
    """Return the changes from `before` to `pods`. Only pods that have changed cost time.

    `workers` are the last reports, also of pods that are gone. `inherited` are the events of the status at the begin of
    this leader's term, which are not events again.
    """
    if pods is before:
        return PodChanges(pods)
    old, new = before.by_uid, pods.by_uid
    changed = [pod for pod in pods.facts if old.get(pod.uid) is not pod]
    gone = frozenset(old.keys() - new.keys())
    working = {worker.pod_uid for worker in workers if at_work(worker)} if gone else set()
    events = (*pod_events(old, changed, inherited), *vanished_pods(old, new, working))
    ended = [LOST[event.name] for event in events if event.name in LOST]
    vanished = ["gone" for uid in working & gone if old[uid].last_exit_reason not in LOST]
    return PodChanges(pods, gone, events, (*ended, *vanished))

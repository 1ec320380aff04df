"""The ring of workers' lives in the status: what workers said of themselves, and what only the cluster saw."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from activity_operator.api.status import MAX_EVENTS, EventRecord
from activity_operator.core.observation import PodFacts

#: Reasons for which a container waits although nothing is wrong.
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing"})


@dataclass(frozen=True, slots=True)
class Trouble:
    """What befell a pod that its worker cannot report: it never started, or it was killed."""

    name: str
    message: str
    pod: str


def troubles(before: Mapping[str, PodFacts], pods: Iterable[PodFacts]) -> tuple[Trouble, ...]:
    """Return what became visible since `before` (pods by UID). Ordinary exits are the worker's own to report."""
    return tuple(trouble for pod in pods for trouble in _troubles(pod, before.get(pod.uid)))


def _troubles(pod: PodFacts, old: PodFacts | None) -> Iterable[Trouble]:
    if pod.waiting_reason not in _ORDINARY and (old is None or old.waiting_reason != pod.waiting_reason):
        yield Trouble(pod.waiting_reason, pod.waiting_message, pod.name)
    if pod.unschedulable and not (old is not None and old.unschedulable):
        yield Trouble("Unschedulable", pod.unschedulable, pod.name)
    ended = (pod.last_exit_reason, pod.restarts)
    if pod.last_exit_reason not in {"", "Completed", "Error"} and ended != (
        None if old is None else (old.last_exit_reason, old.restarts)
    ):
        code = "" if pod.last_exit_code is None else f"exit code {pod.last_exit_code}"
        yield Trouble(pod.last_exit_reason, code, pod.name)


def merge(inherited: Iterable[EventRecord], ours: Iterable[EventRecord]) -> tuple[EventRecord, ...]:
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

"""The history of a namespace: tests assert over all of it instead of looking for a state that may pass.

A watch records every change of every object. A `Moment` is the namespace after one change. `eventually` asks each
moment since a mark, recorded ones and new ones, so that it also finds a state that lasted for a millisecond.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e.watches import UNREACHABLE, Raw, Watch
from tests.eventually import eventually_sync

T = TypeVar("T")

#: Seconds for what usually takes seconds: a busy machine takes longer, and a passing test does not wait for the limit.
PATIENCE = 600.0
GROUP = "activitypools.dev/v1alpha1"
#: kind -> path of its collection; `{}` is the namespace.
OF_POOLS = {
    "ActivityPool": f"/apis/{GROUP}/namespaces/{{}}/activitypools",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
}
OF_OPERATOR = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Node": "/api/v1/nodes",
}


@dataclass(frozen=True)
class Moment:
    """The namespace after one change.

    `number` is the change's place in the timeline, `at` when its event came (Unix seconds), `changed` the kind and name
    of the changed object. `objects` are all present objects, by kind and name.
    """

    number: int
    at: float
    changed: tuple[str, str]
    objects: Mapping[tuple[str, str], Raw]

    def of_kind(self, kind: str) -> list[Raw]:
        """Return the objects of a kind, oldest first."""
        found = [item for (of, _), item in self.objects.items() if of == kind]
        return sorted(found, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))

    def get(self, kind: str, name: str) -> Raw:
        """Return an object, empty if there is none."""
        return self.objects.get((kind, name), {})


class Timeline:
    """Every change in a namespace since `start`. Several threads may read it."""

    def __init__(self, kubeconfig: Path, namespace: str, kinds: Mapping[str, str]) -> None:
        self.namespace = namespace
        self._moments = [Moment(0, time.time(), ("", ""), {})]
        self._news = threading.Condition()
        self._watches = [
            Watch(kubeconfig, path.format(namespace), partial(self._note, kind)) for kind, path in kinds.items()
        ]

    def start(self) -> None:
        """Record the present objects, and every change from now on."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """Stop recording."""
        for watch in self._watches:
            watch.stop()

    def mark(self) -> int:
        """Return the number of the latest moment: the present state counts as since then."""
        with self._news:
            return self._moments[-1].number

    def since(self, mark: int) -> Sequence[Moment]:
        """Return the moments from a mark on, the mark's own included."""
        with self._news:
            return tuple(self._moments[mark:])

    def eventually(
        self, what: str, holds: Callable[[Moment], T], *, since: int = 0, seconds: float = PATIENCE
    ) -> tuple[Moment, T]:
        """Return the first moment since a mark of which `holds` is true, with its result.

        Raises AssertionError with the story since the mark when there is none within `seconds`.
        """
        end = time.monotonic() + seconds
        for moment in self._from(since, end):
            if found := holds(moment):
                return moment, found
        raise AssertionError(f"{self.namespace}: not within {seconds:.0f} s: {what}\n{self.story(since)}")

    def catch_up(self) -> int:
        """Wait until everything in the API server is recorded; return the mark.

        For assertions that a state never was.
        """
        for watch in self._watches:
            eventually_sync(
                "the watch has recorded everything in the API server",
                partial(_has_all, watch),
                seconds=PATIENCE,
                tolerate=UNREACHABLE,
            )
        return self.mark()

    def story(self, since: int = 0, lines: int = 60) -> str:
        """Return the last changes since a mark as text, one on each line."""
        changes = [line for before, after in pairwise(self.since(since)) if (line := _line(before, after))]
        return "\n".join(changes[-lines:])

    def _from(self, number: int, end: float) -> Iterator[Moment]:
        """Yield the moments from a number on, as they come, until a time."""
        while noted := self._wait_beyond(number, end):
            yield from noted
            number += len(noted)

    def _wait_beyond(self, number: int, end: float) -> list[Moment]:
        """Return the moments from a number on as soon as there are any, or none at the time limit."""
        with self._news:
            self._news.wait_for(lambda: number < len(self._moments), timeout=max(end - time.monotonic(), 0))
            return self._moments[number:]

    def _note(self, kind: str, name: str, item: Raw | None) -> None:
        with self._news:
            objects = dict(self._moments[-1].objects)
            if item is None:
                objects.pop((kind, name), None)
            else:
                objects[kind, name] = item
            self._moments.append(Moment(len(self._moments), time.time(), (kind, name), objects))
            self._news.notify_all()


def _has_all(watch: Watch) -> bool:
    return watch.listed_versions() == watch.versions()


def _line(before: Moment, after: Moment) -> str:
    """Return a change as text, "" if it is not of interest."""
    kind, name = after.changed
    former, now = _says(kind, before.get(kind, name)), _says(kind, after.get(kind, name))
    clock = time.strftime("%H:%M:%S", time.gmtime(after.at)) + f"{after.at % 1:.2f}"[1:]
    return f"{clock} {kind} {name}: {now or 'gone'}" if former != now else ""


def _says(kind: str, item: Raw) -> str:
    if not item:
        return ""
    status: dict[str, Any] = item.get("status") or {}
    if kind == "Event":
        return f"{item['reason']}: {item.get('message', '')}"
    if kind == "Lease":
        return f"held by {item['spec'].get('holderIdentity')}"
    if kind == "Deployment":
        there, ready = status.get("replicas", 0), status.get("readyReplicas", 0)
        return f"{item['spec']['replicas']} replicas asked for, {there} there, {ready} ready"
    conditions = [f"{c['type']}={c['status']} {c.get('reason', '')}".strip() for c in status.get("conditions", ())]
    rest = [f"{key}={status[key]}" for key in ("phase", "replicas", "desiredReplicas", "busyWorkers") if key in status]
    going = ["being deleted"] if "deletionTimestamp" in item["metadata"] else []
    return ", ".join([*going, *rest, *conditions]) or "there"

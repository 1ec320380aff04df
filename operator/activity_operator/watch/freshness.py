"""Checks that the watches are alive: each change that is known from elsewhere must also arrive as a watch event.

A broken watch looks like a quiet cluster: no error, no event. But the operator's own writes return through the watch,
and the LISTs of the resync show changes, too. A watch that lacks such a change for longer than the grace period is dead
if a LIST still shows the object then. The check covers the whole path: API server, kopf, its thread, the store.

A watch delivers in the order of the versions. One that has delivered a newer version than the owed one is alive and has
lost an event. The LIST has the object, so nothing is owed any more.
"""

import logging
from collections.abc import Callable

from activity_operator.cluster.resources import Raw, Resource
from activity_operator.cluster.store import KINDS, is_older, uid_of, version_of

log = logging.getLogger(__name__)


class Freshness:
    """The last version that each watch delivered, and the versions that it owes. `clock` is monotonic seconds.

    `grace_seconds` must exceed the time in which kopf notices a silent stream and reconnects (70 s and back-off).
    """

    def __init__(self, grace_seconds: float, clock: Callable[[], float]) -> None:
        self.grace_seconds = grace_seconds
        self._clock = clock
        self._delivered: dict[Resource, dict[str, str]] = {resource: {} for resource in KINDS}
        #: UID -> (resourceVersion that the watch owes, since when).
        self._expected: dict[Resource, dict[str, tuple[str, float]]] = {resource: {} for resource in KINDS}
        self._dead: dict[Resource, str] = {}
        #: The newest version that each watch has delivered, of any object; "0" before the first.
        self._newest: dict[Resource, str] = dict.fromkeys(KINDS, "0")

    def delivered(self, resource: Resource, raw: Raw, *, gone: bool) -> None:
        """Record an event of the watch."""
        uid, version = uid_of(raw), version_of(raw)
        if is_older(self._newest[resource], version):
            self._newest[resource] = version
        expected = self._expected[resource].get(uid)
        if expected is not None and (gone or not is_older(version, expected[0])):
            del self._expected[resource][uid]
        if gone:
            self._delivered[resource].pop(uid, None)
        else:
            self._delivered[resource][uid] = version
        if not self._expected[resource]:
            self._dead.pop(resource, None)

    def wrote(self, resource: Resource, raw: Raw) -> None:
        """Record a write of the operator: the watch owes this version."""
        self._expect(resource, raw)

    def _expect(self, resource: Resource, raw: Raw) -> None:
        uid, version = uid_of(raw), version_of(raw)
        delivered = self._delivered[resource].get(uid)
        if delivered is None or is_older(delivered, version):
            # The first owed version counts; a pool that changes each minute must not postpone the check for ever.
            self._expected[resource].setdefault(uid, (version, self._clock()))

    def forget(self, resource: Resource) -> None:
        """Forget what the watch owes: the API server's storage was restored, and those versions are gone."""
        self._expected[resource].clear()
        self._newest[resource] = "0"
        self._dead.pop(resource, None)

    def listed(self, resource: Resource, raws: list[Raw], list_version: str) -> None:
        """Compare a LIST with the events of the watch; an object that the LIST lacks is no longer owed.

        An object with a newer version than the LIST was made after it, and the LIST says nothing of it.
        """
        present = {uid_of(raw): raw for raw in raws}
        for uid, (version, _) in list(self._expected[resource].items()):
            if uid not in present and not is_older(list_version, version):
                del self._expected[resource][uid]
        for uid, version in list(self._delivered[resource].items()):
            if uid not in present and not is_older(list_version, version):
                del self._delivered[resource][uid]
        overdue = [
            uid for uid, (_, since) in self._expected[resource].items() if self._clock() >= since + self.grace_seconds
        ]
        if lost := [uid for uid in overdue if self._is_passed(resource, uid)]:
            name = present[lost[0]]["metadata"]["name"]
            log.warning("the watch of %s has lost %d events, such as one of %s", resource.plural, len(lost), name)
            for uid in lost:
                del self._expected[resource][uid]
                self._delivered[resource][uid] = version_of(present[uid])
        if late := [uid for uid in overdue if uid in self._expected[resource]]:
            name = present[late[0]]["metadata"]["name"]
            self._dead[resource] = (
                f"the watch of {resource.plural} has not delivered {len(late)} changes, such as one of {name}"
            )
        else:
            self._dead.pop(resource, None)
        for raw in raws:
            self._expect(resource, raw)

    def _is_passed(self, resource: Resource, uid: str) -> bool:
        """Whether the watch has delivered a newer version, of another object, than the one that it owes of this one."""
        return is_older(self._expected[resource][uid][0], self._newest[resource])

    @property
    def next_check(self) -> float | None:
        """Seconds until a LIST can prove a watch dead; None while no watch owes an event."""
        since = [at for expected in self._expected.values() for _, at in expected.values()]
        return max(min(since) + self.grace_seconds - self._clock(), 0.0) if since else None

    @property
    def problem(self) -> str:
        """The dead watches, as a sentence; "" while all are alive."""
        return "; ".join(self._dead.values())

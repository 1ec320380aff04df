"""Whether the watches still tell us things: every change that we know of otherwise must also arrive by its watch.

A cut watch looks like a quiet cluster: no error, no event. But our own writes come back through it, and the sweep's
LISTs show what it should have told. What a watch has not told for longer than the grace, although two LISTs that far
apart showed it, proves it dead. The path tested is the whole one: API server, kopf, its thread, the handover.
"""

from collections.abc import Callable

from activity_operator.cluster.kinds import Kind, Raw
from activity_operator.cluster.store import KINDS, is_older, uid_of, version_of


class Freshness:
    """What each watch told last, and what it still owes. `clock` is monotonic seconds.

    `grace_seconds` must be longer than kopf needs to notice a silent stream and connect again (70 s and back-off).
    """

    def __init__(self, grace_seconds: float, clock: Callable[[], float]) -> None:
        self.grace_seconds = grace_seconds
        self._clock = clock
        self._told: dict[Kind, dict[str, str]] = {kind: {} for kind in KINDS}
        #: UID -> (resourceVersion that the watch owes, since when); confirmed by a LIST after the grace -> dead.
        self._owed: dict[Kind, dict[str, tuple[str, float]]] = {kind: {} for kind in KINDS}
        self._dead: dict[Kind, str] = {}

    def told(self, kind: Kind, raw: Raw, *, gone: bool) -> None:
        """Take note of an event from the watch."""
        uid, version = uid_of(raw), version_of(raw)
        owed = self._owed[kind].get(uid)
        if owed is not None and (gone or not is_older(version, owed[0])):
            del self._owed[kind][uid]
        if gone:
            self._told[kind].pop(uid, None)
        else:
            self._told[kind][uid] = version
        if not self._owed[kind]:
            self._dead.pop(kind, None)

    def wrote(self, kind: Kind, raw: Raw) -> None:
        """Take note of our own write: the watch owes us this version."""
        self._owe(kind, raw)

    def _owe(self, kind: Kind, raw: Raw) -> None:
        uid, version = uid_of(raw), version_of(raw)
        told = self._told[kind].get(uid)
        if told is None or is_older(told, version):
            # The first debt counts: a pool that changes every minute must not put off the discovery for ever.
            self._owed[kind].setdefault(uid, (version, self._clock()))

    def listed(self, kind: Kind, raws: list[Raw]) -> None:
        """Compare a LIST with what the watch told; what vanished from the LIST is owed no more."""
        present = {uid_of(raw): raw for raw in raws}
        for uid in [uid for uid in self._owed[kind] if uid not in present]:
            del self._owed[kind][uid]
        for uid in [uid for uid in self._told[kind] if uid not in present]:
            del self._told[kind][uid]
        late = [uid for uid, (_, since) in self._owed[kind].items() if self._clock() >= since + self.grace_seconds]
        if late:
            name = present[late[0]]["metadata"]["name"]
            self._dead[kind] = f"the watch of {kind.plural} has not told of {len(late)} changes, such as of {name}"
        else:
            self._dead.pop(kind, None)
        for raw in raws:
            self._owe(kind, raw)

    @property
    def next_check(self) -> float | None:
        """Seconds until a LIST could confirm that a watch is dead, None when none owes anything."""
        since = [at for owed in self._owed.values() for _, at in owed.values()]
        return max(min(since) + self.grace_seconds - self._clock(), 0.0) if since else None

    @property
    def verdict(self) -> str:
        """Which watch is dead, as a sentence; "" while all are alive."""
        return "; ".join(self._dead.values())

"""Finds pools that share a source: each takes the other's tasks, so the status of both shows it."""

from collections.abc import Callable

from activity_operator.cluster.resources import Key


class SharedSources:
    """Pools by the identity of their source. `changed(key)` is called for each other pool on a source that changed."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._sources: dict[Key, str] = {}
        self._pools: dict[str, set[Key]] = {}

    def record(self, key: Key, source: str) -> None:
        """Record the pool's source."""
        if self._sources.get(key) != source:
            self.forget(key)
            self._sources[key] = source
            self._pools.setdefault(source, set()).add(key)
            self._tell_others(key, source)

    def sharing(self, key: Key, source: str) -> tuple[str, ...]:
        """Return the other pools on the source, as namespace/name."""
        return tuple(sorted("/".join(other) for other in self._pools.get(source, ()) if other != key))

    def forget(self, key: Key) -> None:
        """Forget a pool that is gone."""
        source = self._sources.pop(key, None)
        if source is None:
            return
        self._pools[source].discard(key)
        self._tell_others(key, source)
        if not self._pools[source]:
            del self._pools[source]

    def _tell_others(self, key: Key, source: str) -> None:
        for other in self._pools.get(source, ()):
            if other != key:
                self._changed(other)

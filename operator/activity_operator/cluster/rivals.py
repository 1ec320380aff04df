"""Which pools share an activity: each takes the other's tasks, so both are told."""

from collections.abc import Callable

from activity_operator.cluster.kinds import Key


class Rivals:
    """Pools by ARN. `changed(key)` is called for every pool whose rivals became others."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._changed = changed
        self._arns: dict[Key, str] = {}
        self._pools: dict[str, set[Key]] = {}

    def of(self, key: Key, arn: str) -> tuple[str, ...]:
        """Note the pool's ARN and return the other pools on it, as namespace/name."""
        if self._arns.get(key) != arn:
            self.forget(key)
            self._arns[key] = arn
            self._pools.setdefault(arn, set()).add(key)
            self._tell_others(key, arn)
        return tuple(sorted("/".join(other) for other in self._pools[arn] if other != key))

    def forget(self, key: Key) -> None:
        """Drop a pool that is gone."""
        arn = self._arns.pop(key, None)
        if arn is None:
            return
        self._pools[arn].discard(key)
        self._tell_others(key, arn)
        if not self._pools[arn]:
            del self._pools[arn]

    def _tell_others(self, key: Key, arn: str) -> None:
        for other in self._pools.get(arn, ()):
            if other != key:
                self._changed(other)

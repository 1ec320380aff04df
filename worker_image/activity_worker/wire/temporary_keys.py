"""Keys that end and are not renewed by themselves."""

from collections.abc import Callable

from activity_worker.wire.signing import Keys


class TemporaryKeys:
    """Keys until `ends_at`, in the form of botocore's credentials. Times are Unix seconds."""

    def __init__(self, keys: Keys, ends_at: float, now: Callable[[], float]) -> None:
        self._keys = keys
        self._ends_at = ends_at
        self._now = now

    def refresh_needed(self, within_seconds: float) -> bool:
        """Tell whether the keys end in less than this number of seconds."""
        return self._ends_at - self._now() < within_seconds

    def get_frozen_credentials(self) -> Keys:
        """Return the keys."""
        return self._keys
